package emu

// Packed instructions: two results at once. op_sel and op_sel_hi choose, for the low
// and for the high result, which half of a source is taken; neg_lo and neg_hi flip its
// sign.

// packed is the choice for one source.
type packed struct {
	*source
	half     [2]uint32 // of the low and of the high result: 0 low, 1 high
	neg      [2]bool
	identity bool // low of low, high of high, no sign flipped
}

// packedSources compiles n sources from operand 1.
func (c *compiler) packedSources(n int, e elem) []packed {
	low, high := c.bits("op_sel", n, 0), c.bits("op_sel_hi", n, 1<<n-1)
	var negLow, negHigh uint
	if e.float() {
		negLow, negHigh = c.bits("neg_lo", n, 0), c.bits("neg_hi", n, 0)
	}
	var list []packed
	for i := range n {
		// neg_lo and neg_hi are printed apart; signs at an operand mean something else.
		c.plain(c.arg(1 + i))
		p := packed{half: [2]uint32{uint32(low >> i & 1), uint32(high >> i & 1)}, neg: [2]bool{negLow>>i&1 != 0, negHigh>>i&1 != 0}}
		p.identity = p.half == [2]uint32{0, 1} && p.neg == [2]bool{}
		list = append(list, p)
	}
	return list
}

type packedLoop func(d, a, b, c *Vec)

func init() {
	loop := func(op string) packedLoop { return packedLoop(valuRows[op].narrow) }
	define(map[string]compile{
		"v_pk_fma_f32": packed32(3, loop("v_fma_f32")),
		"v_pk_mul_f32": packed32(2, loop("v_mul_f32")),
		"v_pk_add_f32": packed32(2, loop("v_add_f32")),
		"v_pk_mov_b32": packedMov,
	})
}

// packed32 compiles an instruction of pairs of f32.
func packed32(n int, do packedLoop) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault)
		d := c.vectorDest(0, 2)
		list := c.packedSources(n, f32)
		for i := range list {
			list[i].source = c.pairSource(1+i, i, &list[i])
		}
		clamp := c.flag("clamp")
		return c.notIndexed(func(w *wave) {
			e := w.exec()
			var p [3]*Vec
			// The low result waits: it may be a source of the high one.
			for j := range 2 {
				for i := range list {
					p[i] = list[i].pick(w, j, 2*i)
				}
				do(&w.result[j], p[0], p[1], p[2])
				if clamp {
					clamp32(&w.result[j], nil)
				}
			}
			write(&w.v[d], &w.result[0], e)
			write(&w.v[d+1], &w.result[1], e)
		})
	}
}

// pairSource compiles a source of two registers. A constant stands in the low half;
// what the high half is then is not documented, so only the low one can be chosen,
// unless the constant is 0, which is 0 either way.
func (c *compiler) pairSource(i, nth int, p *packed) *source {
	o := c.arg(i)
	if v, constant := o.constant(f32); !constant || v == 0 {
		return c.vectorSource(i, nth, b64)
	}
	if p.half != [2]uint32{} {
		c.fail("operand %s: only the low half of a constant is defined", o.Text)
	}
	return c.vectorSource(i, nth, f32)
}

// pick returns the half for result j.
func (p *packed) pick(w *wave, j, slot int) *Vec {
	v := p.word(w, int(p.half[j]), slot)
	if !p.neg[j] {
		return v
	}
	q := &w.operand[slot]
	for i := range q {
		q[i] = v[i] ^ sign32
	}
	return q
}

// packedMov makes a pair of one word of each source.
func packedMov(c *compiler) step {
	c.encodings(EncDefault)
	d := c.vectorDest(0, 2)
	low, high := c.bits("op_sel", 2, 0), c.bits("op_sel_hi", 2, 3)
	if high != 3 {
		c.fail("op_sel_hi means nothing here")
	}
	a := c.pairSource(1, 0, &packed{half: [2]uint32{uint32(low & 1)}})
	b := c.pairSource(2, 1, &packed{half: [2]uint32{uint32(low >> 1)}})
	return c.notIndexed(func(w *wave) {
		w.result[0] = *a.word(w, int(low&1), 0)
		w.result[1] = *b.word(w, int(low>>1), 2)
		e := w.exec()
		write(&w.v[d], &w.result[0], e)
		write(&w.v[d+1], &w.result[1], e)
	})
}
