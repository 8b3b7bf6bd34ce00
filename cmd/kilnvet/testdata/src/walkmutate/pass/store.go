package pass

import (
	"slices"
	"sort"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

func inWalk(g *ir.Graph, v *ir.Value) {
	for _, op := range g.Ops {
		op.Args[0] = v                // want `op.Args\[0\] changes an op while its graph is walked`
		op.Args = append(op.Args, v)  // want `op.Args changes an op while its graph is walked`
		op.Args[0], op.Args[1] = v, v // want `op.Args\[0\] changes an op`
		op.Results = nil              // want `op.Results changes an op`
		slices.Reverse(op.Args)       // want `op.Args changes an op`
		args := slices.Clone(op.Args)
		args[0] = v
	}
}

// A pass as a package variable.
var inVariable = passes.Pass{
	Graph: func(g *ir.Graph) (*ir.Graph, error) {
		g.Ops = g.Ops[1:] // want `g.Ops belongs to a graph`
		func() {
			g.Ops[0].Loc = "x" // want `g.Ops\[0\].Loc belongs`
		}()
		own := &ir.Graph{}
		own.Ops = g.Ops
		return own, nil
	},
}

func stores(m *passes.Module, g *ir.Graph, op *ir.Op, o ir.Output) {
	g.Ops[0] = op                           // want `g.Ops\[0\] belongs to a graph that this function did not make: build a new one with ir.NewBuilder`
	g.Ops = append(g.Ops, op)               // want `g.Ops belongs to a graph`
	g.Outputs[0].Name = "y"                 // want `g.Outputs\[0\].Name belongs`
	*g = ir.Graph{}                         // want `\*g belongs`
	op.Loc = "x"                            // want `op.Loc belongs`
	op.Attrs[0].Val = 1                     // want `op.Attrs\[0\].Val belongs`
	op.Args[0].Type.Dims[0]++               // want `belongs`
	m.Entries[0].Name = "x"                 // want `m.Entries\[0\].Name belongs`
	m.Pack.Ops = nil                        // want `m.Pack.Ops belongs`
	o.Value.Name = "x"                      // want `o.Value.Name belongs`
	slices.Reverse(g.Inputs)                // want `g.Inputs belongs`
	sort.Slice(g.Inputs, nil)               // want `g.Inputs belongs`
	_ = append(g.Ops[:1], op)               // want `g.Ops\[:1\] belongs`
	clear(g.Syms)                           // want `g.Syms belongs`
	func(v *ir.Value) { v.Name = "x" }(nil) // want `v.Name belongs`
}

func throughLocals(m *passes.Module) {
	g := m.Entries[0]
	g.Name = "x" // want `g.Name belongs`
	for _, e := range m.Entries {
		e.Name = "x" // want `e.Name belongs`
		for _, op := range e.Ops {
			first := op.Args[0]
			first.Name = "x" // want `first.Name belongs`
			op.Loc = "x"     // want `op.Loc belongs`
		}
	}
	ops := g.Ops
	ops[0] = nil // want `ops\[0\] belongs`
	p := &g.Outputs[0]
	p.Name = "x" // want `p.Name belongs`
	var again = ops[0]
	again.Loc = "x" // want `again.Loc belongs`
	t := g.Inputs[0].Type
	t.Dims[0] = 1 // want `t.Dims\[0\] belongs`
}

type pass struct{ g *ir.Graph }

func (p *pass) run() {
	p.g.Name = "x" // want `p.g.Name belongs`
	p.g = nil
}

var cached *ir.Graph

func global() {
	cached.Name = "x" // want `cached.Name belongs`
	cached = nil
}

func copies(op *ir.Op, o ir.Output, g *ir.Graph, v *ir.Value) {
	c := *op
	c.Loc = "x"
	c.Args = slices.Clone(op.Args)
	c.Args[0] = v
	c.Results[0] = v // want `c.Results\[0\] belongs`
	o.Name = "x"
	for _, o := range g.Outputs {
		o.Name = "x"
		o.Value.Name = "y" // want `o.Value.Name belongs`
	}
	all := *g
	all.Outputs = slices.Clone(g.Outputs)
	all.Outputs = append(all.Outputs, ir.Output{})
	all.Outputs[0].Name = "x"
	t := v.Type
	t.Dims = []int{1}
	t.Dims[0] = 2
}

func right(m *passes.Module) error {
	for i, g := range m.Entries {
		b := ir.NewBuilder(g.Name)
		moved := map[*ir.Value]*ir.Value{}
		for _, op := range g.Ops {
			args := make([]*ir.Value, len(op.Args))
			for i, a := range op.Args {
				args[i] = moved[a]
			}
			for i, r := range b.Op(op.Name, op.Attrs, args...) {
				moved[op.Results[i]] = r
			}
		}
		out, err := b.Finish()
		if err != nil {
			return err
		}
		m.Entries[i] = out
	}
	bound, err := ir.Bind(m.Entries[0], nil)
	if err != nil {
		return err
	}
	bound.Name = "bound"
	bound.Ops[0].Loc = "x"
	own := &ir.Graph{Name: "own"}
	own.Ops = append(own.Ops, &ir.Op{})
	own.Ops[0].Args = nil
	entries := append(slices.Clone(m.Entries), m.Pack)
	entries[0] = own
	m.Pack = own
	return nil
}
