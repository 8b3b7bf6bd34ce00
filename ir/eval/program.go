package eval

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// WeightSource gives weights by graph name. The tensor must have the declared
// type; it is not modified.
type WeightSource interface {
	Weight(name string, t ir.Type) (*Tensor, error)
}

// Consts keeps weight-only values between programs of one model, so that the
// programs of different step sizes share one dequantised copy of each weight.
// It is not safe for concurrent use.
type Consts struct {
	weights WeightSource
	values  map[string]*Tensor // by constant expression
	raw     map[string]*Tensor // by weight name and type
	exprs   map[string]int     // numbers of constant ops, by op, attributes and operand keys
}

// NewConsts makes an empty store over weights.
func NewConsts(w WeightSource) *Consts {
	return &Consts{weights: w, values: map[string]*Tensor{}, raw: map[string]*Tensor{}, exprs: map[string]int{}}
}

// Program is a graph ready to run: primitives in order, each with its kernel,
// weight-only values already computed.
type Program struct {
	graph  *ir.Graph
	steps  []step
	consts []constSlot
	slots  int
	kept   []int // slots whose storage outputs need to the end
	slot   map[*ir.Value]int
	pool   bufferPool
}

type step struct {
	op      *ir.Op
	run     kernel
	view    bool
	inPlace bool // a scatter into a state pool
	args    []int
	results []int
	dies    []int // slots whose storage is free after this step
}

type constSlot struct {
	slot  int
	value *Tensor
}

// Compile prepares g, whose symbols must all be bound.
func Compile(g *ir.Graph, c *Consts) (*Program, error) {
	if len(g.Syms) > 0 {
		return nil, fmt.Errorf("graph @%s: symbols %s are not bound", g.Name, strings.Join(g.Syms, ", "))
	}
	e, err := ir.Expand(g)
	if err != nil {
		return nil, err
	}
	p := &Program{graph: e, slot: map[*ir.Value]int{}}
	k := &compiler{p: p, consts: c, keys: map[*ir.Value]string{}, memo: map[*ir.Value]*Tensor{}}
	for _, list := range [][]*ir.Value{e.Inputs, e.States} {
		for _, v := range list {
			p.newSlot(v)
		}
	}
	for _, w := range e.Weights {
		k.keys[w] = w.String() + ":" + w.Type.String()
	}
	for _, op := range e.Ops {
		if err := k.op(op); err != nil {
			return nil, fmt.Errorf("graph @%s: %s: %s: %w", g.Name, op.Where(), op.Def.Name, err)
		}
	}
	for _, o := range e.Outputs {
		if err := k.need(o.Value); err != nil {
			return nil, fmt.Errorf("graph @%s: output %s: %w", g.Name, o.Name, err)
		}
	}
	p.liveness()
	return p, nil
}

func (p *Program) newSlot(v *ir.Value) int {
	p.slot[v] = p.slots
	p.slots++
	return p.slots - 1
}

type compiler struct {
	p      *Program
	consts *Consts
	keys   map[*ir.Value]string  // constant values: their expression
	memo   map[*ir.Value]*Tensor // constants computed during this compile
}

// op adds a step, or records a constant expression.
func (k *compiler) op(op *ir.Op) error {
	ev, ok := evaluators[op.Def.Name]
	if !ok {
		return fmt.Errorf("no evaluator")
	}
	isConst := true
	for _, a := range op.Args {
		if _, ok := k.keys[a]; !ok {
			isConst = false
		}
	}
	if isConst {
		k.constKey(op)
		return nil
	}
	s := step{op: op, view: ev.view}
	if ev.view && k.p.writes(op.Args[0]) {
		s.view, s.run = false, func(in, out []*Tensor) error { copyStores(out[0], in[0]); return nil }
	}
	for _, a := range op.Args {
		if err := k.need(a); err != nil {
			return err
		}
		s.args = append(s.args, k.p.slot[a])
	}
	if !ev.view {
		var err error
		if s.run, err = ev.make(op); err != nil {
			return err
		}
	}
	s.inPlace = op.Def.Name == "scatter_rows" && stateOf(op.Args[0]) != nil
	for _, r := range op.Results {
		s.results = append(s.results, k.p.newSlot(r))
	}
	k.p.steps = append(k.p.steps, s)
	return nil
}

// stateOf is the pool that v is, or is the result of a chain of writes to, or
// nil; the verifier has shown that no old value is read after a write.
func stateOf(v *ir.Value) *ir.Value {
	for v.Kind == ir.OpResult && v.Op.Def.Name == "scatter_rows" {
		v = v.Op.Args[0]
	}
	if v.Kind == ir.StateValue {
		return v
	}
	return nil
}

// writes reports whether the graph writes the pool that v is. A reshape of such
// a pool is a copy, since as a value of its own it may be read after the write.
func (p *Program) writes(v *ir.Value) bool {
	pool := stateOf(v)
	return pool != nil && slices.ContainsFunc(p.graph.Updates, func(u ir.Update) bool { return u.State == pool })
}

// constKey names the results of a constant op. The op's number stands for its
// text: texts would double where an operand is used twice.
func (k *compiler) constKey(op *ir.Op) {
	var b strings.Builder
	b.WriteString(op.Def.Name)
	for _, a := range op.Attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Val)
	}
	b.WriteByte('(')
	for _, a := range op.Args {
		b.WriteString(k.keys[a])
		b.WriteByte(',')
	}
	b.WriteByte(')')
	n, ok := k.consts.exprs[b.String()]
	if !ok {
		n = len(k.consts.exprs)
		k.consts.exprs[b.String()] = n
	}
	for i, r := range op.Results {
		k.keys[r] = fmt.Sprintf("%d#%d", n, i)
	}
}

// need gives v a slot; a constant is computed when something needs it.
func (k *compiler) need(v *ir.Value) error {
	if _, ok := k.p.slot[v]; ok {
		return nil
	}
	key := k.keys[v]
	t := k.consts.values[key]
	if t == nil {
		var err error
		if t, err = k.constant(v); err != nil {
			return err
		}
		k.consts.values[key] = t
	}
	k.p.consts = append(k.p.consts, constSlot{k.p.newSlot(v), t})
	return nil
}

// constant evaluates a weight-only value.
func (k *compiler) constant(v *ir.Value) (*Tensor, error) {
	if t, ok := k.consts.values[k.keys[v]]; ok {
		return t, nil
	}
	if t, ok := k.memo[v]; ok {
		return t, nil
	}
	if v.Kind == ir.WeightValue {
		return k.consts.weight(v)
	}
	op := v.Op
	in := make([]*Tensor, len(op.Args))
	for i, a := range op.Args {
		t, err := k.constant(a)
		if err != nil {
			return nil, err
		}
		in[i] = t
	}
	ev := evaluators[op.Def.Name]
	out := make([]*Tensor, len(op.Results))
	for i, r := range op.Results {
		if ev.view {
			out[i] = viewOf(in[0], r)
			continue
		}
		t, err := New(r.Type)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	if !ev.view {
		if op.Def.Name == "scatter_rows" {
			copyStores(out[0], in[0])
		}
		run, err := ev.make(op)
		if err == nil {
			err = run(in, out)
		}
		if err != nil {
			return nil, fmt.Errorf("constant %s: %w", op.Def.Name, err)
		}
	}
	for i, r := range op.Results {
		k.memo[r] = out[i]
	}
	return out[v.Index], nil
}

func (c *Consts) weight(v *ir.Value) (*Tensor, error) {
	key := v.Name + ":" + v.Type.String()
	if t, ok := c.raw[key]; ok {
		return t, nil
	}
	if c.weights == nil {
		return nil, fmt.Errorf("weight %s: no weights are bound", v)
	}
	t, err := c.weights.Weight(v.Name, v.Type)
	if err == nil && t == nil {
		err = errors.New("the source gives no tensor")
	}
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", v, err)
	}
	if !t.Type().Equal(v.Type) {
		return nil, fmt.Errorf("weight %s is %s, the graph wants %s", v, t.Type(), v.Type)
	}
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("weight %s: %w", v, err)
	}
	c.raw[key] = t
	return t, nil
}

// viewOf is t under the shape of v.
func viewOf(t *Tensor, v *ir.Value) *Tensor {
	c := *t
	c.Shape = shapeOf(v)
	return &c
}

// liveness finds, for each step, the slots that nothing reads afterwards. A
// view shares storage with its operand, so both count as one.
func (p *Program) liveness() {
	root := make([]int, p.slots)
	for i := range root {
		root[i] = i
	}
	owned := make([]bool, p.slots) // storage that the program allocates
	last := make([]int, p.slots)
	for i, s := range p.steps {
		for _, a := range s.args {
			last[root[a]] = i
		}
		for _, r := range s.results {
			if s.view || s.inPlace {
				root[r] = root[s.args[0]]
			} else {
				owned[r] = true
			}
			last[root[r]] = i
		}
	}
	for _, o := range p.graph.Outputs {
		if slot := root[p.slot[o.Value]]; owned[slot] {
			owned[slot] = false
			p.kept = append(p.kept, slot)
		}
	}
	for slot, own := range owned {
		if own && root[slot] == slot {
			s := &p.steps[last[slot]]
			s.dies = append(s.dies, slot)
		}
	}
}

// Run evaluates the program. Inputs must have the declared types; states are
// updated in place, and after an error their content is undefined. Outputs are
// the caller's own. Run reuses storage of earlier runs, so one program runs one
// call at a time.
func (p *Program) Run(inputs, states map[string]*Tensor) (map[string]*Tensor, error) {
	vals := make([]*Tensor, p.slots)
	bind := func(list []*ir.Value, given map[string]*Tensor, what string) error {
		for _, v := range list {
			t := given[v.Name]
			if t == nil {
				return fmt.Errorf("graph @%s: %s %s is missing", p.graph.Name, what, v)
			}
			if !t.Type().Equal(v.Type) {
				return fmt.Errorf("graph @%s: %s %s is %s, want %s", p.graph.Name, what, v, t.Type(), v.Type)
			}
			if err := t.Check(); err != nil {
				return fmt.Errorf("graph @%s: %s %s: %w", p.graph.Name, what, v, err)
			}
			vals[p.slot[v]] = t
		}
		if len(given) > len(list) {
			for _, name := range sortedKeys(given) {
				if !declares(list, name) {
					return fmt.Errorf("graph @%s: %s %q is not declared", p.graph.Name, what, name)
				}
			}
		}
		return nil
	}
	if err := bind(p.graph.Inputs, inputs, "input"); err != nil {
		return nil, err
	}
	if err := bind(p.graph.States, states, "state"); err != nil {
		return nil, err
	}
	for _, c := range p.consts {
		vals[c.slot] = c.value
	}
	for i := range p.steps {
		s := &p.steps[i]
		if err := p.step(s, vals); err != nil {
			return nil, fmt.Errorf("graph @%s: %s: %s: %w", p.graph.Name, s.op.Where(), s.op.Def.Name, err)
		}
	}
	out := p.outputs(vals)
	for _, slot := range p.kept {
		p.pool.put(vals[slot])
	}
	return out, nil
}

func (p *Program) step(s *step, vals []*Tensor) error {
	in := make([]*Tensor, len(s.args))
	for i, a := range s.args {
		in[i] = vals[a]
	}
	out := make([]*Tensor, len(s.results))
	for i, r := range s.op.Results {
		switch {
		case s.view:
			out[i] = viewOf(in[0], r)
		case s.inPlace:
			out[i] = in[0]
		default:
			out[i] = p.pool.get(r)
			if s.op.Def.Name == "scatter_rows" {
				copyStores(out[i], in[0])
			}
		}
		vals[s.results[i]] = out[i]
	}
	if !s.view {
		if err := s.run(in, out); err != nil {
			return err
		}
	}
	for _, d := range s.dies {
		p.pool.put(vals[d])
		vals[d] = nil
	}
	return nil
}

func copyStores(dst, src *Tensor) {
	copy(dst.F, src.F)
	copy(dst.I, src.I)
	copy(dst.Codes, src.Codes)
	copy(dst.Scales, src.Scales)
}

// outputs copies the results, so that the caller owns what it gets.
func (p *Program) outputs(vals []*Tensor) map[string]*Tensor {
	out := make(map[string]*Tensor, len(p.graph.Outputs))
	for _, o := range p.graph.Outputs {
		out[o.Name] = vals[p.slot[o.Value]].Clone()
	}
	return out
}
