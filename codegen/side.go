package codegen

import (
	"context"
	"fmt"
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

// sides compiles what is asked for of a module whose steps were lowered.
func (c *Compiler) sides(ctx context.Context, t *target.Target, m *passes.Module, code *bundle.Code) error {
	start := func() *Unit {
		u := NewUnit(t)
		u.Interrupted = ctx.Err
		for _, form := range c.Disable {
			u.Disable[form] = true
		}
		return u
	}
	var err error
	if c.Sides.Unfused {
		if code.Unfused, err = c.unfused(ctx, start(), m.Steps); err != nil {
			return fmt.Errorf("without fused kernels: %w", err)
		}
	}
	if c.Sides.Probes {
		if code.Probes, err = c.probes(ctx, start(), m.Steps); err != nil {
			return fmt.Errorf("start-up checks: %w", err)
		}
	}
	return nil
}

func (c *Compiler) unfused(ctx context.Context, u *Unit, steps []*passes.Step) (*bundle.Side, error) {
	for _, form := range fusedForms() {
		u.Disable[form] = true
	}
	for _, s := range steps {
		if err := u.SelectKernels(s); err != nil {
			return nil, err
		}
		if err := u.PlanMemory(s); err != nil {
			return nil, err
		}
	}
	out, err := c.Compile(ctx, u)
	if err != nil {
		return nil, err
	}
	return &bundle.Side{Module: u.Module, Object: out.Object}, nil
}

// probes compiles single ops: for each kernel of a fused op the smallest step that has
// it. Of each there are two plans, the op as it is, and the op as it decomposes.
func (c *Compiler) probes(ctx context.Context, u *Unit, steps []*passes.Step) (*bundle.Side, error) {
	tokens := func(s *passes.Step) int { return max(s.Bind["T"], s.Bind["B"]*(s.Bind["K"]+1)) }
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b *passes.Step) int { return tokens(a) - tokens(b) })
	p := &prober{u: u, seen: map[string]bool{}, covered: map[int]bool{}}
	for _, form := range fusedForms() {
		if !u.Disable[form] {
			p.fused = append(p.fused, form)
		}
	}
	for _, s := range steps {
		for _, op := range s.Graph.Ops {
			if op.Def.FusedBy == "" {
				continue
			}
			if err := p.add(op, s); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", op.Where(), op.Def.Name, err)
			}
		}
	}
	if len(p.graphs) == 0 {
		return nil, nil
	}
	out, err := c.Compile(ctx, u)
	if err != nil {
		return nil, err
	}
	return &bundle.Side{Module: u.Module, Object: out.Object, Graphs: strings.Join(p.graphs, "\n")}, nil
}

type prober struct {
	u       *Unit
	fused   []string // forms
	seen    map[string]bool
	covered map[int]bool // kernels that a probe runs
	graphs  []string
}

// add makes a probe of an op, unless others run its kernels already.
func (p *prober) add(op *ir.Op, s *passes.Step) error {
	name := fmt.Sprintf("probe.%d", len(p.graphs))
	key, g, err := probeGraph(name, op)
	if err != nil || p.seen[key] {
		return err
	}
	p.seen[key] = true
	step := &passes.Step{Graph: g, Bind: map[string]int{"B": s.Bind["B"]}, Set: s.Set}
	if err := p.lower(step); err != nil {
		return err
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
	plain, err := plainGraph(name+".plain", op)
	if err != nil {
		return err
	}
	return p.lower(&passes.Step{Graph: plain, Bind: step.Bind, Set: s.Set})
}

func (p *prober) lower(s *passes.Step) error {
	if err := p.u.SelectKernels(s); err != nil {
		return err
	}
	return p.u.PlanMemory(s)
}

// probeOperands declares an op's operands in a graph: weights stay what they are, all
// else that is computed is an input.
func probeOperands(b *ir.Builder, op *ir.Op) []*ir.Value {
	b.At(op.Loc)
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

// probeGraph is a graph of the op alone. Ops with one key differ in nothing but the
// values of their operands.
func probeGraph(name string, op *ir.Op) (key string, g *ir.Graph, err error) {
	key = op.Signature(func(i int) string {
		if op.Args[i].Kind == ir.WeightValue {
			return " weight"
		}
		return ""
	})
	b := ir.NewBuilder(name)
	for i, r := range b.Op(op.Def.Name, op.Attrs, probeOperands(b, op)...) {
		b.Output(bundle.ProbeResult(i), r)
	}
	g, err = b.Finish()
	return key, g, err
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
