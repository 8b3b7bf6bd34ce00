package emu

import "math"

// v_fma_mix: an f32 FMA whose sources are f32 or halves. op_sel_hi marks the halves,
// op_sel chooses which half of the register it is. The 16-bit forms round the f32
// result once more, as the ISA document's f32_to_f16(fma(...)) says.
func init() {
	define(map[string]compile{
		"v_fma_mix_f32":   mix(nil),
		"v_fma_mixlo_f16": mix(&part{width: 16, unused: unusedPreserve}),
		"v_fma_mixhi_f16": mix(&part{shift: 16, width: 16, unused: unusedPreserve}),
	})
}

// mixed is a source of v_fma_mix.
type mixed struct {
	*source
	half     bool
	shift    uint32
	neg, abs uint32 // on the value as an f32
}

func mix(into *part) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault)
		types := []elem{f32, f32, f32, f32}
		if into != nil {
			types[0] = f16
		}
		o := &operation{n: 3, dst: c.destination(0, types[0])}
		o.dst.part = into
		c.writesPart(into)
		upper, half := c.bits("op_sel", 3, 0), c.bits("op_sel_hi", 3, 0)
		var list [3]mixed
		for i := range list {
			s := c.vectorSource(1+i, i, f32)
			m := mixed{source: s, half: half>>i&1 != 0, shift: 16 * uint32(upper>>i&1), neg: s.neg, abs: s.abs}
			if !m.half && m.shift != 0 {
				c.fail("op_sel chooses a half of operand %d, which is none", i+2)
			}
			if m.half && s.kind == sourceConstant {
				c.fail("operand %d: a constant as a half is not supported", i+2)
			}
			if m.half {
				s.neg, s.abs = 0, 0
			}
			list[i] = m
		}
		c.outputModifiers(o, types[0])
		fma := valuRows["v_fma_f32"].narrow
		return func(w *wave) {
			var p [3]*Vec
			for i := range list {
				p[i] = list[i].get(w, 2*i)
			}
			fma(&w.result[0], p[0], p[1], p[2])
			if into != nil {
				for i, x := range &w.result[0] {
					w.result[0][i] = toHalf(math.Float32frombits(x))
				}
			}
			o.dst.store(w)
		}
	}
}

// get returns the source as an f32.
func (m *mixed) get(w *wave, slot int) *Vec {
	v := m.word(w, 0, slot)
	if !m.half {
		return v
	}
	q := &w.operand[slot]
	for i := range q {
		q[i] = math.Float32bits(fromHalf(v[i]>>m.shift&0xffff))&^m.abs ^ m.neg
	}
	return q
}
