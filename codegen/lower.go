package codegen

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Unit collects the kernels of all entries compiled for one target.
type Unit struct {
	Target  *target.Target
	Disable map[string]bool // kernel forms that must not be chosen
	// Kernels in the order of first use.
	Kernels []*Kernel
	symbols map[string]*Kernel // by form, spec and parameter formats
}

// Kernel is one kernel of a unit.
type Kernel struct {
	Symbol string
	Form   string
	Spec   string
	IR     string // LLVM IR of a module that holds just this kernel
}

// NewUnit starts a unit.
func NewUnit(t *target.Target) *Unit {
	return &Unit{Target: t, Disable: map[string]bool{}, symbols: map[string]*Kernel{}}
}

// Lower turns a bound graph into a plan: it selects a kernel form for every op,
// decomposes the composites that no form takes, and lays out memory.
func (u *Unit) Lower(g *ir.Graph, binding []plan.Binding) (*plan.Plan, error) {
	l := &lowerer{u: u, values: map[*ir.Value]value{}, written: map[*ir.Value]bool{}}
	for _, up := range g.Updates {
		l.written[up.State] = true
	}
	p := &plan.Plan{Version: plan.Version, Entry: g.Name, Target: u.Target.Name, Binding: binding}
	if len(g.Syms) > 0 {
		return nil, fmt.Errorf("graph @%s: symbols %s are not bound", g.Name, strings.Join(g.Syms, ", "))
	}
	for _, v := range g.Inputs {
		l.define(v, plan.Arena, "")
	}
	for _, v := range g.States {
		l.define(v, plan.State, v.Name)
	}
	for _, v := range g.Weights {
		l.define(v, plan.Weight, v.Name)
	}
	for _, op := range g.Ops {
		if err := l.op(op); err != nil {
			return nil, fmt.Errorf("graph @%s: %s: %s: %w", g.Name, op.Where(), op.Def.Name, err)
		}
	}
	l.finish(g, p)
	if l.err != nil {
		return nil, l.err
	}
	return p, p.Check()
}

// value is the storage of a graph value.
type value struct {
	data, scales int // buffer ids; scales -1 if there are none
}

// buffer is a piece of memory before it has an address.
type buffer struct {
	dt    ir.DType
	space plan.Space
	name  string
	part  int
	bytes int64
	// Arena buffers: launches between which the content matters.
	first, last int
	offset      int64
}

type lowerer struct {
	u        *Unit
	bufs     []buffer
	values   map[*ir.Value]value
	written  map[*ir.Value]bool // states that the graph updates
	launches []plan.Launch
	args     [][]argRef // per launch, parallel to Args
	form     string     // of the op being lowered
	cur      *ir.Op
	err      error
}

type argRef struct {
	buf  int // -1: integer
	mode plan.Mode
}

func (l *lowerer) newBuffer(b buffer) int {
	b.first, b.last = len(l.launches), len(l.launches)-1
	l.bufs = append(l.bufs, b)
	return len(l.bufs) - 1
}

func (l *lowerer) define(v *ir.Value, space plan.Space, name string) value {
	n, _ := v.Type.Size()
	out := value{scales: -1}
	out.data = l.newBuffer(buffer{dt: v.Type.DType, space: space, name: name, bytes: v.Type.DType.Bytes(n)})
	if q := v.Type.Quant; q != nil {
		out.scales = l.newBuffer(buffer{dt: q.Scale, space: space, name: name, part: 1, bytes: int64(scaleCount(v.Type))})
	}
	l.values[v] = out
	return out
}

// scaleCount is the number of block scales of a bound type.
func scaleCount(t ir.Type) int {
	n := 1
	for i, d := range t.Dims {
		e, _ := d.Const()
		if j := i - (t.Rank() - 2); j >= 0 {
			b := t.Quant.Block[j]
			e = (e + b - 1) / b
		}
		n *= e
	}
	return n
}

// op lowers one op.
func (l *lowerer) op(op *ir.Op) error {
	switch {
	case op.Def.Name == "const":
		return nil // an immediate; Buf makes memory of it where a kernel needs that
	case op.Def.Name == "reshape" && !l.written[poolOf(op.Args[0])]:
		l.values[op.Results[0]] = l.operand(op.Args[0])
		return nil // of a pool that is written, it is a copy: it may be read after the write
	case op.Def.Table:
		return fmt.Errorf("makes a table from attributes alone: passes move it into the pack graph, which the evaluator runs; lower the graph that they leave")
	case op.Def.Name == "scatter_rows" && isPool(op.Args[0]):
		l.values[op.Results[0]] = l.operand(op.Args[0]) // in place
	}
	form, why := l.choose(op)
	if form == nil {
		if op.Def.Primitive() {
			return fmt.Errorf("no kernel form: %s", why)
		}
		return l.decompose(op)
	}
	for _, r := range op.Results {
		if _, done := l.values[r]; !done {
			l.define(r, plan.Arena, "")
		}
	}
	if err := l.lowerBy(form, op); err != nil {
		return err
	}
	return l.err
}

// lowerBy emits a form's launches; they carry its name and the op's. A form may
// need the memory of a constant, whose own form then runs in between.
func (l *lowerer) lowerBy(form *kernels.Form, op *ir.Op) error {
	saved, cur := l.form, l.cur
	l.form, l.cur = form.Name, op
	defer func() { l.form, l.cur = saved, cur }()
	return form.Lower(l, op)
}

// isPool reports whether v is a state pool or a value written over one.
func isPool(v *ir.Value) bool { return poolOf(v) != nil }

// poolOf is the state whose memory v shares, or nil.
func poolOf(v *ir.Value) *ir.Value {
	for v.Kind == ir.OpResult && v.Op.Def.Name == "scatter_rows" {
		v = v.Op.Args[0]
	}
	if v.Kind == ir.StateValue {
		return v
	}
	return nil
}

// choose returns the first form that takes op, or why none does.
func (l *lowerer) choose(op *ir.Op) (*kernels.Form, string) {
	why := "the library has none"
	for _, f := range kernels.For(op.Def.Name) {
		if l.u.Disable[f.Name] {
			why = f.Name + ": disabled"
			continue
		}
		if why = f.Match(op, l.u.Target); why == "" {
			return f, ""
		}
		why = f.Name + ": " + why
	}
	return nil, why
}

func (l *lowerer) decompose(op *ir.Op) error {
	ops, results, err := ir.Decompose(op)
	if err != nil {
		return err
	}
	for _, o := range ops {
		o.Loc, o.Pos = op.Loc, op.Pos
		if err := l.op(o); err != nil {
			return fmt.Errorf("%s: %w", o.Def.Name, err)
		}
	}
	for i, r := range results {
		l.values[op.Results[i]] = l.operand(r)
	}
	return nil
}

// operand is the storage of a value that is defined already; a constant gets
// memory now.
func (l *lowerer) operand(v *ir.Value) value {
	if s, ok := l.values[v]; ok {
		return s
	}
	if v.Op == nil || v.Op.Def.Name != "const" {
		l.fail("value %s has no storage", v)
		return value{scales: -1}
	}
	s := l.define(v, plan.Arena, "")
	form, why := l.choose(v.Op)
	if form == nil {
		l.fail("const: %s", why)
		return s
	}
	if err := l.lowerBy(form, v.Op); err != nil {
		l.fail("const: %v", err)
	}
	return s
}

func (l *lowerer) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
}

// The Lowering interface.

func (l *lowerer) Target() *target.Target { return l.u.Target }

func (l *lowerer) Buf(v *ir.Value) kernels.Ref {
	id := l.operand(v).data
	return kernels.Ref{ID: id, DT: l.bufs[id].dt}
}

func (l *lowerer) Scales(v *ir.Value) kernels.Ref {
	id := l.operand(v).scales
	if id < 0 {
		l.fail("value %s : %s has no scales", v, v.Type)
		id = 0
	}
	return kernels.Ref{ID: id, DT: l.bufs[id].dt}
}

func (l *lowerer) Scratch(dt ir.DType, n int) kernels.Ref {
	return kernels.Ref{ID: l.newBuffer(buffer{dt: dt, space: plan.Arena, bytes: dt.Bytes(n)}), DT: dt}
}

func (l *lowerer) Launch(k kernels.Launch) {
	params := make([]kernel.Param, 0, len(k.In)+len(k.Out)+len(k.Ints))
	pl := plan.Launch{Form: l.form, Op: l.cur.Def.Name, Loc: l.cur.Loc, Grid: k.Grid, Work: k.Work}
	var refs []argRef
	add := func(list []kernels.Ref, prefix string, mode plan.Mode) {
		for i, r := range list {
			params = append(params, kernel.Param{Name: fmt.Sprintf("%s%d", prefix, i), Mem: r.DT, Out: mode != plan.Read})
			b := &l.bufs[r.ID]
			if b.last < b.first && b.space == plan.Arena { // its first launch
				b.first = min(b.first, len(l.launches))
			}
			b.last = len(l.launches)
			refs = append(refs, argRef{r.ID, mode})
			pl.Args = append(pl.Args, plan.Arg{Mode: mode})
		}
	}
	add(k.In, "in", plan.Read)
	out := plan.Write
	if l.cur.Def.Name == "scatter_rows" && isPool(l.cur.Args[0]) {
		out = plan.Update
	}
	add(k.Out, "out", out)
	for i, n := range k.Ints {
		params = append(params, kernel.Param{Name: fmt.Sprintf("n%d", i)})
		refs = append(refs, argRef{buf: -1})
		pl.Args = append(pl.Args, plan.Arg{Int: int64(n)})
	}
	kn, err := l.u.kernel(l.form, k, params)
	if err != nil {
		l.fail("%v", err)
		return
	}
	pl.Kernel = kn.Symbol
	l.launches = append(l.launches, pl)
	l.args = append(l.args, refs)
}

// kernel returns the kernel of a launch, building it on first use.
func (u *Unit) kernel(form string, k kernels.Launch, params []kernel.Param) (*Kernel, error) {
	key := fmt.Sprintf("%s %s %s", form, k.Name, k.Spec)
	for _, p := range params {
		key += " " + p.Mem.String()
	}
	if kn, ok := u.symbols[key]; ok {
		return kn, nil
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	kn := &Kernel{Symbol: fmt.Sprintf("%s_%016x", k.Name, h.Sum64()), Form: form, Spec: key}
	for _, other := range u.Kernels {
		if other.Symbol == kn.Symbol {
			return nil, fmt.Errorf("kernels %q and %q have one symbol %s", other.Spec, key, kn.Symbol)
		}
	}
	m := kernel.NewModule(u.Target)
	if err := m.Build(kn.Symbol, params, k.Body); err != nil {
		return nil, err
	}
	kn.IR = m.Text()
	u.symbols[key] = kn
	u.Kernels = append(u.Kernels, kn)
	return kn, nil
}

// finish lays out the arena and fills in the plan.
func (l *lowerer) finish(g *ir.Graph, p *plan.Plan) {
	for _, o := range g.Outputs {
		l.operand(o.Value) // may launch: a constant gets its memory here
	}
	end := len(l.launches)
	for _, o := range g.Outputs {
		s := l.operand(o.Value)
		for _, id := range []int{s.data, s.scales} {
			if id >= 0 {
				l.bufs[id].last = end
			}
		}
	}
	for _, in := range g.Inputs {
		for _, id := range []int{l.values[in].data, l.values[in].scales} {
			if id >= 0 {
				l.bufs[id].first = -1
			}
		}
	}
	if l.err != nil {
		return
	}
	p.Arena = layout(l.bufs)
	tensor := func(name string, v *ir.Value) plan.Tensor {
		s := l.values[v]
		t := plan.Tensor{Name: name, Type: v.Type.String(), Data: l.slice(s.data)}
		if s.scales >= 0 {
			sc := l.slice(s.scales)
			t.Scales = &sc
		}
		return t
	}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, tensor(v.Name, v))
	}
	for _, o := range g.Outputs {
		p.Outputs = append(p.Outputs, tensor(o.Name, o.Value))
	}
	for _, v := range g.States {
		p.States = append(p.States, tensor(v.Name, v))
	}
	for _, v := range g.Weights {
		p.Weights = append(p.Weights, tensor(v.Name, v))
	}
	for i := range l.launches {
		for j, r := range l.args[i] {
			if r.buf >= 0 {
				s := l.slice(r.buf)
				l.launches[i].Args[j].Buf = &s
			}
		}
	}
	p.Launches = l.launches
}

func (l *lowerer) slice(id int) plan.Slice {
	b := &l.bufs[id]
	return plan.Slice{Space: b.space, Name: b.name, Part: b.part, Offset: b.offset, Bytes: b.bytes}
}
