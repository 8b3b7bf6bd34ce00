package host

import (
	"bytes"
	"fmt"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// Device is one loaded library with bound weights.
type Device struct {
	lib     *Library
	mod     *plan.Module
	team    *team
	weights []stored // parallel to mod.Weights
	arena   memory
}

// stored is a tensor in device memory: data, and scales if block scaled.
type stored struct {
	typ   ir.Type
	parts [2]memory
}

// NewDevice makes a device over a loaded library and the module that it was
// compiled with. It takes over the library.
func NewDevice(lib *Library, mod *plan.Module) *Device {
	return &Device{lib: lib, mod: mod, team: newTeam()}
}

// Close frees the device's memory and unloads the library.
func (d *Device) Close() error {
	d.team.close()
	for _, w := range d.weights {
		w.parts[0].free()
		w.parts[1].free()
	}
	d.arena.free()
	return d.lib.Close()
}

// put copies a tensor into device memory.
func put(t *eval.Tensor) (stored, error) {
	s := stored{typ: t.Type()}
	var err error
	if s.parts[0], err = allocate(t.DType.Bytes(t.Len())); err != nil {
		return s, err
	}
	if err := store(s.parts[0].bytes, t); err != nil || t.Quant == nil {
		return s, err
	}
	if s.parts[1], err = allocate(int64(len(t.Scales))); err == nil {
		copy(s.parts[1].bytes, t.Scales)
	}
	return s, err
}

// BindWeights copies the module's weights into device memory.
func (d *Device) BindWeights(src eval.WeightSource) error {
	for _, w := range d.mod.Weights[len(d.weights):] {
		s, err := bindWeight(w, src)
		if err != nil {
			return fmt.Errorf("weight %s: %w", w.Name, err)
		}
		d.weights = append(d.weights, s)
	}
	return nil
}

func bindWeight(w plan.Storage, src eval.WeightSource) (stored, error) {
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
	return put(x)
}

// finiteCodes refuses NaN codes in 8-bit weights: kernels decode OCP's without
// looking (kernel.LoadWeight), and e4m3fnuz has them only where a checkpoint had
// them. A NaN scale of e4m3fnuz may stand for one that had no double.
func finiteCodes(t *eval.Tensor) error {
	if t.Quant == nil || t.DType != ir.F8E4M3 && t.DType != ir.F8E4M3FNUZ {
		return nil
	}
	fnuz := t.DType == ir.F8E4M3FNUZ
	for i, c := range t.Codes {
		if fnuz && c == 0x80 || !fnuz && c&0x7F == 0x7F {
			return fmt.Errorf("element %d is NaN (code %#02x)", i, c)
		}
	}
	if at := bytes.IndexByte(t.Scales, num.ScaleNaN); fnuz && at >= 0 {
		return fmt.Errorf("block scale %d is NaN, or 2^127 before it was doubled for e4m3fnuz", at)
	}
	return nil
}

// State is a set of pools in device memory.
type State struct{ pools map[string]stored }

// NewState makes zeroed pools for a plan.
func (d *Device) NewState(p *plan.Plan) (*State, error) {
	s := &State{pools: map[string]stored{}}
	for _, i := range p.States {
		t := d.mod.States[i]
		typ, err := parseType(t.Type)
		if err == nil {
			err = s.add(t.Name, typ)
		}
		if err != nil {
			return nil, fmt.Errorf("state %s: %w", t.Name, err)
		}
	}
	return s, nil
}

// NewStateOf makes zeroed pools for a graph's states with their symbols bound.
func NewStateOf(states []*ir.Value, bind map[string]ir.Dim) (*State, error) {
	s := &State{pools: map[string]stored{}}
	for _, v := range states {
		dims := make([]ir.Dim, v.Type.Rank())
		for i, d := range v.Type.Dims {
			dims[i] = d.Subst(bind)
		}
		if err := s.add(v.Name, v.Type.With(dims...)); err != nil {
			return nil, fmt.Errorf("state %s: %w", v, err)
		}
	}
	return s, nil
}

func (s *State) add(name string, t ir.Type) error {
	n, ok := t.Size()
	if !ok {
		return fmt.Errorf("%s is not bound", t)
	}
	m, err := allocate(t.DType.Bytes(n))
	s.pools[name] = stored{typ: t, parts: [2]memory{m}}
	return err
}

// Close frees the pools.
func (s *State) Close() {
	for _, p := range s.pools {
		p.parts[0].free()
	}
}

// Bytes is a pool's memory, for tests that look at every byte.
func (s *State) Bytes(name string) []byte { return s.pools[name].parts[0].bytes }

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
	load(t, p.parts[0].bytes)
	return t, nil
}

// SetPool overwrites a pool.
func (s *State) SetPool(name string, t *eval.Tensor) error {
	p, ok := s.pools[name]
	if !ok || !p.typ.Equal(t.Type()) {
		return fmt.Errorf("state pool %q is %s, not %s", name, p.typ, t.Type())
	}
	return store(p.parts[0].bytes, t)
}

// Program is a plan bound to a device.
type Program struct {
	d       *Device
	p       *plan.Plan
	kernels []uintptr
	args    memory // all launches' argument words, one block after the other
	at      []int  // first word of each launch
	state   *State // whose addresses the argument words hold
	arena   uintptr
	types   map[string]ir.Type // inputs and outputs
}

// Load prepares a plan: its kernels, its weights (BindWeights first), its
// argument blocks.
func (d *Device) Load(p *plan.Plan) (*Program, error) {
	if err := d.mod.CheckPlan(p); err != nil {
		return nil, err
	}
	g := &Program{d: d, p: p, types: map[string]ir.Type{}}
	words := 0
	for _, l := range p.Launches {
		f, err := d.lib.kernel(d.mod.Kernels[l.Kernel].Symbol)
		if err != nil {
			return nil, err
		}
		g.kernels = append(g.kernels, f)
		g.at = append(g.at, words)
		words += len(l.Args)
	}
	for _, list := range [][]plan.Tensor{p.Inputs, p.Outputs} {
		for _, t := range list {
			typ, err := parseType(t.Type)
			if err != nil {
				return nil, fmt.Errorf("plan %s: %s: %w", p.Entry, t.Name, err)
			}
			g.types[t.Name] = typ
		}
	}
	if int64(len(d.arena.bytes)) < p.Arena {
		d.arena.free()
		var err error
		if d.arena, err = allocate(p.Arena); err != nil {
			return nil, err
		}
	}
	var err error
	g.args, err = allocate(int64(words) * 8)
	return g, err
}

// Close frees the program's argument blocks.
func (g *Program) Close() { g.args.free() }

// region is the memory of a slice.
func (g *Program) region(s plan.Slice, st *State) ([]byte, error) {
	m, name := g.d.arena, "arena"
	switch s.Space {
	case plan.State:
		name = g.d.mod.States[s.Index].Name
		m = st.pools[name].parts[s.Part]
	case plan.Weight:
		name = g.d.mod.Weights[s.Index].Name
		if s.Index >= len(g.d.weights) {
			return nil, fmt.Errorf("plan %s: weight %s is not bound", g.p.Entry, name)
		}
		m = g.d.weights[s.Index].parts[s.Part]
	}
	if int64(len(m.bytes)) < s.Offset+s.Bytes {
		return nil, fmt.Errorf("plan %s: %s has %d bytes, a slice ends at %d", g.p.Entry, name, len(m.bytes), s.Offset+s.Bytes)
	}
	return m.bytes[s.Offset : s.Offset+s.Bytes], nil
}

// address fills the argument words for a state's pools.
func (g *Program) address(st *State) error {
	g.state = nil // until all words are new
	w := g.args.words()
	for i, l := range g.p.Launches {
		for j, a := range l.Args {
			if a.Mode == "" {
				w[g.at[i]+j] = a.Int
				continue
			}
			b, err := g.region(a.Buf, st)
			if err != nil {
				return err
			}
			w[g.at[i]+j] = int64(memory{b}.address())
		}
	}
	g.state, g.arena = st, g.d.arena.address()
	return nil
}

// Run executes the plan. States are updated in place.
func (g *Program) Run(inputs map[string]*eval.Tensor, st *State) (map[string]*eval.Tensor, error) {
	if g.state != st || g.arena != g.d.arena.address() {
		if err := g.address(st); err != nil {
			return nil, err
		}
	}
	for _, in := range g.p.Inputs {
		t, ok := inputs[in.Name]
		if !ok {
			return nil, fmt.Errorf("plan %s: input %s is missing", g.p.Entry, in.Name)
		}
		if !t.Type().Equal(g.types[in.Name]) {
			return nil, fmt.Errorf("plan %s: input %s is %s, want %s", g.p.Entry, in.Name, t.Type(), in.Type)
		}
		b, err := g.region(in.Data, st)
		if err != nil {
			return nil, err
		}
		if err := store(b, t); err != nil {
			return nil, fmt.Errorf("plan %s: input %s: %w", g.p.Entry, in.Name, err)
		}
		if in.Scales != nil {
			if b, err = g.region(*in.Scales, st); err != nil {
				return nil, err
			}
			copy(b, t.Scales)
		}
	}
	for i := range g.p.Launches {
		l := &g.p.Launches[i]
		g.d.team.run(g.kernels[i], g.args.address()+uintptr(8*g.at[i]), l.Grid, l.Work)
	}
	out := map[string]*eval.Tensor{}
	for _, o := range g.p.Outputs {
		t, err := eval.New(g.types[o.Name])
		if err != nil {
			return nil, err
		}
		b, err := g.region(o.Data, st)
		if err != nil {
			return nil, err
		}
		load(t, b)
		if o.Scales != nil {
			if b, err = g.region(*o.Scales, st); err != nil {
				return nil, err
			}
			copy(t.Scales, b)
		}
		out[o.Name] = t
	}
	return out, nil
}
