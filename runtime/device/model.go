package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
)

// Model is a code object on a device, with weights and an arena that its programs
// share.
type Model struct {
	dev      Device
	mod      *plan.Module
	lib      Library
	weights  []stored // parallel to mod.Weights
	borrowed bool     // the weights are another model's
	arena    Memory   // nil before the first program
	programs []*Program
}

// NewModel loads the code of a module. The device stays the caller's: it may have
// several models.
func NewModel(dev Device, code []byte, mod *plan.Module) (*Model, error) {
	symbols := make([]string, len(mod.Kernels))
	for i, k := range mod.Kernels {
		symbols[i] = k.Symbol
	}
	lib, err := dev.Load(code, symbols)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", dev.Name(), err)
	}
	return &Model{dev: dev, mod: mod, lib: lib}, nil
}

// Close frees the model's programs and memory and unloads the code.
func (m *Model) Close() error {
	errs := []error{m.releasePrograms()}
	for _, w := range m.weights {
		if !m.borrowed {
			errs = append(errs, w.free())
		}
	}
	m.weights = nil
	if m.lib != nil {
		errs = append(errs, m.lib.Close())
		m.lib = nil
	}
	return errors.Join(errs...)
}

// releasePrograms frees the programs and their arena.
func (m *Model) releasePrograms() error {
	var errs []error
	for len(m.programs) > 0 {
		errs = append(errs, m.programs[0].Close())
	}
	if m.arena != nil {
		errs = append(errs, m.arena.Free())
		m.arena = nil
	}
	return errors.Join(errs...)
}

// BindWeights copies the module's weights to the device.
func (m *Model) BindWeights(src eval.WeightSource) error {
	for _, w := range m.mod.Weights[len(m.weights):] {
		s, err := m.bindWeight(w, src)
		if err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
		m.weights = append(m.weights, s)
	}
	return nil
}

func (m *Model) bindWeight(w plan.Storage, src eval.WeightSource) (stored, error) {
	t, err := parseType(w.Type)
	if err != nil {
		return stored{}, err
	}
	x, err := src.Weight(w.Name, t)
	if err != nil {
		return stored{}, err
	}
	if !x.Type().Equal(t) {
		return stored{}, fmt.Errorf("%s, the plans want %s", x.Type(), t)
	}
	if err := finiteCodes(x); err != nil {
		return stored{}, err
	}
	return put(m.dev, x)
}

// reserve makes the arena at least that large. Sequences that hold the address of
// a smaller one are made anew when they run next.
func (m *Model) reserve(bytes int64) error {
	if m.arena != nil && m.arena.Size() >= bytes {
		return nil
	}
	larger, err := m.dev.Alloc(bytes)
	if err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	old := m.arena
	m.arena = larger
	if old == nil {
		return nil
	}
	return old.Free()
}

// drop forgets a program.
func (m *Model) drop(g *Program) {
	m.programs = slices.DeleteFunc(m.programs, func(p *Program) bool { return p == g })
}
