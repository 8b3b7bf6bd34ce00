package emu

import (
	"sync/atomic"
	"unsafe"
)

// Scalar loads. Addresses are rounded down to words (MI300 ISA, "Scalar Memory
// Operations").

func init() {
	rows := map[string]compile{}
	for name, n := range map[string]int{"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16} {
		rows["s_load_"+name] = scalarLoad(n)
		rows["s_buffer_load_"+name] = scalarBufferLoad(n)
	}
	define(rows)
}

// scalarOffset compiles the offset of a scalar load at operand i: a register, a
// constant with a sign, or a register and a constant as a modifier.
func (c *compiler) scalarOffset(i int) func(w *wave) uint64 {
	s, offset := c.scalarSource(i, 32), uint64(c.number("offset", 0))
	c.flag("glc") // caches are not modelled
	if s.reg < 0 {
		konst := s.konst + offset
		return func(*wave) uint64 { return konst }
	}
	return func(w *wave) uint64 { return uint64(w.s[s.reg]) + offset }
}

// scalarRegisters compiles a source of n registers that can be nothing else.
func (c *compiler) scalarRegisters(i, n int) int {
	o := c.plain(c.arg(i))
	if o.Kind != SGPR || o.Count != n {
		c.fail("operand %s is not %d scalar registers", o.Text, n)
		return 0
	}
	c.readsScalar(i, o.Reg, n)
	return o.Reg
}

func scalarLoad(n int) compile {
	return func(c *compiler) step {
		d, base, offset, in := c.scalarDest(0, n), c.scalarSource(1, 64), c.scalarOffset(2), c.in
		return func(w *wave) { w.loadScalars(in, d, n, (base.get64(w)+offset(w))&^3) }
	}
}

// loadScalars loads n words to the registers from d.
func (w *wave) loadScalars(in *Inst, d, n int, a uint64) {
	if w.group.watch != nil {
		w.group.watch.access(w, in, -1, a, 4*uint64(n), accessRead)
	}
	if p := w.pointer(in, -1, a, 4*uint64(n), false); p != nil {
		// Atomically, as gather32 does and for its reason.
		for i := range n {
			w.s[d+i] = atomic.LoadUint32((*uint32)(unsafe.Add(p, 4*i)))
		}
	}
}

// scalarBufferLoad loads from a raw buffer. Words beyond its end are 0.
func scalarBufferLoad(n int) compile {
	return func(c *compiler) step {
		d, r, offset, in := c.scalarDest(0, n), c.scalarRegisters(1, 4), c.scalarOffset(2), c.in
		return func(w *wave) {
			v := (*[4]uint32)(w.s[r:])
			if v[1]>>16&0x7fff != 0 || v[1]>>31 != 0 {
				w.fail(in, "%s: the buffer's descriptor %#08x has a stride or swizzled addresses, which are not supported", w.who(-1), v[:])
				return
			}
			base, total := uint64(v[0])|uint64(v[1]&0xffff)<<32, uint64(v[2])
			at := offset(w) &^ 3
			for j := range n {
				if x := at + 4*uint64(j); x+4 <= total && x < 1<<32 {
					w.loadScalars(in, d+j, 1, base&^3+x)
				} else {
					w.s[d+j] = 0
				}
			}
		}
	}
}
