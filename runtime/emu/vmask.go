package emu

import (
	"math"
	"math/bits"
)

// Vector instructions that read or write a mask of lanes in scalar registers: carries,
// v_cndmask, division. A mask written has zeros for lanes that are switched off.

// carryLoop adds or subtracts with a carry per lane.
type carryLoop func(d, a, b *Vec, in uint64) (out uint64)

func init() {
	add := func(d, a, b *Vec, in uint64) (out uint64) {
		for i := range d {
			r, c := bits.Add32(a[i], b[i], uint32(in>>i&1))
			d[i] = r
			out = out>>1 | uint64(c)<<63
		}
		return out
	}
	sub := func(d, a, b *Vec, in uint64) (out uint64) {
		for i := range d {
			r, c := bits.Sub32(a[i], b[i], uint32(in>>i&1))
			d[i] = r
			out = out>>1 | uint64(c)<<63
		}
		return out
	}
	subrev := func(d, a, b *Vec, in uint64) uint64 { return sub(d, b, a, in) }
	define(map[string]compile{
		"v_add_co_u32":     carries(add, false),
		"v_sub_co_u32":     carries(sub, false),
		"v_subrev_co_u32":  carries(subrev, false),
		"v_addc_co_u32":    carries(add, true),
		"v_subb_co_u32":    carries(sub, true),
		"v_subbrev_co_u32": carries(subrev, true),
		"v_cndmask_b32":    cndmask,
		"v_div_scale_f32":  divScale(f32),
		"v_div_scale_f64":  divScale(f64),
		"v_div_fmas_f32":   divFmas(f32),
		"v_div_fmas_f64":   divFmas(f64),
		"v_mad_u64_u32":    mad64(madU64),
		"v_mad_i64_i32":    mad64(madI64),
	})
}

// maskSource compiles a pair of scalar registers with a bit per lane.
func (c *compiler) maskSource(i int) int {
	o := c.plain(c.arg(i))
	if o.Kind != SGPR || o.Count != 2 {
		c.fail("operand %s is no mask of lanes", o.Text)
		return 0
	}
	c.readsScalar(i, o.Reg, 2)
	return o.Reg
}

// carries compiles D, carry out, S0, S1 and, with carry, carry in.
func carries(do carryLoop, hasIn bool) compile {
	return func(c *compiler) step {
		o := c.operation(0, 2, []elem{b32, b32, b32})
		out, in := c.scalarDest(1, 2), 0
		if hasIn {
			in = c.maskSource(4)
		}
		a, b := o.src[0], o.src[1]
		return func(w *wave) {
			x, y := a.word(w, 0, 0), b.word(w, 0, 2)
			m := uint64(0)
			if hasIn {
				m = w.s64(in)
			}
			// Lanes that DPP does not write have no carry, as if they were switched off.
			e := w.exec()
			if o.dst.dpp != nil {
				e = o.dst.dpp.written(e)
			}
			m = do(&w.result[0], x, y, m) & e
			o.dst.store(w)
			w.setS64(out, m)
		}
	}
}

// cndmask is S1 where the mask has a one, S0 elsewhere. Signs and bars are those of
// f32.
func cndmask(c *compiler) step {
	o := c.operation(0, 1, []elem{b32, f32, f32})
	mask := c.maskSource(3)
	a, b := o.src[0], o.src[1]
	simple, d := o.dst.simple(), o.dst.reg
	return func(w *wave) {
		x, y := a.word(w, 0, 0), b.word(w, 0, 2)
		m, r := w.s64(mask), &w.result[0]
		if simple && w.exec() == ^uint64(0) {
			r = &w.v[d]
		}
		for i := range r {
			t := -uint32(m >> i & 1)
			r[i] = x[i] ^ (x[i]^y[i])&t
		}
		if r == &w.result[0] {
			o.dst.store(w)
		}
	}
}

// divScale compiles D, flags, S0, S1, S2 (see divScale32).
func divScale(e elem) compile {
	return func(c *compiler) step {
		o := c.operation(0, 2, []elem{e, e, e, e})
		flags := c.scalarDest(1, 2)
		return func(w *wave) {
			var p [3][2]*Vec
			for i := range p {
				p[i] = o.src[i].words(w, i)
			}
			m := uint64(0)
			if e == f32 {
				m = divScaleLoop(&w.result[0], p[0][0], p[1][0], p[2][0])
			} else {
				for i := range Lanes {
					r, flag := divScale64(float64At(p[0], i), float64At(p[1], i), float64At(p[2], i))
					setFloat64(&w.result, i, r)
					m |= uint64(b2u(flag)) << i
				}
			}
			m &= w.exec()
			o.dst.store(w)
			w.setS64(flags, m)
		}
	}
}

// divFmas compiles D, S0, S1, S2, with the flags in VCC (see divFmas32).
func divFmas(e elem) compile {
	return func(c *compiler) step {
		o := c.operation(0, 1, []elem{e, e, e, e})
		c.reads(regVCC)
		return func(w *wave) {
			var p [3][2]*Vec
			for i := range p {
				p[i] = o.src[i].words(w, i)
			}
			flags := w.vcc()
			if e == f32 {
				// A source may be the destination, which divFmasLoop reads again.
				divFmasLoop(&w.result[0], p[0][0], p[1][0], p[2][0], flags)
			} else {
				for i := range Lanes {
					setFloat64(&w.result, i, divFmas64(float64At(p[0], i), float64At(p[1], i), float64At(p[2], i), flags>>i&1 != 0))
				}
			}
			o.dst.store(w)
		}
	}
}

func float64At(p [2]*Vec, i int) float64 {
	return math.Float64frombits(uint64(p[0][i&63]) | uint64(p[1][i&63])<<32)
}

func setFloat64(r *[16]Vec, i int, x float64) {
	b := math.Float64bits(x)
	r[0][i&63], r[1][i&63] = uint32(b), uint32(b>>32)
}

// madU64 and madI64 are a*b + c of 64 bits and the carry or the signed overflow.
func madU64(a, b uint32, c uint64) (uint64, bool) {
	r, carry := bits.Add64(uint64(a)*uint64(b), c, 0)
	return r, carry != 0
}

func madI64(a, b uint32, c uint64) (uint64, bool) {
	p := uint64(int64(int32(a)) * int64(int32(b)))
	r := p + c
	return r, (p^r)&(c^r)>>63 != 0
}

// mad64 compiles D, carry out, S0, S1, S2.
func mad64(do func(a, b uint32, c uint64) (uint64, bool)) compile {
	return func(c *compiler) step {
		o := c.operation(0, 2, []elem{b64, b32, b32, b64})
		out := c.scalarDest(1, 2)
		return func(w *wave) {
			x, y, z := o.src[0].word(w, 0, 0), o.src[1].word(w, 0, 2), o.src[2].words(w, 2)
			m := uint64(0)
			for i := range x {
				r, carry := do(x[i], y[i], uint64(z[0][i])|uint64(z[1][i])<<32)
				w.result[0][i], w.result[1][i] = uint32(r), uint32(r>>32)
				m = m>>1 | uint64(b2u(carry))<<63
			}
			m &= w.exec()
			o.dst.store(w)
			w.setS64(out, m)
		}
	}
}
