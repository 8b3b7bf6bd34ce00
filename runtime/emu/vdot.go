package emu

// Dot products of small integers: the products and the sum are exact, the result is
// cut off to 32 bits, or saturated with clamp. The forms with c accumulate in their
// destination. Those of floats are not here: the order and the number of their
// roundings are not documented.

func init() {
	rows := map[string]compile{}
	for _, d := range []struct {
		op     string
		bits   uint32
		signed bool
	}{
		{"v_dot2_i32_i16", 16, true}, {"v_dot2_u32_u16", 16, false},
		{"v_dot4_i32_i8", 8, true}, {"v_dot4_u32_u8", 8, false},
		{"v_dot8_i32_i4", 4, true}, {"v_dot8_u32_u4", 4, false},
	} {
		rows[d.op] = dot(dotLoop(d.bits, d.signed, false), dotLoop(d.bits, d.signed, true))
	}
	for op, bits := range map[string]uint32{"v_dot2c_i32_i16": 16, "v_dot4c_i32_i8": 8, "v_dot8c_i32_i4": 4} {
		rows[op] = valuRow{types: []elem{b32, b32, b32, b32}, narrow: dotLoop(bits, true, false)}.compile
	}
	define(rows)
}

func dot(plain, saturated narrowLoop) compile {
	return func(c *compiler) step {
		c.encodings(EncDefault)
		return valuRow{types: []elem{b32, b32, b32, b32}, narrow: plain, narrowSaturated: saturated}.compile(c)
	}
}

func dotLoop(bits uint32, signed, saturate bool) narrowLoop {
	up := 32 - bits
	return func(d, a, b, c *Vec) {
		for i := range d {
			x, y := a[i], b[i]
			if signed {
				s := int64(int32(c[i]))
				for k := uint32(0); k < 32; k += bits {
					s += int64(int32(x<<(up-k))>>up) * int64(int32(y<<(up-k))>>up)
				}
				if saturate {
					s = int64(satI32(s))
				}
				d[i] = uint32(s)
				continue
			}
			s := uint64(c[i])
			for k := uint32(0); k < 32; k += bits {
				s += uint64(x<<(up-k)>>up) * uint64(y<<(up-k)>>up)
			}
			if saturate {
				s = uint64(satU32(s))
			}
			d[i] = uint32(s)
		}
	}
}
