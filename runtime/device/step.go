package device

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
)

// Programs on devices with a StepLibrary. A tensor is a region for its data, and one
// for its scales if it has some.

func (g *Program) prepareStep(lib StepLibrary, launches []Launch, st *State) (Step, error) {
	around := func(kernel int, op string) Launch {
		k := &g.m.mod.Kernels[kernel]
		return Launch{Kernel: kernel, Symbol: k.Symbol, Form: k.Form, Op: op, Block: g.m.mod.Block}
	}
	s := StepLaunches{Prologue: around(g.m.mod.Step.Prologue, "prologue"), Epilogue: around(g.m.mod.Step.Epilogue, "epilogue"), Launches: launches}
	var err error
	if s.In, err = g.regions(g.p.Inputs, st); err != nil {
		return nil, err
	}
	if s.Out, err = g.regions(g.p.Outputs, st); err != nil {
		return nil, err
	}
	return lib.PrepareStep(s)
}

func (g *Program) regions(list []plan.Tensor, st *State) ([]Region, error) {
	var out []Region
	add := func(name string, s plan.Slice) error {
		m, err := g.memory(s, st)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, Region{Name: name, Address: m.Address() + uint64(s.Offset), Bytes: s.Bytes})
		return nil
	}
	for _, t := range list {
		if err := add(t.Name, t.Data); err != nil {
			return nil, err
		}
		if t.Scales == nil {
			continue
		}
		if err := add(t.Name+" scales", *t.Scales); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runStep runs a program whose inputs were checked.
func (g *Program) runStep(s Step, inputs map[string]*eval.Tensor, st *State) (map[string]*eval.Tensor, error) {
	next := 0
	region := func() int { next++; return next - 1 }
	for i := range g.p.Inputs {
		in := &g.p.Inputs[i]
		t := inputs[in.Name]
		if err := t.Encode(s.Input(region())); err != nil {
			return nil, fmt.Errorf("input %s: %w", in.Name, err)
		}
		if in.Scales != nil {
			copy(s.Input(region()), t.Scales)
		}
	}
	if err := s.Run(); err != nil {
		return nil, err
	}
	out := map[string]*eval.Tensor{}
	next = 0
	part := func(slice plan.Slice) ([]byte, error) {
		b := s.Output(next)
		if next++; b != nil {
			return b, nil
		}
		m, err := g.memory(slice, st)
		if err != nil {
			return nil, err
		}
		b = stage(&g.staging, slice.Bytes)
		return b, m.Read(slice.Offset, b)
	}
	for i := range g.p.Outputs {
		o := &g.p.Outputs[i]
		t, err := eval.New(g.types[o.Name])
		if err != nil {
			return nil, err
		}
		b, err := part(o.Data)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		if err := t.Decode(b); err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		if o.Scales != nil {
			if b, err = part(*o.Scales); err != nil {
				return nil, fmt.Errorf("output %s: %w", o.Name, err)
			}
			copy(t.Scales, b)
		}
		out[o.Name] = t
	}
	return out, nil
}
