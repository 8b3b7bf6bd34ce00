package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// State is a set of pools in device memory.
type State struct {
	dev   Device
	names []string // in the order in which they were made
	pools map[string]stored
	users []*Program // that have a sequence for this state
}

// NewState makes zeroed pools for a plan of the model.
func (m *Model) NewState(p *plan.Plan) (*State, error) {
	s := &State{dev: m.dev, pools: map[string]stored{}}
	for _, i := range p.States {
		t := m.mod.States[i]
		typ, err := ParseType(t.Type)
		if err == nil {
			err = s.add(t.Name, typ)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("state %s: %w", t.Name, err), s.Close())
		}
	}
	return s, nil
}

// NewState makes zeroed pools for a graph's states with their symbols bound.
func NewState(dev Device, states []*ir.Value, bind map[string]ir.Dim) (*State, error) {
	s := &State{dev: dev, pools: map[string]stored{}}
	for _, v := range states {
		dims := make([]ir.Dim, v.Type.Rank())
		for i, d := range v.Type.Dims {
			dims[i] = d.Subst(bind)
		}
		if err := s.add(v.Name, v.Type.With(dims...)); err != nil {
			return nil, errors.Join(fmt.Errorf("state %s: %w", v, err), s.Close())
		}
	}
	return s, nil
}

func (s *State) add(name string, t ir.Type) error {
	n, ok := t.Size()
	if !ok {
		return fmt.Errorf("%s is not bound", t)
	}
	m, err := s.dev.Alloc(t.DType.Bytes(n))
	if err != nil {
		return err
	}
	s.names = append(s.names, name)
	s.pools[name] = stored{typ: t, parts: [2]Memory{m}}
	return m.Zero()
}

// Close frees the pools, and what programs have prepared for them.
func (s *State) Close() error {
	var errs []error
	for len(s.users) > 0 {
		errs = append(errs, s.users[0].release(s))
	}
	for _, name := range s.names {
		errs = append(errs, s.pools[name].free())
	}
	s.names, s.pools = nil, nil
	return errors.Join(errs...)
}

// Names lists the pools, in the order in which they were made.
func (s *State) Names() []string { return slices.Clone(s.names) }

// Bytes is a copy of a pool's memory, for tests that look at every byte.
func (s *State) Bytes(name string) ([]byte, error) {
	p, ok := s.pools[name]
	if !ok {
		return nil, fmt.Errorf("no state pool %q", name)
	}
	b := make([]byte, p.parts[0].Size())
	return b, p.parts[0].Read(0, b)
}

// SetBytes overwrites a pool's memory.
func (s *State) SetBytes(name string, b []byte) error {
	p, ok := s.pools[name]
	if !ok || int64(len(b)) != p.parts[0].Size() {
		return fmt.Errorf("state pool %q is not one of %d bytes", name, len(b))
	}
	return p.parts[0].Write(0, b)
}

// Pool reads a pool back.
func (s *State) Pool(name string) (*eval.Tensor, error) {
	p, ok := s.pools[name]
	if !ok {
		return nil, fmt.Errorf("no state pool %q", name)
	}
	t, err := eval.New(p.typ)
	if err != nil {
		return nil, err
	}
	var staging []byte
	if err := read(p.parts[0], 0, t, &staging); err != nil {
		return nil, fmt.Errorf("state pool %q: %w", name, err)
	}
	return t, nil
}

// SetPool overwrites a pool.
func (s *State) SetPool(name string, t *eval.Tensor) error {
	p, ok := s.pools[name]
	if !ok || !p.typ.Equal(t.Type()) {
		return fmt.Errorf("state pool %q is %s, not %s", name, p.typ, t.Type())
	}
	var staging []byte
	return write(p.parts[0], 0, t, &staging)
}

// Size is the bytes of all pools.
func (s *State) Size() int64 {
	var n int64
	for _, name := range s.names {
		n += s.pools[name].parts[0].Size()
	}
	return n
}
