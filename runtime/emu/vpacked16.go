package emu

// Packed instructions of two 16-bit results in one register: the loop of the 16-bit
// instruction runs for each half. A constant is a whole word: an integer is sign
// extended, a float is a half with zeros above it (LLVM's getInlineEncodingV216).

// packed16Ops are the packed instructions by the instruction of a half.
var packed16Ops = map[string]string{
	"v_pk_add_f16": "v_add_f16", "v_pk_mul_f16": "v_mul_f16", "v_pk_fma_f16": "v_fma_f16", "v_pk_max_f16": "v_max_f16", "v_pk_min_f16": "v_min_f16",
	"v_pk_add_u16": "v_add_u16", "v_pk_sub_u16": "v_sub_u16", "v_pk_add_i16": "v_add_i16", "v_pk_sub_i16": "v_sub_i16",
	"v_pk_mul_lo_u16": "v_mul_lo_u16", "v_pk_mad_u16": "v_mad_u16", "v_pk_mad_i16": "v_mad_i16",
	"v_pk_max_u16": "v_max_u16", "v_pk_min_u16": "v_min_u16", "v_pk_max_i16": "v_max_i16", "v_pk_min_i16": "v_min_i16",
	"v_pk_lshlrev_b16": "v_lshlrev_b16", "v_pk_lshrrev_b16": "v_lshrrev_b16", "v_pk_ashrrev_i16": "v_ashrrev_i16",
}

func init() {
	rows := map[string]compile{}
	for op, of := range packed16Ops {
		rows[op] = packed16(valuRows[of])
	}
	define(rows)
	define(map[string]compile{
		"v_pk_maximum3_f16": packed16(valuRow{types: []elem{f16, f16, f16, f16}, narrow: maximum3Half}),
		"v_pk_minimum3_f16": packed16(valuRow{types: []elem{f16, f16, f16, f16}, narrow: minimum3Half}),
	}, "gfx950")
}

func maximum3Half(d, a, b, c *Vec) {
	for i := range d {
		d[i] = toHalf(max(fromHalf(a[i]), fromHalf(b[i]), fromHalf(c[i])))
	}
}

func minimum3Half(d, a, b, c *Vec) {
	for i := range d {
		d[i] = toHalf(min(fromHalf(a[i]), fromHalf(b[i]), fromHalf(c[i])))
	}
}

func packed16(r valuRow) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault)
		d, n := c.vectorDest(0, 1), len(r.types)-1
		list := c.packedSources(n, r.types[1])
		for i := range list {
			list[i].source = c.vectorSource(1+i, i, r.types[i+1])
		}
		do, clamp := r.narrow, false
		if r.types[0] == f16 {
			clamp = c.flag("clamp")
		} else if r.narrowSaturated != nil && c.flag("clamp") {
			do = r.narrowSaturated
		}
		return c.notIndexed(func(w *wave) {
			var p [3]*Vec
			for j := range 2 {
				for i := range list {
					p[i] = list[i].pick16(w, j, 2*i)
				}
				do(&w.result[j], p[0], p[1], p[2])
				if clamp {
					clamp16(&w.result[j], nil)
				}
			}
			low, high := &w.result[0], &w.result[1]
			for i := range low {
				low[i] |= high[i] << 16
			}
			write(&w.v[d], low, w.exec())
		})
	}
}

// pick16 returns the half for result j, in the low bits.
func (p *packed) pick16(w *wave, j, slot int) *Vec {
	v, q := p.word(w, 0, slot), &w.operand[slot+1]
	sign := uint32(0)
	if p.neg[j] {
		sign = 1 << 15
	}
	shift := 16 * p.half[j]
	for i := range q {
		q[i] = v[i]>>shift&0xffff ^ sign
	}
	return q
}
