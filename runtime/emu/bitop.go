package emu

func init() {
	define(map[string]compile{"v_bitop3_b32": bitop3(b32), "v_bitop3_b16": bitop3(b16)}, "gfx950")
}

// bitop3 applies a truth table to each bit; its index is S0<<2 | S1<<1 | S2.
func bitop3(e elem) compile {
	return func(c *compiler) step {
		table := c.number("bitop3", 0)
		if table < 0 || table > 255 {
			c.fail("modifier bitop3:%#x is no table of 8 bits", table)
		}
		var t [8]uint32
		for i := range t {
			t[i] = -uint32(table >> i & 1)
		}
		// The table as choices: by c between the ends of a pair, then by b, then by a.
		t0, t2, t4, t6 := t[0], t[2], t[4], t[6]
		x0, x2, x4, x6 := t[0]^t[1], t[2]^t[3], t[4]^t[5], t[6]^t[7]
		loop := func(d, a, b, c *Vec) {
			for i := range d {
				a, b, c := a[i], b[i], c[i]
				p, q, r, s := t0^c&x0, t2^c&x2, t4^c&x4, t6^c&x6
				p ^= b & (p ^ q)
				r ^= b & (r ^ s)
				d[i] = p ^ a&(p^r)
			}
		}
		return valuRow{types: []elem{e, e, e, e}, narrow: loop}.compile(c)
	}
}
