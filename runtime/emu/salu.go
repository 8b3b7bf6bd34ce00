package emu

import "math/bits"

// Scalar ALU. Constructors: the result's and sources' bits in the name, scc if SCC
// is written; an instruction that leaves SCC alone must not be given one that writes
// it.

func sop1x32(f func(a uint32) uint32) compile {
	return func(c *compiler) step {
		d, a := c.scalarDest(0, 1), c.scalarSource(1, 32)
		return func(w *wave) { w.s[d] = f(a.get(w)) }
	}
}

func sop1x32scc(f func(a uint32) (uint32, bool)) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a := c.scalarDest(0, 1), c.scalarSource(1, 32)
		return func(w *wave) { w.s[d], w.scc = f(a.get(w)) }
	}
}

func sop1x64(f func(a uint64) uint64) compile {
	return func(c *compiler) step {
		d, a := c.scalarDest(0, 2), c.scalarSource(1, 64)
		return func(w *wave) { w.setS64(d, f(a.get64(w))) }
	}
}

func sop1x64scc(f func(a uint64) (uint64, bool)) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a := c.scalarDest(0, 2), c.scalarSource(1, 64)
		return func(w *wave) {
			r, scc := f(a.get64(w))
			w.setS64(d, r)
			w.scc = scc
		}
	}
}

// sop1x32of64 has a 32-bit result of a 64-bit source.
func sop1x32of64(f func(a uint64) uint32) compile {
	return func(c *compiler) step {
		d, a := c.scalarDest(0, 1), c.scalarSource(1, 64)
		return func(w *wave) { w.s[d] = f(a.get64(w)) }
	}
}

func sop1x32of64scc(f func(a uint64) uint32) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a := c.scalarDest(0, 1), c.scalarSource(1, 64)
		return func(w *wave) {
			w.s[d] = f(a.get64(w))
			w.scc = w.s[d] != 0
		}
	}
}

func sop2x32(f func(a, b uint32) uint32) compile {
	return func(c *compiler) step {
		d, a, b := c.scalarDest(0, 1), c.scalarSource(1, 32), c.scalarSource(2, 32)
		return func(w *wave) { w.s[d] = f(a.get(w), b.get(w)) }
	}
}

func sop2x32scc(f func(a, b uint32) (uint32, bool)) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a, b := c.scalarDest(0, 1), c.scalarSource(1, 32), c.scalarSource(2, 32)
		return func(w *wave) { w.s[d], w.scc = f(a.get(w), b.get(w)) }
	}
}

// logic32 sets SCC if the result is not zero.
func logic32(f func(a, b uint32) uint32) compile {
	return sop2x32scc(func(a, b uint32) (uint32, bool) { r := f(a, b); return r, r != 0 })
}

func sop2x64scc(f func(a, b uint64) uint64) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a, b := c.scalarDest(0, 2), c.scalarSource(1, 64), c.scalarSource(2, 64)
		return func(w *wave) {
			r := f(a.get64(w), b.get64(w))
			w.setS64(d, r)
			w.scc = r != 0
		}
	}
}

// shift64 shifts a 64-bit source by a 32-bit one.
func shift64(f func(a uint64, b uint32) uint64) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		d, a, b := c.scalarDest(0, 2), c.scalarSource(1, 64), c.scalarSource(2, 32)
		return func(w *wave) {
			r := f(a.get64(w), b.get(w))
			w.setS64(d, r)
			w.scc = r != 0
		}
	}
}

// carry adds or subtracts with SCC going in and out.
func carry(f func(a, b, in uint32) (r, out uint32)) compile {
	return func(c *compiler) step {
		c.reads(regSCC)
		c.writes(regSCC)
		d, a, b := c.scalarDest(0, 1), c.scalarSource(1, 32), c.scalarSource(2, 32)
		return func(w *wave) {
			r, out := f(a.get(w), b.get(w), b2u(w.scc))
			w.s[d], w.scc = r, out != 0
		}
	}
}

// saveexec saves EXEC and changes it: D = EXEC, EXEC = f(S0, EXEC), SCC = EXEC != 0.
func saveexec(f func(a, exec uint64) uint64) compile {
	return func(c *compiler) step {
		c.reads(regEXEC)
		c.writes(regEXEC)
		c.writes(regSCC)
		d, a := c.scalarDest(0, 2), c.scalarSource(1, 64)
		return func(w *wave) {
			x, e := a.get64(w), w.exec()
			w.setS64(d, e)
			r := f(x, e)
			w.setExec(r)
			w.scc = r != 0
		}
	}
}

// sopk has a 16-bit signed immediate.
func sopk(f func(w *wave, d int, k int32)) compile {
	return func(c *compiler) step {
		d, k := c.scalarDest(0, 1), c.imm16(1)
		return func(w *wave) { f(w, d, k) }
	}
}

// sopkChanges has a destination that it also reads; scc if it writes SCC.
func sopkChanges(scc bool, f func(w *wave, d int, k int32)) compile {
	return func(c *compiler) step {
		if scc {
			c.writes(regSCC)
		}
		d, k := c.scalarChanged(0, 1), c.imm16(1)
		return func(w *wave) { f(w, d, k) }
	}
}

// imm16 is a 16-bit immediate, sign extended.
func (c *compiler) imm16(i int) int32 {
	o := c.plain(c.arg(i))
	if o.Kind != Integer && o.Kind != Hex || o.Int < -1<<15 || o.Int >= 1<<16 {
		c.fail("operand %s is no 16-bit immediate", o.Text)
	}
	return int32(int16(o.Int))
}

// overflow tells whether a + b, or a - b = r with b negated, overflows.
func overflow(a, b, r uint32) bool { return ^(a^b)&(a^r)>>31 != 0 }

func bitfield32(a uint32, b uint32) (uint32, int) { return a >> (b & 31), int(b >> 16 & 127) }

// width masks the low n bits.
func width32(x uint32, n int) uint32 {
	if n >= 32 {
		return x
	}
	return x & (1<<n - 1)
}

func width64(x uint64, n int) uint64 {
	if n >= 64 {
		return x
	}
	return x & (1<<n - 1)
}

func init() {
	define(map[string]compile{
		"s_mov_b32":       sop1x32(func(a uint32) uint32 { return a }),
		"s_mov_b64":       sop1x64(func(a uint64) uint64 { return a }),
		"s_not_b32":       sop1x32scc(func(a uint32) (uint32, bool) { return ^a, ^a != 0 }),
		"s_not_b64":       sop1x64scc(func(a uint64) (uint64, bool) { return ^a, ^a != 0 }),
		"s_brev_b32":      sop1x32(bits.Reverse32),
		"s_brev_b64":      sop1x64(bits.Reverse64),
		"s_abs_i32":       sop1x32scc(func(a uint32) (uint32, bool) { r := uint32(max(int32(a), -int32(a))); return r, r != 0 }),
		"s_sext_i32_i8":   sop1x32(func(a uint32) uint32 { return uint32(int32(int8(a))) }),
		"s_sext_i32_i16":  sop1x32(func(a uint32) uint32 { return uint32(int32(int16(a))) }),
		"s_bcnt0_i32_b32": sop1x32scc(func(a uint32) (uint32, bool) { r := uint32(bits.OnesCount32(^a)); return r, r != 0 }),
		"s_bcnt1_i32_b32": sop1x32scc(func(a uint32) (uint32, bool) { r := uint32(bits.OnesCount32(a)); return r, r != 0 }),
		"s_bcnt0_i32_b64": sop1x32of64scc(func(a uint64) uint32 { return uint32(bits.OnesCount64(^a)) }),
		"s_bcnt1_i32_b64": sop1x32of64scc(func(a uint64) uint32 { return uint32(bits.OnesCount64(a)) }),
		"s_ff0_i32_b32":   sop1x32(func(a uint32) uint32 { return firstOne(uint64(^a)) }),
		"s_ff1_i32_b32":   sop1x32(func(a uint32) uint32 { return firstOne(uint64(a)) }),
		"s_ff0_i32_b64":   sop1x32of64(func(a uint64) uint32 { return firstOne(^a) }),
		"s_ff1_i32_b64":   sop1x32of64(firstOne),
		"s_flbit_i32_b32": sop1x32(leadingZeros32),
		"s_flbit_i32_b64": sop1x32of64(leadingZeros64),
		"s_flbit_i32":     sop1x32(func(a uint32) uint32 { return leadingZeros32(a ^ uint32(int32(a)>>31)) }),
		"s_flbit_i32_i64": sop1x32of64(func(a uint64) uint32 { return leadingZeros64(a ^ uint64(int64(a)>>63)) }),

		"s_add_u32":  sop2x32scc(func(a, b uint32) (uint32, bool) { r := a + b; return r, r < a }),
		"s_sub_u32":  sop2x32scc(func(a, b uint32) (uint32, bool) { return a - b, b > a }),
		"s_add_i32":  sop2x32scc(func(a, b uint32) (uint32, bool) { r := a + b; return r, overflow(a, b, r) }),
		"s_sub_i32":  sop2x32scc(func(a, b uint32) (uint32, bool) { r := a - b; return r, overflow(a, ^b, r) }),
		"s_addc_u32": carry(func(a, b, in uint32) (uint32, uint32) { return bits.Add32(a, b, in) }),
		"s_subb_u32": carry(func(a, b, in uint32) (uint32, uint32) { return bits.Sub32(a, b, in) }),
		"s_absdiff_i32": sop2x32scc(func(a, b uint32) (uint32, bool) {
			r := a - b
			r = uint32(max(int32(r), -int32(r)))
			return r, r != 0
		}),
		"s_mul_i32":    sop2x32(func(a, b uint32) uint32 { return a * b }),
		"s_mul_hi_u32": sop2x32(func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }),
		"s_mul_hi_i32": sop2x32(func(a, b uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) }),
		// SCC says that the first source was chosen.
		"s_min_i32": sop2x32scc(func(a, b uint32) (uint32, bool) { return uint32(min(int32(a), int32(b))), int32(a) < int32(b) }),
		"s_min_u32": sop2x32scc(func(a, b uint32) (uint32, bool) { return min(a, b), a < b }),
		"s_max_i32": sop2x32scc(func(a, b uint32) (uint32, bool) { return uint32(max(int32(a), int32(b))), int32(a) >= int32(b) }),
		"s_max_u32": sop2x32scc(func(a, b uint32) (uint32, bool) { return max(a, b), a >= b }),

		"s_and_b32":   logic32(func(a, b uint32) uint32 { return a & b }),
		"s_or_b32":    logic32(func(a, b uint32) uint32 { return a | b }),
		"s_xor_b32":   logic32(func(a, b uint32) uint32 { return a ^ b }),
		"s_andn2_b32": logic32(func(a, b uint32) uint32 { return a &^ b }),
		"s_orn2_b32":  logic32(func(a, b uint32) uint32 { return a | ^b }),
		"s_nand_b32":  logic32(func(a, b uint32) uint32 { return ^(a & b) }),
		"s_nor_b32":   logic32(func(a, b uint32) uint32 { return ^(a | b) }),
		"s_xnor_b32":  logic32(func(a, b uint32) uint32 { return ^(a ^ b) }),
		"s_lshl_b32":  logic32(func(a, b uint32) uint32 { return a << (b & 31) }),
		"s_lshr_b32":  logic32(func(a, b uint32) uint32 { return a >> (b & 31) }),
		"s_ashr_i32":  logic32(func(a, b uint32) uint32 { return uint32(int32(a) >> (b & 31)) }),
		"s_bfe_u32": logic32(func(a, b uint32) uint32 {
			x, n := bitfield32(a, b)
			return width32(x, n)
		}),
		"s_bfe_i32": logic32(func(a, b uint32) uint32 {
			x, n := bitfield32(a, b)
			return signExtend(width32(x, n), min(n, 32-int(b&31)))
		}),
		"s_bfm_b32":       sop2x32(func(a, b uint32) uint32 { return (1<<(a&31) - 1) << (b & 31) }),
		"s_lshl1_add_u32": lshlAdd(1), "s_lshl2_add_u32": lshlAdd(2), "s_lshl3_add_u32": lshlAdd(3), "s_lshl4_add_u32": lshlAdd(4),
		"s_pack_ll_b32_b16": sop2x32(func(a, b uint32) uint32 { return a&0xffff | b<<16 }),
		"s_pack_lh_b32_b16": sop2x32(func(a, b uint32) uint32 { return a&0xffff | b&0xffff0000 }),
		"s_pack_hh_b32_b16": sop2x32(func(a, b uint32) uint32 { return a>>16 | b&0xffff0000 }),

		"s_and_b64":   sop2x64scc(func(a, b uint64) uint64 { return a & b }),
		"s_or_b64":    sop2x64scc(func(a, b uint64) uint64 { return a | b }),
		"s_xor_b64":   sop2x64scc(func(a, b uint64) uint64 { return a ^ b }),
		"s_andn2_b64": sop2x64scc(func(a, b uint64) uint64 { return a &^ b }),
		"s_orn2_b64":  sop2x64scc(func(a, b uint64) uint64 { return a | ^b }),
		"s_nand_b64":  sop2x64scc(func(a, b uint64) uint64 { return ^(a & b) }),
		"s_nor_b64":   sop2x64scc(func(a, b uint64) uint64 { return ^(a | b) }),
		"s_xnor_b64":  sop2x64scc(func(a, b uint64) uint64 { return ^(a ^ b) }),
		"s_lshl_b64":  shift64(func(a uint64, b uint32) uint64 { return a << (b & 63) }),
		"s_lshr_b64":  shift64(func(a uint64, b uint32) uint64 { return a >> (b & 63) }),
		"s_ashr_i64":  shift64(func(a uint64, b uint32) uint64 { return uint64(int64(a) >> (b & 63)) }),
		"s_bfe_u64":   shift64(func(a uint64, b uint32) uint64 { return width64(a>>(b&63), int(b>>16&127)) }),
		"s_bfe_i64": shift64(func(a uint64, b uint32) uint64 {
			n := min(int(b>>16&127), 64-int(b&63))
			if n == 0 {
				return 0
			}
			return uint64(int64(a>>(b&63)<<(64-n)) >> (64 - n))
		}),

		"s_and_saveexec_b64":   saveexec(func(a, e uint64) uint64 { return a & e }),
		"s_or_saveexec_b64":    saveexec(func(a, e uint64) uint64 { return a | e }),
		"s_xor_saveexec_b64":   saveexec(func(a, e uint64) uint64 { return a ^ e }),
		"s_andn2_saveexec_b64": saveexec(func(a, e uint64) uint64 { return a &^ e }),
		"s_orn2_saveexec_b64":  saveexec(func(a, e uint64) uint64 { return a | ^e }),
		"s_andn1_saveexec_b64": saveexec(func(a, e uint64) uint64 { return ^a & e }),
		"s_orn1_saveexec_b64":  saveexec(func(a, e uint64) uint64 { return ^a | e }),

		"s_movk_i32": sopk(func(w *wave, d int, k int32) { w.s[d] = uint32(k) }),
		"s_addk_i32": sopkChanges(true, func(w *wave, d int, k int32) {
			a, r := w.s[d], w.s[d]+uint32(k)
			w.s[d], w.scc = r, overflow(a, uint32(k), r)
		}),
		"s_mulk_i32": sopkChanges(false, func(w *wave, d int, k int32) { w.s[d] *= uint32(k) }),
		"s_cmovk_i32": func(c *compiler) step {
			c.reads(regSCC)
			d, k := c.scalarChanged(0, 1), c.imm16(1)
			return func(w *wave) {
				if w.scc {
					w.s[d] = uint32(k)
				}
			}
		},

		"s_cmov_b32": func(c *compiler) step {
			c.reads(regSCC)
			d, a := c.scalarChanged(0, 1), c.scalarSource(1, 32)
			return func(w *wave) {
				if w.scc {
					w.s[d] = a.get(w)
				}
			}
		},
		"s_cmov_b64": func(c *compiler) step {
			c.reads(regSCC)
			d, a := c.scalarChanged(0, 2), c.scalarSource(1, 64)
			return func(w *wave) {
				if w.scc {
					w.setS64(d, a.get64(w))
				}
			}
		},
		"s_cselect_b32": func(c *compiler) step {
			c.reads(regSCC)
			d, a, b := c.scalarDest(0, 1), c.scalarSource(1, 32), c.scalarSource(2, 32)
			return func(w *wave) {
				if w.scc {
					w.s[d] = a.get(w)
				} else {
					w.s[d] = b.get(w)
				}
			}
		},
		"s_cselect_b64": func(c *compiler) step {
			c.reads(regSCC)
			d, a, b := c.scalarDest(0, 2), c.scalarSource(1, 64), c.scalarSource(2, 64)
			return func(w *wave) {
				if w.scc {
					w.setS64(d, a.get64(w))
				} else {
					w.setS64(d, b.get64(w))
				}
			}
		},
		"s_bitset0_b32": sop1DestIn(1, func(d uint64, a uint32) uint64 { return d &^ (1 << (a & 31)) }),
		"s_bitset1_b32": sop1DestIn(1, func(d uint64, a uint32) uint64 { return d | 1<<(a&31) }),
		"s_bitset0_b64": sop1DestIn(2, func(d uint64, a uint32) uint64 { return d &^ (1 << (a & 63)) }),
		"s_bitset1_b64": sop1DestIn(2, func(d uint64, a uint32) uint64 { return d | 1<<(a&63) }),
	})
}

// sop1DestIn changes its destination of n registers by a 32-bit source.
func sop1DestIn(n int, f func(d uint64, a uint32) uint64) compile {
	return func(c *compiler) step {
		d, a := c.scalarChanged(0, n), c.scalarSource(1, 32)
		if n == 1 {
			return func(w *wave) { w.s[d] = uint32(f(uint64(w.s[d]), a.get(w))) }
		}
		return func(w *wave) { w.setS64(d, f(w.s64(d), a.get(w))) }
	}
}

func lshlAdd(n uint) compile {
	return sop2x32scc(func(a, b uint32) (uint32, bool) {
		r := uint64(a)<<n + uint64(b)
		return uint32(r), r>>32 != 0
	})
}

// firstOne is the index of the lowest set bit, -1 for none.
func firstOne(a uint64) uint32 {
	if a == 0 {
		return ^uint32(0)
	}
	return uint32(bits.TrailingZeros64(a))
}

// leadingZeros32 counts them, -1 if there is no one.
func leadingZeros32(a uint32) uint32 {
	if a == 0 {
		return ^uint32(0)
	}
	return uint32(bits.LeadingZeros32(a))
}

func leadingZeros64(a uint64) uint32 {
	if a == 0 {
		return ^uint32(0)
	}
	return uint32(bits.LeadingZeros64(a))
}

// signExtend extends the low n bits of x.
func signExtend(x uint32, n int) uint32 {
	if n <= 0 {
		return 0
	}
	if n >= 32 {
		return x
	}
	return uint32(int32(x<<(32-n)) >> (32 - n))
}
