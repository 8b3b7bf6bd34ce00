package device

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/codegen/plan"
)

// Sibling loads other code over the weights of a model, which must be bound. Its
// programs have an arena of their own. It is closed before the model.
func (m *Model) Sibling(code []byte, mod *plan.Module) (*Model, error) {
	at := map[string]int{}
	for i, w := range m.mod.Weights {
		at[w.Name] = i
	}
	weights := make([]stored, len(mod.Weights))
	for i, w := range mod.Weights {
		j, ok := at[w.Name]
		switch {
		case !ok || m.mod.Weights[j] != w:
			return nil, fmt.Errorf("weight %s is not one of the model's", w.Name)
		case j >= len(m.weights):
			return nil, fmt.Errorf("weight %s is not bound", w.Name)
		}
		weights[i] = m.weights[j]
	}
	s, err := NewModel(m.dev, code, mod)
	if err != nil {
		return nil, err
	}
	s.weights, s.borrowed = weights, true
	return s, nil
}

// Sibling loads other code over the weights that are bound. It is closed before the
// executor.
func (x *Executor) Sibling(code []byte, mod *plan.Module) (*Model, error) {
	return x.m.Sibling(code, mod)
}

// Replace runs other plans from now on, over the same weights: those of a module that
// computes the same. States that were made before must have been closed. When the
// plans cannot be loaded, the executor is as before.
func (x *Executor) Replace(code []byte, mod *plan.Module) error {
	s, err := x.m.Sibling(code, mod)
	if err != nil {
		return err
	}
	programs, err := s.loadAll(mod.Plans)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	// The weights stay with the model that they were bound to.
	if x.owner == nil {
		x.owner = x.m
		err = x.m.releasePrograms()
	} else {
		err = x.m.Close()
	}
	x.m, x.plans, x.programs = s, mod.Plans, programs
	return err
}
