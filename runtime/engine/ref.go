package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Ref is the oracle as an Executor: it evaluates the graphs themselves.
type Ref struct {
	entries  map[string]*ir.Graph
	consts   *eval.Consts
	programs map[string]*eval.Program
}

// NewRef binds weights to the entries, after BindPack.
func NewRef(entries []*ir.Graph, pack *ir.Graph, weights eval.WeightSource) (*Ref, error) {
	src, err := BindPack(pack, weights)
	if err != nil {
		return nil, err
	}
	r := &Ref{entries: map[string]*ir.Graph{}, consts: eval.NewConsts(src), programs: map[string]*eval.Program{}}
	for _, g := range entries {
		if r.entries[g.Name] != nil {
			return nil, fmt.Errorf("entry %q is given twice", g.Name)
		}
		r.entries[g.Name] = g
	}
	return r, nil
}

// Device implements Executor.
func (r *Ref) Device() string { return "ref" }

// Has implements Executor.
func (r *Ref) Has(entry string) bool { return r.entries[entry] != nil }

func (r *Ref) graph(entry string) (*ir.Graph, error) {
	g, ok := r.entries[entry]
	if !ok {
		return nil, fmt.Errorf("no entry %q: have %v", entry, slices.Sorted(maps.Keys(r.entries)))
	}
	return g, nil
}

// Run implements Executor. Each binding is compiled once.
func (r *Ref) Run(entry string, bind map[string]int, inputs Tensors, state State) (Tensors, error) {
	pools, ok := state.(Tensors)
	if !ok && state != nil { // nil: an entry without state
		return nil, fmt.Errorf("ref: the state was made by another device (%T)", state)
	}
	key := entry
	for _, s := range slices.Sorted(maps.Keys(bind)) {
		key += fmt.Sprintf(" %s=%d", s, bind[s])
	}
	g, err := r.graph(entry)
	if err != nil {
		return nil, err
	}
	if len(pools) > len(g.States) { // made for an entry that has others as well
		own := Tensors{}
		for _, v := range g.States {
			own[v.Name] = pools[v.Name]
		}
		pools = own
	}
	p := r.programs[key]
	if p == nil {
		bound, err := ir.Bind(g, bind)
		if err != nil {
			return nil, err
		}
		if p, err = eval.Compile(bound, r.consts); err != nil {
			return nil, err
		}
		r.programs[key] = p
	}
	return p.Run(inputs, pools)
}

// NewState implements Executor.
func (r *Ref) NewState(entry string, bind map[string]int) (State, error) {
	g, err := r.graph(entry)
	if err != nil {
		return nil, err
	}
	env := map[string]ir.Dim{}
	for s, n := range bind {
		env[s] = ir.Int(n)
	}
	state := Tensors{}
	for _, s := range g.States {
		dims := make([]ir.Dim, s.Type.Rank())
		for i, d := range s.Type.Dims {
			dims[i] = d.Subst(env)
		}
		if state[s.Name], err = eval.New(s.Type.With(dims...)); err != nil {
			return nil, fmt.Errorf("state %s: %w", s, err)
		}
	}
	return state, nil
}

// Fit implements Executor: the oracle runs any shape.
func (r *Ref) Fit(_ string, s Shape) (Shape, error) { return s, nil }

// refChunk bounds the memory of a long prompt on the oracle.
const refChunk = 32

// MaxPrefill implements Executor.
func (r *Ref) MaxPrefill() int { return refChunk }
