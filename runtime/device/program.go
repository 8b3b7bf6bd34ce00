package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Program is a plan of a model.
type Program struct {
	m       *Model
	p       *plan.Plan
	args    [][]Arg            // of the launches, without what depends on a state
	types   map[string]ir.Type // inputs and outputs
	bound   []*bound
	staging []byte // of memory that is not this process's
}

// bound is a program with the addresses of a state and of an arena.
type bound struct {
	state *State
	arena Memory
	seq   Sequence // nil with a step
	step  Step     // nil where inputs are written to the device's memory
}

func (b *bound) close() error {
	if b.step != nil {
		return b.step.Close()
	}
	return b.seq.Close()
}

// Load prepares a plan: its memory in the arena, its types, what reports name.
func (m *Model) Load(p *plan.Plan) (*Program, error) {
	if err := m.mod.CheckPlan(p); err != nil {
		return nil, err
	}
	g := &Program{m: m, p: p, types: map[string]ir.Type{}}
	for _, list := range [][]plan.Tensor{p.Inputs, p.Outputs} {
		for _, t := range list {
			typ, err := ParseType(t.Type)
			if err != nil {
				return nil, fmt.Errorf("plan %s: %s: %w", p.Entry, t.Name, err)
			}
			g.types[t.Name] = typ
		}
	}
	lives := p.Lives()
	for i, l := range p.Launches {
		lives.At(i)
		args := make([]Arg, len(l.Args))
		for j, a := range l.Args {
			args[j] = m.arg(p, i, a, lives)
		}
		g.args = append(g.args, args)
	}
	if err := m.reserve(p.Arena); err != nil {
		return nil, err
	}
	m.programs = append(m.programs, g)
	return g, nil
}

// arg is an argument without its address.
func (m *Model) arg(p *plan.Plan, launch int, a plan.Arg, lives *plan.Lives) Arg {
	if a.Mode == "" {
		return Arg{Int: a.Int}
	}
	s := a.Buf
	out := Arg{Bytes: s.Bytes, Mode: a.Mode}
	switch s.Space {
	case plan.Arena:
		v := &p.Values[lives.Find(s)] // CheckPlan has found it
		out.Label, out.First, out.Last = "value "+v.Name, v.First == launch, v.Last == launch
	case plan.State:
		out.Label = "state " + m.mod.States[s.Index].Name
	case plan.Weight:
		out.Label = "weight " + m.mod.Weights[s.Index].Name
	}
	if s.Part == 1 {
		out.Label += " scales"
	}
	return out
}

// Close frees what the program has prepared.
func (g *Program) Close() error {
	g.m.drop(g)
	var errs []error
	for len(g.bound) > 0 {
		errs = append(errs, g.release(g.bound[0].state))
	}
	return errors.Join(errs...)
}

// release frees what the program has prepared for a state.
func (g *Program) release(st *State) error {
	if st != nil {
		st.users = slices.DeleteFunc(st.users, func(p *Program) bool { return p == g })
	}
	at := slices.IndexFunc(g.bound, func(b *bound) bool { return b.state == st })
	if at < 0 {
		return nil
	}
	b := g.bound[at]
	g.bound = slices.Delete(g.bound, at, at+1)
	return b.close()
}

// bind returns the sequence for a state, which is made when the state is new to
// the program or the arena has moved.
func (g *Program) bind(st *State) (*bound, error) {
	at := slices.IndexFunc(g.bound, func(b *bound) bool { return b.state == st })
	if at >= 0 && g.bound[at].arena == g.m.arena {
		return g.bound[at], nil
	}
	if err := g.release(st); err != nil {
		return nil, err
	}
	launches, err := g.launches(st)
	if err != nil {
		return nil, err
	}
	b := &bound{state: st, arena: g.m.arena}
	if lib, ok := g.m.lib.(StepLibrary); ok && g.m.mod.Step != nil {
		b.step, err = g.prepareStep(lib, launches, st)
	} else {
		b.seq, err = g.m.lib.Prepare(launches)
	}
	if err != nil {
		return nil, err
	}
	g.bound = append(g.bound, b)
	if st != nil {
		st.users = append(st.users, g)
	}
	return b, nil
}

// launches are the plan's with the addresses of a state.
func (g *Program) launches(st *State) ([]Launch, error) {
	out := make([]Launch, len(g.p.Launches))
	for i := range g.p.Launches {
		l := &g.p.Launches[i]
		k := &g.m.mod.Kernels[l.Kernel]
		out[i] = Launch{
			Kernel: l.Kernel, Symbol: k.Symbol, Form: k.Form, Op: l.Op, Loc: l.Loc,
			Grid: l.Grid, Block: g.m.mod.Block, Shared: k.Shared, Work: l.Work, Args: slices.Clone(g.args[i]),
		}
		for j, a := range l.Args {
			if a.Mode == "" {
				continue
			}
			m, err := g.memory(a.Buf, st)
			if err != nil {
				return nil, err
			}
			out[i].Args[j].Address = m.Address() + uint64(a.Buf.Offset)
		}
	}
	return out, nil
}

// memory is the block that a slice lies in.
func (g *Program) memory(s plan.Slice, st *State) (Memory, error) {
	m, name := g.m.arena, "arena"
	switch s.Space {
	case plan.State:
		name = g.m.mod.States[s.Index].Name
		if st == nil || st.pools[name].parts[s.Part] == nil {
			return nil, fmt.Errorf("the state has no pool %s", name)
		}
		m = st.pools[name].parts[s.Part]
	case plan.Weight:
		name = g.m.mod.Weights[s.Index].Name
		if s.Index >= len(g.m.weights) {
			return nil, fmt.Errorf("weight %s is not bound", name)
		}
		m = g.m.weights[s.Index].parts[s.Part]
	}
	if m.Size() < s.Offset+s.Bytes {
		return nil, fmt.Errorf("%s has %d bytes, a slice ends at %d", name, m.Size(), s.Offset+s.Bytes)
	}
	return m, nil
}

// Run executes the plan. States are updated in place; after an error their content
// is undefined. A plan without pools takes a nil state.
func (g *Program) Run(inputs map[string]*eval.Tensor, st *State) (map[string]*eval.Tensor, error) {
	out, err := g.run(inputs, st)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", g.name(), err)
	}
	return out, nil
}

// name is the entry with its binding, for errors.
func (g *Program) name() string {
	text := []string{g.p.Entry}
	for _, b := range g.p.Binding {
		text = append(text, fmt.Sprintf("%s=%d", b.Symbol, b.Value))
	}
	return strings.Join(text, " ")
}

func (g *Program) run(inputs map[string]*eval.Tensor, st *State) (map[string]*eval.Tensor, error) {
	b, err := g.bind(st)
	if err != nil {
		return nil, err
	}
	for i := range g.p.Inputs {
		in := &g.p.Inputs[i]
		t, ok := inputs[in.Name]
		if !ok {
			return nil, fmt.Errorf("input %s is missing", in.Name)
		}
		if !t.Type().Equal(g.types[in.Name]) {
			return nil, fmt.Errorf("input %s is %s, want %s", in.Name, t.Type(), in.Type)
		}
	}
	if b.step != nil {
		return g.runStep(b.step, inputs, st)
	}
	for i := range g.p.Inputs {
		in := &g.p.Inputs[i]
		if err := g.put(in, inputs[in.Name], st); err != nil {
			return nil, fmt.Errorf("input %s: %w", in.Name, err)
		}
	}
	if err := b.seq.Run(); err != nil {
		return nil, err
	}
	if len(g.p.Outputs) == 0 { // nothing is read that would wait
		return map[string]*eval.Tensor{}, g.m.dev.Sync()
	}
	out := map[string]*eval.Tensor{}
	for i := range g.p.Outputs {
		o := &g.p.Outputs[i]
		if out[o.Name], err = g.get(o, st); err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
	}
	return out, nil
}

// put writes an input where the plan has it.
func (g *Program) put(in *plan.Tensor, t *eval.Tensor, st *State) error {
	m, err := g.memory(in.Data, st)
	if err != nil {
		return err
	}
	if err := write(m, in.Data.Offset, t, &g.staging); err != nil || in.Scales == nil {
		return err
	}
	if m, err = g.memory(*in.Scales, st); err != nil {
		return err
	}
	return m.Write(in.Scales.Offset, t.Scales)
}

// get reads an output from where the plan has it.
func (g *Program) get(o *plan.Tensor, st *State) (*eval.Tensor, error) {
	t, err := eval.New(g.types[o.Name])
	if err != nil {
		return nil, err
	}
	m, err := g.memory(o.Data, st)
	if err != nil {
		return nil, err
	}
	if err := read(m, o.Data.Offset, t, &g.staging); err != nil || o.Scales == nil {
		return t, err
	}
	if m, err = g.memory(*o.Scales, st); err != nil {
		return nil, err
	}
	return t, m.Read(o.Scales.Offset, t.Scales)
}
