package emu

import "strings"

// VGPR index mode: between s_set_gpr_idx_on and s_set_gpr_idx_off the vector ALU
// adds M0's low byte to the registers of those operands whose bit is set in
// M0[15:12].
const (
	indexSrc0 = 1 << iota
	indexSrc1
	indexSrc2
	indexDst
)

// indexing tells whether an operand is indexed now.
func (w *wave) indexing(operand uint32) bool {
	return w.gprIndexed && w.s[regM0]>>12&operand != 0
}

// index is register r of n plus the index. Out of range it is register 0, which a
// source reads; a destination is not written.
func (w *wave) index(r, n int) (int, bool) {
	r += int(w.s[regM0] & 0xff)
	if r+n > w.group.k.vgprs {
		return 0, false
	}
	return r, true
}

func init() {
	define(map[string]compile{
		"s_set_gpr_idx_on": func(c *compiler) step {
			c.reads(regM0)
			c.writes(regM0)
			a, bits := c.scalarSource(0, 32), c.indexedOperands(1)
			return func(w *wave) {
				w.setIndex(a.get(w))
				w.setIndexed(bits)
				w.gprIndexed = true
			}
		},
		"s_set_gpr_idx_off": func(*compiler) step { return func(w *wave) { w.gprIndexed = false } },
		"s_set_gpr_idx_idx": func(c *compiler) step {
			c.reads(regM0)
			c.writes(regM0)
			a := c.scalarSource(0, 32)
			return func(w *wave) { w.setIndex(a.get(w)) }
		},
		"s_set_gpr_idx_mode": func(c *compiler) step {
			c.reads(regM0)
			c.writes(regM0)
			bits := c.indexedOperands(0)
			return func(w *wave) { w.setIndexed(bits) }
		},
	})
}

func (w *wave) setIndex(x uint32) { w.s[regM0] = w.s[regM0]&^0xff | x&0xff }

func (w *wave) setIndexed(bits uint32) { w.s[regM0] = w.s[regM0]&^0xf000 | bits<<12 }

var indexNames = map[string]uint32{"SRC0": indexSrc0, "SRC1": indexSrc1, "SRC2": indexSrc2, "DST": indexDst}

// indexedOperands compiles gpr_idx(SRC0,DST).
func (c *compiler) indexedOperands(i int) uint32 {
	o := c.arg(i)
	inner, ok := wrapped(o.Text, "gpr_idx(", ")")
	if o.Text == "gpr_idx" { // gpr_idx() of nothing has no comma and no name
		inner, ok = "", true
	}
	bits := uint32(0)
	for name := range strings.SplitSeq(inner, ",") {
		b := indexNames[name]
		ok = ok && (b != 0 || inner == "")
		bits |= b
	}
	if !ok {
		c.fail("operand %s: no set of indexed operands", o.Text)
	}
	return bits
}
