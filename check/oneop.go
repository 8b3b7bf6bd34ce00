package check

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// oneOp is a graph of a single op. Ops of a model that differ in nothing but
// their operands' values share one: layers repeat the same shapes.
type oneOp struct {
	name    string // of the graph, in order of first use
	def     *ir.OpDef
	graph   *ir.Graph
	program *eval.Program
	args    []string // input names; "" for constants, which stay such
	weight  []bool   // operands that are weights somewhere
	pool    string   // the state that operand 0 is, or ""

	roundsInside bool
	ofCodes      []bool // by result
}

// site is an op of the checked graph.
type site struct {
	op  *ir.Op
	one *oneOp
}

// oneOps finds the distinct ops of a bound graph. Constants are operands of
// others; what makes a table is evaluated when weights are bound.
type oneOps struct {
	byKey map[string]*oneOp
	list  []*oneOp
}

func (o *oneOps) of(op *ir.Op) (*oneOp, error) {
	if o.byKey == nil {
		o.byKey = map[string]*oneOp{}
	}
	key := string(op.AppendSignature(nil, func(i int) string {
		if i == 0 && inPlace(op) {
			return " pool"
		}
		return ""
	}))
	one, ok := o.byKey[key]
	if !ok {
		var err error
		if one, err = newOneOp(fmt.Sprintf("op%d", len(o.list)), op); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op.Where(), op.Def.Name, err)
		}
		o.byKey[key] = one
		o.list = append(o.list, one)
	}
	for i, a := range op.Args {
		one.weight[i] = one.weight[i] || a.Kind == ir.WeightValue
	}
	return one, nil
}

// inPlace reports whether op writes a pool in place.
func inPlace(op *ir.Op) bool {
	if op.Def.Name != "scatter_rows" {
		return false
	}
	v := op.Args[0]
	for v.Kind == ir.OpResult && v.Op.Def.Name == "scatter_rows" {
		v = v.Op.Args[0]
	}
	return v.Kind == ir.StateValue
}

func newOneOp(name string, op *ir.Op) (*oneOp, error) {
	o := &oneOp{name: name, def: op.Def, args: make([]string, len(op.Args)), weight: make([]bool, len(op.Args))}
	b := ir.NewBuilder(name)
	b.At(op.Loc)
	args := make([]*ir.Value, len(op.Args))
	for i, a := range op.Args {
		switch c := a.Constant(); {
		case c != nil:
			args[i] = b.Op1("const", c.Attrs)
		case i == 0 && inPlace(op):
			o.pool = name + ".pool" // pools are one namespace for all graphs of a unit
			args[i] = b.State(o.pool, a.Type)
		default:
			o.args[i] = fmt.Sprintf("a%d", i)
			args[i] = b.Input(o.args[i], a.Type)
		}
	}
	results := b.Op(op.Def.Name, op.Attrs, args...)
	if o.pool != "" {
		b.Update(args[0], results[0])
	} else {
		for i := range op.Results {
			b.Output(resultName(i), results[i])
		}
	}
	var err error
	if o.graph, err = b.Finish(); err != nil {
		return nil, err
	}
	if n := elements(op); n > mostElements {
		return nil, &errTooLarge{fmt.Sprintf("it has %.3g elements, the evaluator takes %.3g at most", float64(n), float64(mostElements))}
	}
	if o.roundsInside, err = roundsInside(o.graph); err != nil {
		return nil, err
	}
	if o.ofCodes, err = ofCodes(o.op(), o.graph); err != nil {
		return nil, err
	}
	o.program, err = eval.Compile(o.graph, eval.NewConsts(nil))
	return o, err
}

// roundsInside reports whether a sum is rounded to fewer bits and then goes into
// another sum. Such a rounding may go the other way where the first sum has another
// order, and the second sum carries the whole step of its term.
func roundsInside(g *ir.Graph) (bool, error) {
	e, err := ir.Expand(g)
	if err != nil {
		return false, err
	}
	const summed, rounded = 1, 2
	state := map[*ir.Value]int{}
	for _, op := range e.Ops {
		s := 0
		for _, a := range op.Args {
			s = max(s, state[a])
		}
		if op.Def.Name == "dot" || op.Def.Name == "reduce_sum" {
			if s == rounded {
				return true, nil
			}
			s = summed
		}
		for _, r := range op.Results {
			if dt := r.Type.DType; s == summed && dt != ir.F32 && (dt.IsFloat() || dt.IsCode()) {
				state[r] = rounded
			} else {
				state[r] = s
			}
		}
	}
	return false, nil
}

// elements counts an op's operands.
func elements(op *ir.Op) int {
	sum := 0
	for _, a := range op.Args {
		n, _ := a.Type.Size()
		sum += n
	}
	return sum
}

func resultName(i int) string { return fmt.Sprintf("r%d", i) }

// results orders what a run of the graph left behind.
func (o *oneOp) results(out, states map[string]*eval.Tensor) []*eval.Tensor {
	if o.pool != "" {
		return []*eval.Tensor{states[o.pool]}
	}
	list := make([]*eval.Tensor, len(o.def.Results))
	for i := range list {
		list[i] = out[resultName(i)]
	}
	return list
}

// values names operands as the graph wants them; pools are copies.
func (o *oneOp) values(args []*eval.Tensor) Values {
	v := Values{map[string]*eval.Tensor{}, map[string]*eval.Tensor{}}
	for i, a := range args {
		if o.args[i] != "" {
			v.Inputs[o.args[i]] = a
		}
	}
	if o.pool != "" {
		v.States[o.pool] = args[0].Clone()
	}
	return v
}

// makesTable reports whether the decomposition has an op that makes a table.
func (o *oneOp) makesTable() bool {
	e, err := ir.Expand(o.graph)
	return err != nil || slices.ContainsFunc(e.Ops, func(op *ir.Op) bool { return op.Def.Table })
}

// op is the op: before it there are its constants.
func (o *oneOp) op() *ir.Op { return o.graph.Ops[len(o.graph.Ops)-1] }

// evaluate runs the op on the evaluator.
func (o *oneOp) evaluate(args []*eval.Tensor) ([]*eval.Tensor, error) {
	in := o.values(args)
	out, err := o.program.Run(in.Inputs, in.States)
	if err != nil {
		return nil, err
	}
	return o.results(out, in.States), nil
}

// operands makes operands by a case, indices in what they index.
func (o *oneOp) operands(c *Case, seed uint64) ([]*eval.Tensor, error) {
	spans, packs := spansOf(o.graph), packsOf(o.graph)
	args := make([]*eval.Tensor, len(o.args))
	for i, v := range o.op().Args {
		if v.Constant() != nil {
			continue
		}
		r := source(seed, "operand", fmt.Sprintf("%s %s %d", o.def.Name, v.Type, i))
		var err error
		if o.weight[i] {
			args[i], err = c.weight(r, v.Type, spans[v])
		} else {
			args[i], err = c.value(r, v, spans, packs)
		}
		if err != nil {
			return nil, err
		}
	}
	return args, nil
}
