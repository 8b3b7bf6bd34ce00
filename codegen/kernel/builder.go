package kernel

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Module collects kernels for one target.
type Module struct {
	T     *target.Target
	m     *ir.Module
	pools map[string]int
}

// NewModule starts a module.
func NewModule(t *target.Target) *Module {
	m := ir.NewModule()
	m.TargetTriple = t.Triple
	return &Module{T: t, m: m, pools: map[string]int{}}
}

// Text is the module as LLVM IR.
func (m *Module) Text() string { return m.m.String() }

// Pool is how many bytes of shared memory a launch of a kernel must give it
// (K.SharedPool).
func (m *Module) Pool(name string) int { return m.pools[name] }

// Param declares one kernel parameter: a buffer of a memory format, or an i64.
type Param struct {
	Name string
	Mem  tir.DType // element format; Invalid for an integer
	Out  bool      // the kernel writes it
}

// K is a kernel under construction. The first misuse sticks: Build reports it.
type K struct {
	T *target.Target

	m     *ir.Module
	f     *ir.Func
	entry *ir.Block // allocas live here, so that they become registers
	b     *ir.Block
	loop  *ir.Block // host: head of the loop over groups
	group V
	tid   value.Value // GPU: thread in group, i64
	mask  value.Value // host: lanes that act, nil for all
	n     int         // names blocks and LDS variables
	pool  int         // bytes of shared memory that a launch gives
	parts *partShared // shared memory of the parts of the grid, if it has some

	poolVar   *ir.Global
	poolTaken bool      // by the part of the grid being built
	resident  int       // groups on a processor of NVIDIA's, if the kernel says
	ahead     *ir.Block // where what comes before the wait for other launches ends
	before    bool      // what is built comes there
	awaited   *ir.Block // begins with that wait, and what lets the next launch begin
	nextAtEnd bool      // which is left out
	part      *gridPart // that is being built, of a grid of parts
	err       error
}

func (k *K) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

// Build adds a kernel. body gets the parameters in order: buffers as *Buf,
// integers as uniform values.
//
// The host form is f(args *i64, from, to i64): it runs groups from .. to-1 with
// the parameters, pointers or integers, read from args. The GPU form takes the
// parameters themselves and runs one group per workgroup.
func (m *Module) Build(name string, params []Param, body func(k *K, bufs []*Buf, ints []V)) error {
	k := &K{T: m.T, m: m.m}
	var finish func()
	var get func(i int) value.Value
	if m.T.GPU() {
		get = k.beginGPU(name, params)
		finish = func() { k.b.NewRet(nil) }
	} else {
		get, finish = k.beginHost(name)
	}
	var bufs []*Buf
	var ints []V
	for i, p := range params {
		v := get(i)
		if p.Mem == tir.Invalid {
			ints = append(ints, V{t: I64, uniform: true, v: v})
			continue
		}
		if !m.T.GPU() {
			v = k.b.NewIntToPtr(v, pointer(k.memType(p.Mem), 0))
		}
		bufs = append(bufs, &Buf{k: k, ptr: v, mem: p.Mem, as: m.T.Global})
	}
	if m.T.Kind == target.NVPTX {
		k.beginAhead()
	}
	start := k.f.NewBlock("start")
	k.b.NewBr(start)
	k.b = start
	if m.T.Kind == target.NVPTX {
		k.awaitLaunches()
	}
	if !m.T.GPU() {
		k.hostLoop()
	}
	body(k, bufs, ints)
	finish()
	k.endAhead(start)
	if k.err != nil {
		return fmt.Errorf("kernel %s: %w", name, k.err)
	}
	m.pools[name] = k.pool
	if k.resident > 0 && m.T.Kind == target.NVPTX {
		k.f.FuncAttrs = append(k.f.FuncAttrs, ir.AttrPair{Key: "nvvm.minctasm", Value: strconv.Itoa(k.resident)})
	}
	return nil
}

func (k *K) beginGPU(name string, params []Param) func(int) value.Value {
	var ps []*ir.Param
	for _, p := range params {
		if p.Mem == tir.Invalid {
			ps = append(ps, ir.NewParam(p.Name, types.I64))
			continue
		}
		lp := ir.NewParam(p.Name, pointer(k.memType(p.Mem), k.T.Global))
		if !p.Out {
			lp.Attrs = append(lp.Attrs, enum.ParamAttrReadOnly)
		}
		ps = append(ps, lp)
	}
	k.f = k.m.NewFunc(name, types.Void, ps...)
	n := strconv.Itoa(k.T.Lanes)
	k.entry = k.f.NewBlock("entry")
	k.b = k.entry
	switch k.T.Kind {
	case target.AMDGPU:
		k.f.CallingConv = enum.CallingConvAMDGPUKernel
		k.f.FuncAttrs = append(k.f.FuncAttrs,
			ir.AttrPair{Key: "amdgpu-flat-work-group-size", Value: n + "," + n},
			ir.AttrPair{Key: "uniform-work-group-size", Value: "true"},
			ir.AttrPair{Key: "amdgpu-agpr-alloc", Value: "0"})
		for _, s := range []string{"dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr", "workgroup-id-y", "workgroup-id-z", "workitem-id-y", "workitem-id-z", "lds-kernel-id"} {
			k.f.FuncAttrs = append(k.f.FuncAttrs, ir.AttrString("amdgpu-no-"+s))
		}
		k.group = V{t: I64, uniform: true, v: k.b.NewZExt(k.intrinsic("llvm.amdgcn.workgroup.id.x", types.I32), types.I64)}
		k.tid = k.b.NewZExt(k.intrinsic("llvm.amdgcn.workitem.id.x", types.I32), types.I64)
	case target.NVPTX:
		k.f.CallingConv = enum.CallingConvPTXKernel
		k.f.FuncAttrs = append(k.f.FuncAttrs, ir.AttrPair{Key: "nvvm.reqntid", Value: n})
		k.group = V{t: I64, uniform: true, v: k.b.NewZExt(k.intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", types.I32), types.I64)}
		k.tid = k.b.NewZExt(k.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", types.I32), types.I64)
	}
	return func(i int) value.Value { return ps[i] }
}

func (k *K) beginHost(name string) (get func(int) value.Value, finish func()) {
	args := ir.NewParam("args", pointer(types.I64, 0))
	from, to := ir.NewParam("from", types.I64), ir.NewParam("to", types.I64)
	k.f = k.m.NewFunc(name, types.Void, args, from, to)
	k.f.FuncAttrs = append(k.f.FuncAttrs, enum.FuncAttrNoUnwind)
	k.entry = k.f.NewBlock("entry")
	k.b = k.entry
	get = func(i int) value.Value {
		return k.b.NewLoad(types.I64, k.b.NewGetElementPtr(types.I64, args, constant.NewInt(types.I64, int64(i))))
	}
	// finish closes the loop over groups that hostLoop opened.
	finish = func() {
		g := k.group.v.(*ir.InstPhi)
		next := k.b.NewAdd(g, constant.NewInt(types.I64, 1))
		g.Incs = append(g.Incs, ir.NewIncoming(next, k.b))
		k.b.NewBr(k.loop)
	}
	return get, finish
}

// hostLoop runs the rest of the body for each group of from .. to-1.
func (k *K) hostLoop() {
	from, to := k.f.Params[1], k.f.Params[2]
	header, body, done := k.f.NewBlock("groups"), k.f.NewBlock("group"), k.f.NewBlock("done")
	k.b.NewBr(header)
	g := header.NewPhi(ir.NewIncoming(from, k.b))
	header.NewCondBr(header.NewICmp(enum.IPredSLT, g, to), body, done)
	done.NewRet(nil)
	k.group = V{t: I64, uniform: true, v: g}
	k.loop, k.b = header, body
}

// Resident has NVIDIA's compiler keep to the registers with which n groups run on a
// processor at a time, or as many as another part of the grid asks for, if those are
// more. Other targets choose for themselves.
func (k *K) Resident(n int) { k.resident = max(k.resident, n) }

// Group is the index of this group in the grid, or in its part of it.
func (k *K) Group() V { return k.group }

// Groups runs body in the groups from one to before another, parameters, which in it
// count from 0; body gets the parameters bufs and ints as they are best read there. No group
// runs two such bodies, which share their shared memory: GPU only.
func (k *K) Groups(from, to V, bufs []*Buf, ints []V, body func(bufs []*Buf, ints []V)) {
	if !k.gpu("parts of a grid") {
		return
	}
	if k.parts == nil {
		k.parts = k.newPartShared()
	}
	k.parts.used, k.poolTaken = 0, false
	whole := k.group
	k.part = &gridPart{whole, from, to}
	k.uniformIf(k.And(k.Cmp(GE, whole, from), k.Cmp(LT, whole, to)), func() {
		k.group = k.Sub(whole, from)
		body(k.readHere(bufs, ints))
	})
	k.group, k.part = whole, nil
}

// paramBytes is what each parameter takes in the segment of a kernel's arguments: a
// pointer or an i64.
const paramBytes = 8

// readHere has parameters read from memory where the kernel is now. LLVM reads those of an
// AMD kernel in its first block and keeps them in scalar registers, of which there are 102:
// those of all parts of a grid do not fit. Other targets read a parameter where it is used.
func (k *K) readHere(bufs []*Buf, ints []V) ([]*Buf, []V) {
	if k.T.Kind != target.AMDGPU {
		return bufs, ints
	}
	segment := k.intrinsic("llvm.amdgcn.kernarg.segment.ptr", pointer(types.I8, constantMemory))
	read := func(param value.Value) value.Value {
		i := slices.IndexFunc(k.f.Params, func(p *ir.Param) bool { return p == param })
		if i < 0 {
			k.fail("a part of a grid is given a value that is no parameter")
			return param
		}
		at := k.b.NewGetElementPtr(types.I8, segment, constant.NewInt(types.I64, int64(i*paramBytes)))
		l := k.b.NewLoad(param.Type(), k.b.NewBitCast(at, pointer(param.Type(), constantMemory)))
		l.Align = paramBytes
		return l
	}
	hereBufs, hereInts := make([]*Buf, len(bufs)), make([]V, len(ints))
	for i, b := range bufs {
		here := *b
		here.ptr = read(b.ptr)
		hereBufs[i] = &here
	}
	for i, n := range ints {
		n.v = read(n.v)
		hereInts[i] = n
	}
	return hereBufs, hereInts
}

// constantMemory is the address space of what no kernel writes, arguments of AMD kernels
// among it.
const constantMemory = 4

func (k *K) block(name string) *ir.Block {
	k.n++
	return k.f.NewBlock(fmt.Sprintf("%s%d", name, k.n))
}

// Var is a mutable value.
type Var struct {
	k       *K
	t       Elem
	uniform bool
	slot    value.Value
}

// Var makes a mutable varying value.
func (k *K) Var(init V) *Var { return k.newVar(init, false) }

// UniformVar makes a mutable uniform value; it must not be set inside If of a
// varying condition.
func (k *K) UniformVar(init V) *Var { return k.newVar(init, true) }

func (k *K) newVar(init V, uniform bool) *Var {
	if uniform && !init.uniform {
		k.fail("a uniform variable starts with a varying value")
		init = k.zero(init.t)
	}
	x := &Var{k: k, t: init.t, uniform: uniform, slot: k.alloca(k.typeOf(init.t, uniform))}
	k.b.NewStore(k.shaped(init, uniform), x.slot)
	return x
}

func (k *K) shaped(x V, uniform bool) value.Value {
	if uniform {
		return k.raw(x)
	}
	return k.vary(x)
}

// alloca reserves a stack slot at the function's start.
func (k *K) alloca(t types.Type) value.Value {
	a := ir.NewAlloca(t)
	if k.T.Kind == target.AMDGPU {
		const private = 5
		a.AddrSpace, a.Typ = private, pointer(t, private)
	}
	k.entry.Insts = append([]ir.Instruction{a}, k.entry.Insts...)
	return a
}

// Get reads the variable.
func (x *Var) Get() V {
	return V{t: x.t, uniform: x.uniform, v: x.k.b.NewLoad(x.k.typeOf(x.t, x.uniform), x.slot)}
}

// Set writes the variable, for the lanes that act.
func (x *Var) Set(v V) {
	k := x.k
	if v.t != x.t || x.uniform && !v.uniform {
		k.fail("variable of %v (uniform %v) set to %v (uniform %v)", x.t, x.uniform, v.t, v.uniform)
		return
	}
	nv := k.shaped(v, x.uniform)
	if k.mask != nil && !x.uniform {
		nv = k.b.NewSelect(k.mask, nv, k.raw(x.Get()))
	}
	k.b.NewStore(nv, x.slot)
}

// For runs body for i = from, from+step, ... < to; all uniform i64.
func (k *K) For(from, to V, step int, body func(i V)) {
	header, inner, done := k.block("for"), k.block("body"), k.block("end")
	pre := k.b
	k.b.NewBr(header)
	i := header.NewPhi(ir.NewIncoming(k.raw(from), pre))
	header.NewCondBr(header.NewICmp(enum.IPredSLT, i, k.raw(to)), inner, done)
	k.b = inner
	body(V{t: I64, uniform: true, v: i})
	next := k.b.NewAdd(i, constant.NewInt(types.I64, int64(step)))
	i.Incs = append(i.Incs, ir.NewIncoming(next, k.b))
	k.b.NewBr(header)
	k.b = done
}

// Lanes runs body for i = 0 .. n-1, spread over the lanes: each lane takes
// i = lane, lane+Lanes, .... No barrier or reduction inside.
func (k *K) Lanes(n V, body func(i V)) {
	if k.T.GPU() {
		header, inner, done := k.block("lanes"), k.block("body"), k.block("end")
		pre := k.b
		k.b.NewBr(header)
		i := header.NewPhi(ir.NewIncoming(k.tid, pre))
		header.NewCondBr(header.NewICmp(enum.IPredSLT, i, k.raw(n)), inner, done)
		k.b = inner
		body(V{t: I64, v: i})
		next := k.b.NewAdd(i, constant.NewInt(types.I64, int64(k.T.Lanes)))
		i.Incs = append(i.Incs, ir.NewIncoming(next, k.b))
		k.b.NewBr(header)
		k.b = done
		return
	}
	lanes := int64(k.T.Lanes)
	lane := func(i V) V { return V{t: I64, base: i.v, stride: 1} }
	whole := k.And(n, k.Int(int(-lanes))) // lanes is a power of two
	if c, ok := constInt(n); ok {
		whole = k.Int(int(c / lanes * lanes))
	}
	if c, ok := constInt(whole); !ok || c > 0 {
		k.For(k.Int(0), whole, int(lanes), func(i V) { body(lane(i)) })
	}
	tail := func() {
		i := lane(whole)
		saved := k.mask
		in := k.raw(k.Cmp(LT, V{t: I64, v: k.raw(i)}, n))
		if saved != nil {
			in = k.b.NewAnd(saved, in)
		}
		k.mask = in
		body(i)
		k.mask = saved
	}
	if c, ok := constInt(n); ok {
		if c%lanes != 0 {
			tail()
		}
		return
	}
	k.uniformIf(k.Cmp(LT, whole, n), tail)
}

// Chunks runs body for i = lane, lane+Lanes, ... like Lanes, but in every lane of
// the group equally often, so that body may use barriers and reductions: in is
// false where i is past n, which body must not load or store.
func (k *K) Chunks(n V, body func(i, in V)) {
	if k.T.GPU() {
		k.For(k.Int(0), n, k.T.Lanes, func(from V) {
			i := k.Add(k.Lane(), from)
			body(i, k.Cmp(LT, i, n))
		})
		return
	}
	lane := func(i V) V { return V{t: I64, base: i.v, stride: 1} }
	whole := k.And(n, k.Int(-k.T.Lanes))
	k.For(k.Int(0), whole, k.T.Lanes, func(i V) { body(lane(i), V{t: Bool, uniform: true, v: constant.True}) })
	k.uniformIf(k.Cmp(LT, whole, n), func() { body(lane(whole), k.Cmp(LT, lane(whole), n)) })
}

// Lane is this lane's index in the group, as i64.
func (k *K) Lane() V {
	if k.T.GPU() {
		return V{t: I64, v: k.tid}
	}
	return V{t: I64, base: constant.NewInt(types.I64, 0), stride: 1}
}

// If runs body for the lanes where cond holds.
func (k *K) If(cond V, body func()) {
	if cond.t != Bool {
		k.fail("if: condition is %v", cond.t)
		return
	}
	if cond.uniform || k.T.GPU() {
		k.uniformIf(cond, body)
		return
	}
	saved := k.mask
	m := k.raw(cond)
	if saved != nil {
		m = k.b.NewAnd(saved, m)
	}
	k.mask = m
	body()
	k.mask = saved
}

func (k *K) uniformIf(cond V, body func()) {
	then, join := k.block("then"), k.block("join")
	k.b.NewCondBr(k.raw(cond), then, join)
	k.b = then
	body()
	k.b.NewBr(join)
	k.b = join
}

// First runs body in one lane of the group: for storing a uniform result.
func (k *K) First(body func()) {
	if !k.T.GPU() {
		body()
		return
	}
	k.uniformIf(V{t: Bool, v: k.b.NewICmp(enum.IPredEQ, k.tid, constant.NewInt(types.I64, 0))}, body)
}
