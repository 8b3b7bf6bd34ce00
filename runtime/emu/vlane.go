package emu

import "math/bits"

// Instructions between lanes, and those without lanes.
func init() {
	define(map[string]compile{
		"v_nop":               func(*compiler) step { return func(*wave) {} },
		"v_readfirstlane_b32": readfirstlane,
		"v_readlane_b32":      readlane,
		"v_writelane_b32":     writelane,
		"v_swap_b32":          swap,
		"v_mbcnt_lo_u32_b32":  mbcnt(0),
		"v_mbcnt_hi_u32_b32":  mbcnt(32),
	})
	define(map[string]compile{
		"v_permlane16_swap_b32": permlaneSwap(16),
		"v_permlane32_swap_b32": permlaneSwap(32),
	}, "gfx950")
}

// notIndexed makes a step fail in VGPR index mode, where the effect on it is not
// documented.
func (c *compiler) notIndexed(s step) step {
	if !c.indexed {
		return s
	}
	in := c.in
	return func(w *wave) {
		if w.gprIndexed {
			w.fail(in, "not supported in VGPR index mode")
			return
		}
		s(w)
	}
}

// exchanged compiles operand i, a vector register that is read and written.
func (c *compiler) exchanged(i int) int {
	c.vectorData(i, 1)
	return c.vectorDest(i, 1)
}

// readfirstlane reads the first active lane, or lane 0 if none is.
func readfirstlane(c *compiler) step {
	d, a := c.scalarDest(0, 1), c.vectorData(1, 1)
	return c.notIndexed(func(w *wave) {
		w.s[d] = w.v[a][bits.TrailingZeros64(w.exec())&63]
	})
}

// readlane and writelane ignore EXEC; the lane is taken modulo 64.
func readlane(c *compiler) step {
	d, a, lane := c.scalarDest(0, 1), c.vectorData(1, 1), c.scalarSource(2, 32)
	return c.notIndexed(func(w *wave) { w.s[d] = w.v[a][lane.get(w)&63] })
}

func writelane(c *compiler) step {
	d, x, lane := c.vectorDest(0, 1), c.scalarSource(1, 32), c.scalarSource(2, 32)
	return c.notIndexed(func(w *wave) { w.v[d][lane.get(w)&63] = x.get(w) })
}

func swap(c *compiler) step {
	a, b := c.exchanged(0), c.exchanged(1)
	return c.notIndexed(func(w *wave) {
		x, y := &w.v[a], &w.v[b]
		for m := w.exec(); m != 0; m &= m - 1 {
			i := bits.TrailingZeros64(m) & 63
			x[i], y[i] = y[i], x[i]
		}
	})
}

// mbcnt counts the ones of S0 below the lane, of the half of the lanes from first, and
// adds S1.
func mbcnt(first int) compile {
	var below Vec // the bits of lanes below, in the half
	for i := range below {
		n := min(max(i-first, 0), 32)
		below[i] = uint32(uint64(1)<<n - 1)
	}
	loop := func(d, a, b, _ *Vec) {
		for i := range d {
			d[i] = uint32(bits.OnesCount32(a[i]&below[i])) + b[i]
		}
	}
	return valuRow{types: []elem{b32, b32, b32}, narrow: loop}.compile
}

// permlaneSwap exchanges the odd rows of n lanes of the first register with the even
// rows of the second one: the lanes whose bit n is set in the first with those n below
// in the second. What happens to a lane whose partner EXEC switches off is not
// documented for the short form.
func permlaneSwap(n int) compile {
	var odd uint64
	for i := range Lanes {
		odd |= uint64(i/n&1) << i
	}
	return func(c *compiler) step {
		c.encodings(EncE32, EncE64)
		a, b := c.exchanged(0), c.exchanged(1)
		if a == b {
			c.fail("both operands are %s", c.in.Args[0].Text)
		}
		in := c.in
		return c.notIndexed(func(w *wave) {
			e := w.exec()
			pairs := e &^ odd
			if (e&odd)>>n != pairs {
				w.fail(in, "EXEC is %#x: a lane is active whose partner is not", e)
				return
			}
			x, y := &w.v[a], &w.v[b]
			for m := pairs; m != 0; m &= m - 1 {
				i := bits.TrailingZeros64(m) & 63
				j := (i + n) & 63
				x[j], y[i] = y[i], x[j]
			}
		})
	}
}
