package emu

import "unsafe"

// Scalar loads. Addresses are rounded down to words (MI300 ISA, "Scalar Memory
// Operations").

func init() {
	rows := map[string]compile{}
	for name, n := range map[string]int{"s_load_dword": 1, "s_load_dwordx2": 2, "s_load_dwordx4": 4, "s_load_dwordx8": 8, "s_load_dwordx16": 16} {
		rows[name] = scalarLoad(n)
	}
	define(rows)
}

func scalarLoad(n int) compile {
	return func(c *compiler) step {
		d, base, offset, in := c.scalarDest(0, n), c.scalarSource(1, 64), c.scalarSource(2, 32), c.in
		c.flag("glc") // caches are not modelled
		signed := offset.reg < 0
		return func(w *wave) {
			a := base.get64(w)
			if signed {
				a += offset.konst
			} else {
				a += uint64(offset.get(w))
			}
			a &^= 3
			if w.group.watch != nil {
				w.group.watch.access(w, in, -1, a, 4*uint64(n), accessRead)
			}
			p := w.pointer(in, -1, a, 4*uint64(n), false)
			if p == nil {
				return
			}
			copy(w.s[d:d+n], unsafe.Slice((*uint32)(p), n))
		}
	}
}
