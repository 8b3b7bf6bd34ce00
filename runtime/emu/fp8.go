package emu

import "math"

// float8 is an 8-bit float format.
type float8 struct {
	man, bias uint32
	max       uint32 // the code of the largest finite magnitude
	overflow  uint32 // the code of what rounds to more: NaN, or infinity where there is one
	nan       uint32
	fnuz      bool // one zero, one NaN, no infinity
	values    [256]uint32
}

// float8Formats are the two formats of a chip, by their name in mnemonics. gfx942 has
// the FNUZ formats, gfx950 those of OCP.
var float8Formats = map[string]map[string]*float8{
	"gfx942": {
		"fp8": newFloat8(float8{man: 3, bias: 8, max: 0x7f, overflow: 0x80, nan: 0x80, fnuz: true}),
		"bf8": newFloat8(float8{man: 2, bias: 16, max: 0x7f, overflow: 0x80, nan: 0x80, fnuz: true}),
	},
	"gfx950": {
		"fp8": newFloat8(float8{man: 3, bias: 7, max: 0x7e, overflow: 0x7f, nan: 0x7f}),
		"bf8": newFloat8(float8{man: 2, bias: 15, max: 0x7b, overflow: 0x7c, nan: 0x7f}),
	},
}

// newFloat8 fills the table of values, as the bits of f32.
func newFloat8(f float8) *float8 {
	for c := range uint32(256) {
		e, m := int(c>>f.man&(0x7f>>f.man)), float64(c&(1<<f.man-1))
		if e == 0 {
			e = 1
		} else {
			m += float64(uint32(1) << f.man)
		}
		v := math.Float32bits(float32(math.Ldexp(m, e-int(f.bias)-int(f.man))))
		switch code := c & 0x7f; {
		case f.fnuz && c == 0x80:
			v = nan32
		case f.fnuz || code <= f.max:
			v |= c << 24 & sign32
		case code == f.overflow && f.overflow != f.nan:
			v = c<<24&sign32 | inf32
		default:
			v = c<<24&sign32 | nan32
		}
		f.values[c] = v
	}
	return &f
}

// encode rounds the bits of an f32 to the nearest code, ties to even. Nothing is
// clamped: what rounds to more than the largest code overflows, as the hardware does
// while the mode's FP16_OVFL bit is clear. A NaN keeps its sign where the format has
// one for it.
func (f *float8) encode(x uint32) uint32 {
	sign, a := x>>24&0x80, x&^sign32
	if f.fnuz {
		if a > inf32 {
			return f.nan
		}
		r := f.round(a)
		switch {
		case r == 0:
			return 0
		case r > f.max:
			return f.overflow
		}
		return sign | r
	}
	if a > inf32 {
		return sign | f.nan
	}
	if r := f.round(a); r <= f.max {
		return sign | r
	}
	return sign | f.overflow
}

// round returns exponent and mantissa of a magnitude, next to each other. A carry out
// of the mantissa goes into the exponent, as it must; an exponent that the format does
// not have is larger than max.
func (f *float8) round(a uint32) uint32 {
	least := 128 - f.bias // f32 exponent of the smallest normal number
	e, m := a>>23, a&0x7fffff|0x800000
	shift := 23 - f.man
	base := uint32(0)
	if e >= least {
		base = (e - least) << f.man
	} else {
		shift += least - e
	}
	if shift > 25 || e == 0 { // less than half of the smallest
		return 0
	}
	return base + (m+1<<(shift-1)-1+m>>shift&1)>>shift
}

func init() {
	rows := map[string]compile{}
	for _, name := range []string{"fp8", "bf8"} {
		rows["v_cvt_f32_"+name] = func(c *compiler) step {
			f := float8Formats[c.chip][name]
			return valuRow{types: []elem{f32, b32}, narrow: func(d, a, _, _ *Vec) {
				for i := range d {
					d[i] = f.values[a[i]&0xff]
				}
			}}.compile(c)
		}
		rows["v_cvt_pk_f32_"+name] = func(c *compiler) step {
			f := float8Formats[c.chip][name]
			return valuRow{types: []elem{b64, b32}, wide: func(d0, d1, a, _, _, _, _, _ *Vec) {
				for i := range d0 {
					x := a[i]
					d0[i], d1[i] = f.values[x&0xff], f.values[x>>8&0xff]
				}
			}}.compile(c)
		}
		rows["v_cvt_pk_"+name+"_f32"] = func(c *compiler) step {
			f := float8Formats[c.chip][name]
			return c.intoHalf([]elem{b32, f32, f32}, func(d, a, b, _ *Vec) {
				for i := range d {
					d[i] = f.encode(a[i]) | f.encode(b[i])<<8
				}
			})
		}
	}
	define(rows)
}

// intoHalf compiles an instruction with a 16-bit result, for which op_sel's last bit
// chooses the half of the destination; the other half stays.
func (c *compiler) intoHalf(types []elem, do narrowLoop) step {
	c.encodings(EncDefault, EncE64)
	sel := c.bits("op_sel", len(types), 0)
	if sel&^(1<<(len(types)-1)) != 0 {
		c.fail("op_sel chooses a half of a source")
	}
	o := c.operation(0, 1, types)
	o.dst.part = &part{width: 16, shift: 16 * uint32(sel>>(len(types)-1)), unused: unusedPreserve}
	c.writesPart(o.dst.part)
	c.writesPart(o.dst.part)
	return o.step(do, nil)
}
