package codegen

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Sides says what else is compiled beside the plans.
type Sides struct {
	// Unfused: the same plans with every fused op as the ops that it decomposes into, to
	// be run where a fused kernel is not right.
	Unfused bool
	// Probes: plans of single fused ops, as they are in the plans and decomposed, which
	// are compared when a model is loaded.
	Probes bool
}

// fusedForms are the kernel forms of ops that passes make of others.
func fusedForms() []string {
	var names []string
	for _, op := range ir.Ops() {
		if op.FusedBy == "" {
			continue
		}
		for _, f := range kernels.For(op.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// sides are what is beside the plans, lowered: nil is what was not asked for, or has
// nothing in it.
type sides struct {
	unfused, probes *Unit
	graphs          []string // of the probes
}

// startSides starts lowerSides; wait is for its end. As elsewhere in lowering a panic is
// an error.
func (c *Compiler) startSides(ctx context.Context, t *target.Target, steps <-chan *passes.Step, made *madeKernels) (wait func() (*sides, error)) {
	var out *sides
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("lowering beside the plans: panic: %v\n%s", r, debug.Stack())
			}
		}()
		out, err = c.lowerSides(ctx, t, steps, made)
	}()
	return func() (*sides, error) { <-done; return out, err }
}

// lowerSides lowers what is asked for beside the plans of the steps, which come one by
// one. It takes all of them, also when it fails.
func (c *Compiler) lowerSides(ctx context.Context, t *target.Target, steps <-chan *passes.Step, made *madeKernels) (*sides, error) {
	out := &sides{}
	if c.Sides.Unfused {
		out.unfused = c.unit(ctx, t)
		out.unfused.encode, out.unfused.made = true, made
		for _, form := range fusedForms() {
			out.unfused.Disable[form] = true
		}
	}
	var probes []probe
	var err error
	at := map[string]int{} // of probes, by key
	for i := 0; ; i++ {
		s, ok := <-steps
		if !ok {
			break
		}
		if out.unfused != nil && err == nil {
			if err = out.unfused.lower(s); err != nil {
				err = fmt.Errorf("without fused kernels: %w", err)
			}
		}
		if c.Sides.Probes && err == nil {
			if probes, err = findProbes(s, i, probes, at); err != nil {
				err = fmt.Errorf("start-up checks: %w", err)
			}
		}
	}
	if err == nil && c.Sides.Probes {
		u := c.unit(ctx, t)
		u.made = made
		var graphs []string
		if graphs, err = lowerProbes(u, probes); err != nil {
			err = fmt.Errorf("start-up checks: %w", err)
		}
		if len(graphs) > 0 {
			out.probes, out.graphs = u, graphs
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// compileSides gives the code its sides.
func (c *Compiler) compileSides(ctx context.Context, s *sides, code *bundle.Code) error {
	if s.unfused != nil {
		out, err := c.Compile(ctx, s.unfused)
		if err != nil {
			return fmt.Errorf("without fused kernels: %w", err)
		}
		code.Unfused = &bundle.Side{Module: s.unfused.Module, Plans: s.unfused.plans, Object: out.Object}
	}
	if s.probes != nil {
		out, err := c.Compile(ctx, s.probes)
		if err != nil {
			return fmt.Errorf("start-up checks: %w", err)
		}
		code.Probes = &bundle.Side{Module: s.probes.Module, Object: out.Object, Graphs: strings.Join(s.graphs, "\n")}
	}
	return nil
}

// rowsOf is the size of a bucket: the tokens of a prefill, the requests of other steps.
func rowsOf(s *passes.Step) int { return max(s.Bind["T"], s.Bind["B"]) }

// probe is a fused op of a step, as a graph of its own: the step's need not stay in
// memory.
type probe struct {
	graph    *ir.Graph
	where    string // graph, place and name of the op, for errors
	step, op int    // where it was found
	rows     int    // of the step
	requests int
	set      map[string]int
}

// findProbes adds the fused ops of a step to a list: of those that differ in nothing but
// the values of their operands the one of the smallest step, of these the first. at says
// where in the list one with a key is.
func findProbes(s *passes.Step, step int, list []probe, at map[string]int) ([]probe, error) {
	var key []byte
	for i, op := range s.Graph.Ops {
		if op.Def.FusedBy == "" {
			continue
		}
		key = appendProbeKey(key[:0], op)
		j, ok := at[string(key)]
		if ok && rowsOf(s) >= list[j].rows {
			continue
		}
		where := fmt.Sprintf("graph @%s, %d rows: %s: %s", s.Graph.Name, rowsOf(s), op.Where(), op.Def.Name)
		g, err := probeGraph("probe", op)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		p := probe{graph: g, where: where, step: step, op: i, rows: rowsOf(s), requests: s.Bind["B"], set: s.Set}
		if !ok {
			at[string(key)], list = len(list), append(list, p)
		} else {
			list[j] = p
		}
	}
	return list, nil
}

// lowerProbes lowers single ops: for each kernel of a fused op the smallest step that
// has it. Of each there are two plans, the op as it is, and the op as it decomposes. It
// returns the graphs of the former.
func lowerProbes(u *Unit, list []probe) ([]string, error) {
	slices.SortFunc(list, func(a, b probe) int { return cmp.Or(a.rows-b.rows, a.step-b.step, a.op-b.op) })
	p := &prober{u: u, covered: map[int]bool{}}
	for _, form := range fusedForms() {
		if !u.Disable[form] {
			p.fused = append(p.fused, form)
		}
	}
	for i := range list {
		if err := p.add(&list[i]); err != nil {
			return nil, err
		}
	}
	return p.graphs, nil
}

type prober struct {
	u       *Unit
	fused   []string     // forms
	covered map[int]bool // kernels that a probe runs
	graphs  []string
}

// add lowers a probe, unless others run its kernels already.
func (p *prober) add(from *probe) error {
	op := from.fused()
	fail := func(err error) error { return fmt.Errorf("%s: %w", from.where, err) }
	g, err := probeGraph(fmt.Sprintf("probe.%d", len(p.graphs)), op)
	if err != nil {
		return fail(err)
	}
	defer func(known int) { // who asks for a kernel is named in its errors
		for _, k := range p.u.Kernels[known:] {
			k.at = from.where
		}
	}(len(p.u.Kernels))
	step := &passes.Step{Graph: g, Bind: map[string]int{"B": from.requests}, Set: from.set}
	if err := p.u.lower(step); err != nil {
		return fail(err)
	}
	fresh := false
	plans := &p.u.Module.Plans
	for _, l := range (*plans)[len(*plans)-1].Launches {
		fresh = fresh || !p.covered[l.Kernel]
		p.covered[l.Kernel] = true
	}
	if !fresh {
		*plans = (*plans)[:len(*plans)-1]
		return nil
	}
	p.graphs = append(p.graphs, ir.Text(g))
	for _, form := range p.fused {
		p.u.Disable[form] = true
	}
	defer func() {
		for _, form := range p.fused {
			delete(p.u.Disable, form)
		}
	}()
	plain, err := plainGraph(g.Name+".plain", op)
	if err == nil {
		err = p.u.lower(&passes.Step{Graph: plain, Bind: step.Bind, Set: from.set})
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// fused is the op that a probe is made of.
func (p *probe) fused() *ir.Op { return p.graph.Outputs[0].Value.Op }

// probeOperands declares an op's operands in a graph: weights stay what they are, all
// else that is computed is an input.
func probeOperands(b *ir.Builder, op *ir.Op) []*ir.Value {
	b.AtOp(op)
	args := make([]*ir.Value, len(op.Args))
	weights := map[string]*ir.Value{}
	for i, a := range op.Args {
		switch {
		case a.Kind == ir.WeightValue:
			if weights[a.Name] == nil {
				weights[a.Name] = b.Weight(a.Name, a.Type)
			}
			args[i] = weights[a.Name]
		case a.Constant() != nil:
			args[i] = b.Op1("const", a.Constant().Attrs)
		default:
			args[i] = b.Input(fmt.Sprintf("a%d", i), a.Type)
		}
	}
	return args
}

// appendProbeKey tells fused ops apart: those with one key differ in nothing but the
// values of their operands.
func appendProbeKey(b []byte, op *ir.Op) []byte {
	return op.AppendSignature(b, func(i int) string {
		if op.Args[i].Kind == ir.WeightValue {
			return " weight"
		}
		return ""
	})
}

// probeGraph is a graph of the op alone.
func probeGraph(name string, op *ir.Op) (*ir.Graph, error) {
	b := ir.NewBuilder(name)
	for i, r := range b.Op(op.Def.Name, op.Attrs, probeOperands(b, op)...) {
		b.Output(bundle.ProbeResult(i), r)
	}
	return b.Finish()
}

// plainGraph is the graph that a probe is compared with. What follows from a result of
// the fused op is computed from it (ir.OpDef.Rest): that is an input. Choices come with
// the scores that they are judged by.
func plainGraph(name string, op *ir.Op) (*ir.Graph, error) {
	b := ir.NewBuilder(name)
	args := probeOperands(b, op)
	results := b.Op(op.Def.Name, op.Attrs, args...)
	if b.Err() != nil {
		return nil, b.Err()
	}
	whole := results[0].Op
	if op.Def.Rest != nil {
		first := b.Input(bundle.ProbeFirst, results[0].Type)
		results = append(results[:1:1], op.Def.Rest(b, whole, first)...)
	}
	if op.Def.Limit.Kind == ir.ByChoice {
		parts := op.Def.Decompose(b, whole)
		b.Output(bundle.ProbeScores, parts[0].Op.Args[0])
	}
	for i, r := range results {
		b.Output(bundle.ProbeResult(i), r)
	}
	return b.Finish()
}
