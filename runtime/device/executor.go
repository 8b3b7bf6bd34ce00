package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Executor runs the plans of one model on a device: engine.Executor.
type Executor struct {
	dev      Device
	m        *Model
	owner    *Model // of the weights, if that is not m
	plans    []*plan.Plan
	programs map[*plan.Plan]*Program
}

// NewExecutor loads the code of a module, binds its weights and prepares its
// plans. It takes over the device, also when it fails. Context and progress are those
// of BindWeights.
func NewExecutor(ctx context.Context, dev Device, code []byte, mod *plan.Module, weights eval.WeightSource, progress func(done, total int64)) (*Executor, error) {
	x := &Executor{dev: dev, plans: mod.Plans}
	if err := x.load(ctx, code, mod, weights, progress); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func (x *Executor) load(ctx context.Context, code []byte, mod *plan.Module, weights eval.WeightSource, progress func(done, total int64)) error {
	var err error
	if x.m, err = NewModel(x.dev, code, mod); err != nil {
		return err
	}
	if err := x.m.BindWeights(ctx, weights, progress); err != nil {
		return err
	}
	x.programs, err = x.m.loadAll(x.plans)
	return err
}

// Executor runs some plans of a model whose weights are bound. It is not closed: the
// model is, and the states before.
func (m *Model) Executor(plans []*plan.Plan) (*Executor, error) {
	programs, err := m.loadAll(plans)
	return &Executor{dev: m.dev, m: m, plans: plans, programs: programs}, err
}

// loadAll prepares plans with an arena for the largest of them.
func (m *Model) loadAll(plans []*plan.Plan) (map[*plan.Plan]*Program, error) {
	var arena int64
	for _, p := range plans {
		arena = max(arena, p.Arena)
	}
	if err := m.reserve(arena); err != nil {
		return nil, err
	}
	programs := map[*plan.Plan]*Program{}
	for _, p := range plans {
		var err error
		if programs[p], err = m.Load(p); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// Close frees everything, the device last; close states before.
func (x *Executor) Close() error {
	var errs []error
	for _, m := range []*Model{x.m, x.owner} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, x.dev.Close())...)
}

// Device implements engine.Executor.
func (x *Executor) Device() string { return x.dev.Name() }

// Has implements engine.Executor.
func (x *Executor) Has(entry string) bool {
	return slices.ContainsFunc(x.plans, func(p *plan.Plan) bool { return p.Entry == entry })
}

// shapeOf is the step shape that a plan runs.
func shapeOf(p *plan.Plan) engine.Shape {
	s := engine.Shape{T: p.Rows(), B: p.Symbol("B"), O: p.Symbol("O"), P: max(1, p.Symbol("P"))}
	if s.O == 0 {
		s.O = s.T
	}
	return s
}

// Fit implements engine.Executor: the plan with the fewest rows that holds s.
func (x *Executor) Fit(entry string, s engine.Shape) (engine.Shape, error) {
	best := engine.Shape{}
	for _, p := range x.plans {
		q := shapeOf(p)
		if p.Symbol("P") == 0 { // the entry has no page table
			q.P = s.P
		}
		if p.Entry != entry || q.T < s.T || q.B < s.B || q.O < s.O || q.P < s.P {
			continue
		}
		if best.T == 0 || q.T < best.T || q.T == best.T && q.B < best.B {
			best = q
		}
	}
	if best.T == 0 {
		return best, fmt.Errorf("entry %s: no compiled bucket holds %+v", entry, s)
	}
	return best, nil
}

// MaxPrefill implements engine.Executor.
func (x *Executor) MaxPrefill() int {
	n := 0
	for _, p := range x.plans {
		if p.Entry == "prefill" {
			n = max(n, shapeOf(p).T)
		}
	}
	return n
}

// find returns the plan of an entry with exactly this binding.
func (x *Executor) find(entry string, bind map[string]int) (*plan.Plan, error) {
	for _, p := range x.plans {
		if p.Entry != entry {
			continue
		}
		same := len(p.Binding) == len(bind)
		for _, b := range p.Binding {
			same = same && bind[b.Symbol] == b.Value
		}
		if same {
			return p, nil
		}
	}
	var want []string
	for _, s := range slices.Sorted(maps.Keys(bind)) {
		want = append(want, fmt.Sprintf("%s=%d", s, bind[s]))
	}
	return nil, fmt.Errorf("entry %s: no compiled bucket for %v", entry, want)
}

// Run implements engine.Executor.
func (x *Executor) Run(entry string, bind map[string]int, inputs engine.Tensors, state engine.State) (engine.Tensors, error) {
	p, err := x.find(entry, bind)
	if err != nil {
		return nil, err
	}
	st, ok := state.(*State)
	if state != nil && (!ok || st.dev != x.dev) {
		return nil, fmt.Errorf("%s: the state was made by another device (%T)", x.Device(), state)
	}
	out, err := x.programs[p].Run(inputs, st)
	return out, err
}

// NewState implements engine.Executor. All plans of an entry have pools of one
// size.
func (x *Executor) NewState(entry string, bind map[string]int) (engine.State, error) {
	for _, p := range x.plans {
		if p.Entry != entry {
			continue
		}
		for _, s := range slices.Sorted(maps.Keys(bind)) {
			if got := p.Symbol(s); got != 0 && got != bind[s] {
				return nil, fmt.Errorf("entry %s was compiled for %s=%d, not %d", entry, s, got, bind[s])
			}
		}
		return x.m.NewState(p)
	}
	return nil, fmt.Errorf("no entry %q is compiled", entry)
}

// Smallest is the step shape of the smallest plan of an entry, and what its symbols are
// bound to.
func (x *Executor) Smallest(entry string) (s engine.Shape, bind map[string]int, err error) {
	for _, p := range x.plans {
		if q := shapeOf(p); p.Entry == entry && (s.T == 0 || q.T < s.T) {
			s, bind = q, map[string]int{}
			for _, b := range p.Binding {
				bind[b.Symbol] = b.Value
			}
		}
	}
	if s.T == 0 {
		err = fmt.Errorf("no entry %q is compiled", entry)
	}
	return s, bind, err
}

// Replayer is a Device that replays sequences as graphs, or launches them one by one.
type Replayer interface {
	// Graphs tells which.
	Graphs() bool
	// SetGraphs chooses for sequences that are prepared from now on.
	SetGraphs(on bool)
}

// Replayer is the executor's device, or nil if that has no graphs.
func (x *Executor) Replayer() Replayer {
	r, _ := x.dev.(Replayer)
	return r
}
