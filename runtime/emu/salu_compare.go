package emu

import "cmp"

// relations are the comparisons of s_cmp; lg is "not equal".
var relations = map[string]func(order int) bool{
	"eq": func(o int) bool { return o == 0 },
	"lg": func(o int) bool { return o != 0 },
	"lt": func(o int) bool { return o < 0 },
	"le": func(o int) bool { return o <= 0 },
	"gt": func(o int) bool { return o > 0 },
	"ge": func(o int) bool { return o >= 0 },
}

func init() {
	rows := map[string]compile{}
	for name, holds := range relations {
		signed := func(a, b uint32) bool { return holds(cmp.Compare(int32(a), int32(b))) }
		unsigned := func(a, b uint32) bool { return holds(cmp.Compare(a, b)) }
		rows["s_cmp_"+name+"_i32"] = scmp(signed)
		rows["s_cmp_"+name+"_u32"] = scmp(unsigned)
		rows["s_cmpk_"+name+"_i32"] = scmpk(func(a uint32, k int32) bool { return signed(a, uint32(k)) })
		// The immediate is zero extended.
		rows["s_cmpk_"+name+"_u32"] = scmpk(func(a uint32, k int32) bool { return unsigned(a, uint32(uint16(k))) })
	}
	for _, name := range []string{"eq", "lg"} {
		holds := relations[name]
		rows["s_cmp_"+name+"_u64"] = func(c *compiler) step {
			c.writes(regSCC)
			a, b := c.scalarSource(0, 64), c.scalarSource(1, 64)
			return func(w *wave) { w.scc = holds(cmp.Compare(a.get64(w), b.get64(w))) }
		}
	}
	for bit, name := range []string{"s_bitcmp0_b32", "s_bitcmp1_b32"} {
		rows[name] = scmp(func(a, b uint32) bool { return a>>(b&31)&1 == uint32(bit) })
	}
	for bit, name := range []string{"s_bitcmp0_b64", "s_bitcmp1_b64"} {
		rows[name] = func(c *compiler) step {
			c.writes(regSCC)
			a, b := c.scalarSource(0, 64), c.scalarSource(1, 32)
			return func(w *wave) { w.scc = a.get64(w)>>(b.get(w)&63)&1 == uint64(bit) }
		}
	}
	define(rows)
}

func scmp(holds func(a, b uint32) bool) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		a, b := c.scalarSource(0, 32), c.scalarSource(1, 32)
		return func(w *wave) { w.scc = holds(a.get(w), b.get(w)) }
	}
}

func scmpk(holds func(a uint32, k int32) bool) compile {
	return func(c *compiler) step {
		c.writes(regSCC)
		a, k := c.scalarSource(0, 32), c.imm16(1)
		return func(w *wave) { w.scc = holds(a.get(w), k) }
	}
}
