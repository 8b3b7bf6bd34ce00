package codegen

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// SelectKernels implements passes.Backend: it chooses a kernel form for every op
// and has it emit its launches; composites that no form takes are decomposed.
func (u *Unit) SelectKernels(s *passes.Step) error {
	g := s.Graph
	if u.Interrupted != nil {
		if err := u.Interrupted(); err != nil {
			return err
		}
	}
	if len(g.Syms) > 0 {
		return fmt.Errorf("graph @%s: symbols %s are not bound", g.Name, strings.Join(g.Syms, ", "))
	}
	l := u.lowerer()
	l = &lowerer{ // kernels of the earlier step may be in the making: its maps stay
		u: u, bufs: l.bufs[:0], launches: l.launches[:0], args: l.args[:0], emitted: l.emitted[:0],
		refs: l.refs.again(), planArgs: l.planArgs.again(), users: l.users, requests: s.Bind["B"], set: s.Set,
		values: make(map[*ir.Value]value, len(g.Weights)+2*len(g.Ops)), written: make(map[*ir.Value]bool, len(g.Updates)),
		inline: map[*ir.Op]*ir.Op{}, chains: map[*ir.Op]inlined{}, early: map[*ir.Op]*ir.Op{}, done: map[*ir.Op]bool{},
	}
	for _, up := range g.Updates {
		l.written[up.State] = true
	}
	for _, v := range g.Inputs {
		l.define(v)
	}
	for _, v := range g.States {
		l.shared(plan.State, v)
	}
	for _, v := range g.Weights {
		l.shared(plan.Weight, v)
	}
	if l.err != nil {
		return fmt.Errorf("graph @%s: %w", g.Name, l.err)
	}
	kept := map[*ir.Value]bool{}
	for _, o := range g.Outputs {
		kept[o.Value] = true
	}
	for _, up := range g.Updates {
		kept[up.Value] = true
	}
	l.chain(g.Ops, kept)
	for _, op := range g.Ops {
		err := l.op(op)
		if err == nil {
			err = l.err
		}
		if err != nil {
			return fmt.Errorf("graph @%s: %s: %s: %w", g.Name, op.Where(), op.Def.Name, err)
		}
	}
	for _, o := range g.Outputs {
		l.operand(o.Value) // may launch: a constant gets its memory here
	}
	u.steps[s] = l
	return l.err
}

// slab is memory for many short lists that are dropped together.
type slab[T any] struct {
	all  []T // what is used again
	free []T
	size int // of all that was taken
}

// take returns an empty list with room for n.
func (s *slab[T]) take(n int) []T {
	if len(s.free) < n {
		s.free = make([]T, max(n, s.size, 1024))
	}
	list := s.free[:0:n]
	s.free, s.size = s.free[n:], s.size+n
	return list
}

// again is a slab with as much room as this one gave, whose lists nobody has any more.
func (s *slab[T]) again() slab[T] {
	if n := s.size + s.size/4; cap(s.all) < n {
		s.all = make([]T, n)
	}
	return slab[T]{free: s.all[:cap(s.all)], all: s.all}
}

// lowerer returns one whose lists have memory of an earlier step, if there is any.
func (u *Unit) lowerer() *lowerer {
	if l := u.spare; l != nil {
		u.spare = nil
		return l
	}
	return &lowerer{}
}

// value is the storage of a graph value.
type value struct {
	data, scales int // buffer ids; scales -1 if there are none
}

// buffer is a piece of memory before it has an address.
type buffer struct {
	dt    ir.DType
	space plan.Space
	index int // of a pool or weight
	part  int
	bytes int64
	what  string // which of the things that its op makes; "" for the only one
	// Arena buffers: launches between which the content matters.
	first, last int
	offset      int64
}

// lowerer turns one step into launches.
type lowerer struct {
	u        *Unit
	bufs     []buffer
	values   map[*ir.Value]value
	requests int                // of the step; 0 if it does not say
	set      map[string]int     // thresholds that the user set
	written  map[*ir.Value]bool // states that the graph updates
	inline   map[*ir.Op]*ir.Op  // elementwise ops that run inside of their only user
	chains   map[*ir.Op]inlined // what runs inside of an op
	early    map[*ir.Op]*ir.Op  // ops in whose place the one that they run inside of is lowered
	done     map[*ir.Op]bool    // ops that were lowered early
	launches []plan.Launch
	args     [][]argRef // per launch, parallel to Args
	emitted  []emitted  // per launch, what its kernel is made of
	refs     slab[argRef]
	planArgs slab[plan.Arg]
	users    map[*ir.Value][]*ir.Op // of chain

	// Of the op being lowered:
	cur      *ir.Op
	form     *kernels.Form
	rejected []plan.Rejected
	choices  []int // of its next launch

	err error
}

type argRef struct {
	buf  int // -1: integer
	mode plan.Mode
}

// emitted is a launch as its form gave it: joining launches comes before their kernels.
type emitted struct {
	kernels.Launch
	form     *kernels.Form
	rejected []plan.Rejected
}

func (l *lowerer) newBuffer(b buffer) int {
	b.first, b.last = len(l.launches), len(l.launches)-1
	l.bufs = append(l.bufs, b)
	return len(l.bufs) - 1
}

// define gives a value memory in the arena.
func (l *lowerer) define(v *ir.Value) value { return l.defineAs(v, buffer{space: plan.Arena}) }

// shared gives a pool or weight its memory, which all steps share.
func (l *lowerer) shared(space plan.Space, v *ir.Value) {
	i, err := l.u.declare(space, v)
	if err != nil {
		l.fail("%v", err)
	}
	l.defineAs(v, buffer{space: space, index: i})
}

func (l *lowerer) defineAs(v *ir.Value, b buffer) value {
	data, scales, _ := v.Type.Bytes() // bound
	b.dt, b.bytes = v.Type.DType, data
	if v.Op != nil && len(v.Op.Results) > 1 {
		b.what = fmt.Sprintf("result %d", v.Index)
	}
	out := value{data: l.newBuffer(b), scales: -1}
	if q := v.Type.Quant; q != nil {
		b.dt, b.part, b.bytes = q.Scale, 1, scales
		b.what = strings.TrimSpace(b.what + " scales")
		out.scales = l.newBuffer(b)
	}
	l.values[v] = out
	return out
}

// op lowers one op.
func (l *lowerer) op(op *ir.Op) error {
	switch {
	case op.Def.Name == "const":
		return nil // an immediate; Buf makes memory of it where a kernel needs that
	case l.early[op] != nil:
		err := l.op(l.early[op])
		l.done[l.early[op]] = true
		return err
	case l.inline[op] != nil || l.done[op]:
		return nil
	case op.Def.Name == "reshape" && !l.written[poolOf(op.Args[0])]:
		l.values[op.Results[0]] = l.operand(op.Args[0])
		return nil // of a pool that is written, it is a copy: it may be read after the write
	case op.Def.Name == "scatter_rows" && isPool(op.Args[0]):
		l.values[op.Results[0]] = l.operand(op.Args[0]) // in place
	}
	form, rejected := l.choose(op)
	if form == nil {
		if op.Def.Table && len(rejected) == 0 {
			return fmt.Errorf("makes a table from attributes alone: passes move it into the pack graph, which the evaluator runs; lower the graph that they leave")
		}
		if op.Def.Primitive() {
			return fmt.Errorf("no kernel form: %s", whyNot(rejected))
		}
		return l.decompose(op, rejected)
	}
	for _, r := range op.Results {
		if _, done := l.values[r]; !done {
			l.define(r)
		}
	}
	return l.lowerBy(form, rejected, op)
}

// lowerBy emits a form's launches; they carry its name and the op's. A form may
// need the memory of a constant, whose own form then runs in between.
func (l *lowerer) lowerBy(form *kernels.Form, rejected []plan.Rejected, op *ir.Op) error {
	savedForm, savedRejected, cur, choices, first := l.form, l.rejected, l.cur, l.choices, len(l.launches)
	l.form, l.rejected, l.cur, l.choices = form, rejected, op, nil
	defer func() { l.form, l.rejected, l.cur, l.choices = savedForm, savedRejected, cur, choices }()
	if err := form.Lower(l, op); err != nil {
		return err
	}
	return l.price(op, l.launches[first:])
}

// price splits an op's flops over its launches: those that say how many they have,
// the products, take them at the op's rate, the others the rest, in proportion to
// their work.
func (l *lowerer) price(op *ir.Op, launches []plan.Launch) error {
	c, err := l.u.cost(op)
	if err != nil {
		return err
	}
	rest, rate := c.flops+l.chains[op].flops, c.rate
	var work int64
	for i := range launches {
		p := &launches[i]
		switch {
		case p.Op != l.label(op): // a constant's
		case p.Flops > 0:
			p.Rate = string(c.rate)
			rest, rate = rest-p.Flops, target.RateVector
		default:
			work += p.Work
		}
	}
	for i := range launches {
		p := &launches[i]
		if p.Op == l.label(op) && p.Flops == 0 && rest > 0 && work > 0 {
			p.Flops = int64(float64(rest) * (float64(p.Work) / float64(work)))
			p.Rate = string(rate)
		}
	}
	return nil
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

// choose returns the first form that takes op, and those that do not before it.
func (l *lowerer) choose(op *ir.Op) (*kernels.Form, []plan.Rejected) {
	var rejected []plan.Rejected
	for _, f := range kernels.For(op.Def.Name) {
		why := "disabled"
		if !l.u.Disable[f.Name] {
			why = f.Match(op, l.u.Target)
		}
		if why == "" {
			return f, rejected
		}
		rejected = append(rejected, plan.Rejected{Form: f.Name, Reason: why})
	}
	return nil, rejected
}

// whyNot is the text of rejections.
func whyNot(rejected []plan.Rejected) string {
	if len(rejected) == 0 {
		return "the library has none"
	}
	list := make([]string, len(rejected))
	for i, r := range rejected {
		list[i] = r.Form + ": " + r.Reason
	}
	return strings.Join(list, "; ")
}

func (l *lowerer) decompose(op *ir.Op, rejected []plan.Rejected) error {
	l.u.decomposed(op, rejected)
	ops, results, err := ir.Decompose(op)
	if err != nil {
		return err
	}
	kept := map[*ir.Value]bool{}
	for _, r := range results {
		kept[r] = true
	}
	l.chain(ops, kept)
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

// decomposed keeps a note of it for inspect: one for all ops that were rejected
// for the same reasons.
func (u *Unit) decomposed(op *ir.Op, rejected []plan.Rejected) {
	for i := range u.Module.Decomposed {
		d := &u.Module.Decomposed[i]
		if d.Op == op.Def.Name && whyNot(d.Rejected) == whyNot(rejected) {
			d.Count++
			return
		}
	}
	u.Module.Decomposed = append(u.Module.Decomposed, plan.Decomposed{Op: op.Def.Name, Loc: op.Loc, Count: 1, Rejected: rejected})
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
	s := l.define(v)
	form, rejected := l.choose(v.Op)
	if form == nil {
		l.fail("const: no kernel form: %s", whyNot(rejected))
		return s
	}
	if err := l.lowerBy(form, rejected, v.Op); err != nil {
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

func (l *lowerer) Requests() int { return l.requests }

func (l *lowerer) Threshold(key string) int {
	if n, ok := l.set[key]; ok {
		return n
	}
	t, err := passes.ThresholdOf(key, l.u.Target.ForPasses().Chip)
	if err != nil {
		l.fail("%v", err)
	}
	return t.Value
}

func (l *lowerer) Inlined(v *ir.Value) bool { return v.Op != nil && l.inline[v.Op] != nil }

func (l *lowerer) Scratch(dt ir.DType, n int) kernels.Ref {
	return kernels.Ref{ID: l.newBuffer(buffer{dt: dt, space: plan.Arena, bytes: dt.Bytes(n), what: "scratch"}), DT: dt}
}

func (l *lowerer) Launch(k kernels.Launch) {
	pl := plan.Launch{Op: l.label(l.cur), Loc: l.cur.Loc, Grid: k.Grid, Work: k.Work, Flops: k.Flops, Choices: l.choices}
	l.choices = nil
	n := len(k.In) + len(k.Out) + len(k.Ints)
	refs := l.refs.take(n)
	pl.Args = l.planArgs.take(n)
	add := func(list []kernels.Ref, mode plan.Mode) {
		for _, r := range list {
			b := &l.bufs[r.ID]
			if b.last < b.first && b.space == plan.Arena { // its first launch
				b.first = min(b.first, len(l.launches))
			}
			b.last = len(l.launches)
			refs = append(refs, argRef{r.ID, mode})
			pl.Args = append(pl.Args, plan.Arg{Mode: mode})
			touched := b.bytes
			if n, ok := k.Touched[r]; ok {
				touched = min(touched, n)
			}
			pl.Bytes += touched
		}
	}
	add(k.In, plan.Read)
	out := plan.Write
	if l.cur.Def.Name == "scatter_rows" && isPool(l.cur.Args[0]) {
		out = plan.Update
	}
	add(k.Out, out)
	for _, n := range k.Ints {
		refs = append(refs, argRef{buf: -1})
		pl.Args = append(pl.Args, plan.Arg{Int: int64(n)})
	}
	l.launches = append(l.launches, pl)
	l.args = append(l.args, refs)
	l.emitted = append(l.emitted, emitted{k, l.form, l.rejected})
}

// build makes the kernels of the launches, or has them made.
func (l *lowerer) build(graph string) error {
	for i := range l.launches {
		e, p := &l.emitted[i], &l.launches[i]
		var err error
		if p.Kernel, err = l.u.kernel(e.form.Name, e.rejected, e.Launch); err != nil {
			return fmt.Errorf("graph @%s: %s: %s: %w", graph, p.Loc, p.Op, err)
		}
		if k := l.u.Kernels[p.Kernel]; k.made != nil && k.at == "" {
			k.at = fmt.Sprintf("graph @%s: %s: %s", graph, p.Loc, p.Op)
		}
	}
	return nil
}

// paramsOf are the parameters of a launch's kernel.
func paramsOf(k kernels.Launch) []kernel.Param {
	params := make([]kernel.Param, 0, len(k.In)+len(k.Out)+len(k.Ints))
	for i, r := range k.In {
		params = append(params, kernel.Param{Name: fmt.Sprintf("in%d", i), Mem: r.DT})
	}
	for i, r := range k.Out {
		params = append(params, kernel.Param{Name: fmt.Sprintf("out%d", i), Mem: r.DT, Out: true})
	}
	for i := range k.Ints {
		params = append(params, kernel.Param{Name: fmt.Sprintf("n%d", i)})
	}
	return params
}
