package emu

// Control flow and the instructions that only wait.

func init() {
	define(map[string]compile{
		"s_endpgm": func(c *compiler) step { return func(w *wave) { w.status = ended } },
		"s_barrier": func(c *compiler) step {
			return func(w *wave) { w.status = atBarrier }
		},
		"s_branch":         branch(-1, func(w *wave) bool { return true }),
		"s_cbranch_scc0":   branch(regSCC, func(w *wave) bool { return !w.scc }),
		"s_cbranch_scc1":   branch(regSCC, func(w *wave) bool { return w.scc }),
		"s_cbranch_vccz":   branch(regVCC, func(w *wave) bool { return w.vcc() == 0 }),
		"s_cbranch_vccnz":  branch(regVCC, func(w *wave) bool { return w.vcc() != 0 }),
		"s_cbranch_execz":  branch(regEXEC, func(w *wave) bool { return w.exec() == 0 }),
		"s_cbranch_execnz": branch(regEXEC, func(w *wave) bool { return w.exec() != 0 }),
		"s_getpc_b64": func(c *compiler) step {
			d, next := c.scalarDest(0, 2), c.k.address+c.in.Offset+c.in.Size
			return func(w *wave) { w.setS64(d, next) }
		},
		"s_setpc_b64": func(c *compiler) step {
			a, in := c.scalarSource(0, 64), c.in
			return func(w *wave) { w.jump(in, a.get64(w)) }
		},
		"s_swappc_b64": func(c *compiler) step {
			d, a, in := c.scalarDest(0, 2), c.scalarSource(1, 64), c.in
			next := c.k.address + in.Offset + in.Size
			return func(w *wave) {
				to := a.get64(w)
				w.setS64(d, next)
				w.jump(in, to)
			}
		},

		// Every memory access is done when its instruction is, so that there is nothing
		// to wait for; the waitcnt sanitizer checks that the code waits all the same.
		"s_waitcnt": func(c *compiler) step {
			for i := range c.in.Args {
				o := c.arg(i)
				if _, err := waitCounter(o); err != nil {
					c.fail("%w", err)
				}
			}
			return func(w *wave) {}
		},
		"s_nop":       wait(1),
		"s_setprio":   wait(1),
		"s_sleep":     wait(1),
		"s_dcache_wb": wait(0), "s_dcache_inv": wait(0), "s_icache_inv": wait(0),
		endOfCode: func(c *compiler) step {
			in := c.in
			return func(w *wave) { w.fail(in, "execution ran past the last instruction") }
		},
		"s_code_end": func(c *compiler) step {
			in := c.in
			return func(w *wave) { w.fail(in, "execution ran into the padding") }
		},
	})
}

// wait is an instruction without effect here, of n immediates.
func wait(n int) compile {
	return func(c *compiler) step {
		for i := range n {
			c.imm16(i)
		}
		return func(w *wave) {}
	}
}

// branch is taken if the register on, none if it is negative, is as taken says.
func branch(on int, taken func(w *wave) bool) compile {
	return func(c *compiler) step {
		if on >= 0 {
			c.reads(on)
		}
		// The immediate counts words from the next instruction.
		to := c.in.Offset + c.in.Size + uint64(int64(c.imm16(0))*4)
		at, ok := c.k.at[to]
		if !ok {
			c.fail("no instruction at +0x%x to branch to", to)
		}
		return func(w *wave) {
			if taken(w) {
				w.pc = at
			}
		}
	}
}

// jump goes to an address of the kernel's code, or of a function's.
func (w *wave) jump(in *Inst, address uint64) {
	at, ok := w.group.k.at[address-w.group.k.address]
	if !ok {
		w.fail(in, "no instruction of the code object at 0x%x to jump to", address)
		return
	}
	w.pc = at
}
