package emu

import (
	"math"

	"github.com/kiln-project/kiln/ir/num"
)

// Conversions of gfx950 between block-scaled codes and floats. The scale is an f32 of
// which the exponent alone counts: 2^(exponent - 127), NaN if the exponent is 255.
// Codes to floats multiply by it, floats to codes divide.
//
// Those to fp8 and bf8 are not here: what they do with values out of range is not
// documented.

// scaleOf is the value of a scale.
func scaleOf(s uint32) float64 {
	e := int(s >> 23 & 0xff)
	if e == 0xff {
		return math.NaN()
	}
	return math.Ldexp(1, e-127)
}

// scaledSources are formats whose codes are decoded, with their bits.
var scaledSources = map[string]struct {
	bits   uint32
	decode func(code uint32) float64
}{
	"fp8": {8, func(c uint32) float64 { return float64(math.Float32frombits(float8Formats["gfx950"]["fp8"].values[c])) }},
	"bf8": {8, func(c uint32) float64 { return float64(math.Float32frombits(float8Formats["gfx950"]["bf8"].values[c])) }},
	"fp4": {4, func(c uint32) float64 { return float64(num.FromE2M1(byte(c))) }},
}

// scaledFloats are the formats on the other side: their bits, rounding from f64 and
// the exact value.
var scaledFloats = map[string]struct {
	bits  uint32
	round func(x float64) uint32
	value func(x uint32) float64
}{
	"f32": {32, func(x float64) uint32 { return math.Float32bits(float32(x)) }, func(x uint32) float64 { return float64(math.Float32frombits(x)) }},
	"f16": {16, func(x float64) uint32 { return uint32(halfOf(x)) }, func(x uint32) float64 { return float64(fromHalf(x & 0xffff)) }},
	"bf16": {16, func(x float64) uint32 { return toBF16(math.Float32bits(num.RoundBF16F64(x))) },
		func(x uint32) float64 { return float64(math.Float32frombits(x << 16)) }},
}

func init() {
	rows := map[string]compile{}
	for to := range scaledFloats {
		for from, f := range scaledSources {
			rows["v_cvt_scalef32_pk_"+to+"_"+from] = scaledDecode(from, to, true)
			if f.bits == 8 && to == "f32" {
				rows["v_cvt_scalef32_"+to+"_"+from] = scaledDecode(from, to, false)
			}
		}
		rows["v_cvt_scalef32_pk_fp4_"+to] = scaledEncode(to)
	}
	define(rows, "gfx950")
}

// scaledDecode compiles D, codes, scale. op_sel's first bits choose the byte, or for a
// pair of 8-bit codes the halfword, of the codes.
func scaledDecode(from, to string, pair bool) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault, EncE64)
		f, t := scaledSources[from], scaledFloats[to]
		sel := c.bits("op_sel", 3, 0)
		shift := 8 * uint32(sel&3)
		if pair && f.bits == 8 {
			shift = 16 * uint32(sel&1)
			if sel&2 != 0 {
				c.fail("op_sel chooses a byte of a pair of bytes")
			}
		}
		if sel&4 != 0 {
			c.fail("op_sel chooses a half of the destination")
		}
		mask := uint32(1)<<f.bits - 1
		if pair && t.bits == 32 {
			return valuRow{types: []elem{b64, b32, f32}, wide: func(d0, d1, a, _, b, _, _, _ *Vec) {
				for i := range d0 {
					x, s := a[i]>>shift, scaleOf(b[i])
					d0[i], d1[i] = t.round(f.decode(x&mask)*s), t.round(f.decode(x>>f.bits&mask)*s)
				}
			}}.compile(c)
		}
		return valuRow{types: []elem{b32, b32, f32}, narrow: func(d, a, b, _ *Vec) {
			for i := range d {
				x, s := a[i]>>shift, scaleOf(b[i])
				d[i] = t.round(f.decode(x&mask) * s)
				if pair {
					d[i] |= t.round(f.decode(x>>f.bits&mask)*s) << 16
				}
			}
		}}.compile(c)
	}
}

// scaledEncode compiles D, two f32 or a pair of 16-bit floats, scale: two fp4 codes in
// the byte of the destination that op_sel's last two bits choose; the others stay.
// Too large is the largest code. fp4 has no NaN: which code it becomes is not
// documented, here it is the largest one.
func scaledEncode(from string) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault, EncE64)
		f := scaledFloats[from]
		sel := c.bits("op_sel", 4, 0)
		if sel&3 != 0 {
			c.fail("op_sel chooses a half of a source")
		}
		encode := func(x uint32, s float64) uint32 { return uint32(encodeE2M1(f.value(x) / s)) }
		types := []elem{b32, f32, f32, f32}
		do := func(d, a, b, s *Vec) {
			for i := range d {
				scale := scaleOf(s[i])
				d[i] = encode(a[i], scale) | encode(b[i], scale)<<4
			}
		}
		if f.bits == 16 {
			types = []elem{b32, b32, f32}
			do = func(d, a, s, _ *Vec) {
				for i := range d {
					scale := scaleOf(s[i])
					d[i] = encode(a[i]&0xffff, scale) | encode(a[i]>>16, scale)<<4
				}
			}
		}
		o := c.operation(0, 1, types)
		o.dst.part = &part{width: 8, shift: 8 * uint32(sel>>2), unused: unusedPreserve}
		c.writesPart(o.dst.part)
		return o.step(do, nil)
	}
}

// encodeE2M1 rounds to the nearest fp4 code, ties to even. The value fits an f32: it
// is one times a power of two, and beyond an f32's range it is 0 or the largest code.
func encodeE2M1(x float64) byte {
	const limit = 1 << 10
	return num.E2M1(float32(min(max(x, -limit), limit)))
}
