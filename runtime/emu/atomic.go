package emu

import (
	"sync/atomic"
	"unsafe"
)

// Atomic operations on memory and LDS. Work-groups run on several goroutines, so that
// those on memory are atomic ones of the host. Lanes have their turns in order.

func init() {
	rows := map[string]compile{}
	for _, name := range memoryAtomics {
		rows["global_atomic_"+name] = flatAtomic(atomicOps[name], flatForms["global_"])
		rows["flat_atomic_"+name] = flatAtomic(atomicOps[name], flatForms["flat_"])
	}
	for name, op := range ldsAtomics {
		rows["ds_"+name] = ldsAtomic(atomicOps[op], false)
		base, kind := name[:len(name)-4], name[len(name)-4:] // add, _u32
		if name == "pk_add_bf16" {
			base, kind = "pk_add", "_bf16"
		}
		rows["ds_"+base+"_rtn"+kind] = ldsAtomic(atomicOps[op], true)
	}
	rows["ds_wrxchg_rtn_b32"] = ldsAtomic(atomicOps["swap"], true)
	rows["ds_wrxchg_rtn_b64"] = ldsAtomic(atomicOps["swap_x2"], true)
	define(rows)
}

// flatAtomic: with sc0 it returns what was there before.
func flatAtomic(op atomicOp, form flatForm) compile {
	return func(c *compiler) step {
		returns := c.flag("sc0")
		c.flag("sc1")
		c.flag("nt")
		i, d, words := 0, -1, int(op.size/4)
		if returns {
			i, d = 1, c.vectorDest(0, words)
		}
		a := &access{in: c.in, place: form.place, size: op.size, kind: accessAtomic, align: op.size}
		form.address(c, a, i, i+2)
		s := c.vectorData(i+1, words*op.data)
		if op.data == 1 {
			return op.step(a, d, s, s)
		}
		return op.step(a, d, s, s+words)
	}
}

func ldsAtomic(op atomicOp, returns bool) compile {
	return func(c *compiler) step {
		i, d, words := 0, -1, int(op.size/4)
		if returns {
			i, d = 1, c.vectorDest(0, words)
		}
		a := c.ldsAccess(i, op.size, uint64(c.number("offset", 0)), accessAtomic)
		a.align = op.size
		s := c.vectorData(i+1, words)
		switch {
		case op.data == 1:
			return op.step(a, d, s, s)
		case c.in.has("ds_cmpst"):
			return op.step(a, d, c.vectorData(i+2, words), s)
		}
		return op.step(a, d, s, c.vectorData(i+2, words))
	}
}

// step makes the step of an operation on data in the registers a and b. The old value
// goes to register d, unless it is negative.
func (op atomicOp) step(x *access, d, a, b int) step {
	return func(w *wave) {
		if mask := x.begin(w, w.exec()); mask != 0 {
			op.run(w, x, d, a, b, mask)
		}
	}
}

// run does the operation for the lanes of mask, whose addresses are in w.addr.
func (op atomicOp) run(w *wave, x *access, d, a, b int, mask uint64) {
	for mask != 0 {
		if p, _ := x.window(w.addr[lowest(mask)]); p == placeScratch {
			w.fail(x.in, "%s: an atomic operation on scratch memory, which the device does not have", w.who(lowest(mask)))
			return
		}
		base, some := x.locate(w, mask)
		if base == nil {
			return
		}
		mask &^= some
		if op.size == 8 {
			op.lanes64(w, base, d, a, b, some)
		} else {
			op.lanes32(w, base, d, a, b, some)
		}
	}
}

func (op atomicOp) lanes32(w *wave, base unsafe.Pointer, d, a, b int, mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		i := lowest(mask)
		p := (*uint32)(unsafe.Add(base, w.offset[i]))
		x, y := uint64(w.v[a][i]), uint64(w.v[b][i])
		old := atomic.LoadUint32(p)
		for !atomic.CompareAndSwapUint32(p, old, uint32(op.do(uint64(old), x, y))) {
			old = atomic.LoadUint32(p)
		}
		if d >= 0 {
			w.v[d][i] = old
		}
	}
}

func (op atomicOp) lanes64(w *wave, base unsafe.Pointer, d, a, b int, mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		i := lowest(mask)
		p := (*uint64)(unsafe.Add(base, w.offset[i]))
		x, y := uint64(w.v[a][i])|uint64(w.v[a+1][i])<<32, uint64(w.v[b][i])|uint64(w.v[b+1][i])<<32
		old := atomic.LoadUint64(p)
		for !atomic.CompareAndSwapUint64(p, old, op.do(old, x, y)) {
			old = atomic.LoadUint64(p)
		}
		if d >= 0 {
			w.v[d][i], w.v[d+1][i] = uint32(old), uint32(old>>32)
		}
	}
}
