package device

import (
	"context"
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

// BindWeights copies the module's weights to the device. progress, if not nil, hears
// how many bytes of how many are on their way. After an error, as when the context is
// done, the model has the weights that it had before.
func (m *Model) BindWeights(ctx context.Context, src eval.WeightSource, progress func(done, total int64)) error {
	var list []loading
	err := func() error {
		for _, w := range m.mod.Weights[len(m.weights):] {
			t, err := ParseType(w.Type)
			if err == nil {
				l := loading{name: w.Name}
				if l.memory, err = allocate(m.dev, t); err == nil {
					list = append(list, l)
				}
			}
			if err != nil {
				return fmt.Errorf("weight %s: %w", w.Name, err)
			}
		}
		l, err := newLoader(m.dev, list, src, progress)
		if err != nil {
			return err
		}
		return errors.Join(l.run(ctx), l.close())
	}()
	for _, l := range list {
		if err != nil {
			err = errors.Join(err, l.memory.free())
			continue
		}
		m.weights = append(m.weights, l.memory)
	}
	return err
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
