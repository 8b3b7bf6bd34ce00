package emu

import "slices"

// part is a byte or a halfword of a register: a source or a destination of SDWA
// (sub-dword addressing), or the half that op_sel chooses.
type part struct {
	shift, width uint32
	signed       bool   // of a source: sign extended
	unused       unused // of a destination
}

// unused says what becomes of the other bits of a destination.
type unused uint8

const (
	unusedPad      unused = iota // zero
	unusedSext                   // above: the sign; below: zero
	unusedPreserve               // unchanged
)

// extract takes the part out of p into q, which may be p.
func (s *part) extract(q, p *Vec) {
	left := (32 - s.shift - s.width) & 31
	right := (32 - s.width) & 31
	if s.signed {
		for i := range q {
			q[i] = uint32(int32(p[i]<<left) >> right)
		}
		return
	}
	for i := range q {
		q[i] = p[i] << left >> right
	}
}

// insert makes the whole words of result t from its low bits and the old words.
func (s *part) insert(t, old *Vec) {
	field := uint32(1<<s.width - 1)
	switch s.unused {
	case unusedPad:
		for i := range t {
			t[i] = t[i] & field << s.shift
		}
	case unusedSext:
		up := (32 - s.width) & 31
		for i := range t {
			t[i] = uint32(int32(t[i]<<up)>>up) << s.shift
		}
	case unusedPreserve:
		for i := range t {
			t[i] = old[i]&^(field<<s.shift) | t[i]&field<<s.shift
		}
	}
}

// parts are the values of src0_sel, src1_sel and dst_sel; a whole register is none.
var parts = map[string]part{
	"BYTE_0": {shift: 0, width: 8}, "BYTE_1": {shift: 8, width: 8}, "BYTE_2": {shift: 16, width: 8}, "BYTE_3": {shift: 24, width: 8},
	"WORD_0": {shift: 0, width: 16}, "WORD_1": {shift: 16, width: 16}, "DWORD": {},
}

var unusedBits = map[string]unused{"UNUSED_PAD": unusedPad, "UNUSED_SEXT": unusedSext, "UNUSED_PRESERVE": unusedPreserve}

// sdwaSource compiles the selection of source nth, which is operand i.
func (c *compiler) sdwaSource(i, nth int) *part {
	key := [2]string{"src0_sel", "src1_sel"}[nth]
	name := c.value(key, "DWORD")
	p, ok := parts[name]
	if !ok {
		c.fail("modifier %s:%s is not known", key, name)
	}
	p.signed = c.arg(i).Sext
	if p.width == 0 {
		return nil // sign extension of a whole register changes nothing
	}
	return &p
}

// sdwaDest compiles dst_sel and dst_unused.
func (c *compiler) sdwaDest() *part {
	name, rest := c.value("dst_sel", "DWORD"), c.value("dst_unused", "UNUSED_PAD")
	p, ok := parts[name]
	u, ok2 := unusedBits[rest]
	if !ok || !ok2 {
		c.fail("modifiers dst_sel:%s dst_unused:%s are not known", name, rest)
	}
	if p.width == 0 {
		return nil
	}
	p.unused = u
	return &p
}

// preserving are the 16-bit instructions that leave the other half of the
// destination alone: those that came with op_sel in GFX9 ("for dest=0, dest =
// {prev_dst[31:16], result}" in the ISA document's op_sel). All others clear it, as
// LLVM's GCNSubtarget::zeroesHigh16BitsOfDest lists them for GFX9.
var preserving = map[string]bool{
	"v_fma_f16": true, "v_div_fixup_f16": true, "v_mad_u16": true, "v_mad_i16": true, "v_add_i16": true, "v_sub_i16": true,
	"v_max3_f16": true, "v_min3_f16": true, "v_med3_f16": true, "v_max3_i16": true, "v_min3_i16": true, "v_med3_i16": true,
	"v_max3_u16": true, "v_min3_u16": true, "v_med3_u16": true, "v_bitop3_b16": true,
}

// halves compiles op_sel, which chooses the halves of 16-bit operands: a bit per
// source, then one for the destination.
func (c *compiler) halves(o *operation, types []elem) {
	if preserving[c.in.Op] {
		o.dst.part = &part{width: 16, unused: unusedPreserve}
	}
	short := slices.ContainsFunc(types, func(e elem) bool { return e == f16 || e == b16 })
	if _, ok := c.in.mod("op_sel"); !ok || !short {
		return
	}
	sel := c.bits("op_sel", o.n+1, 0)
	for i := range o.n {
		switch {
		case sel>>i&1 == 0:
		case types[i+1] == f16 || types[i+1] == b16:
			o.src[i].part = &part{shift: 16, width: 16}
		default:
			c.fail("op_sel chooses a half of operand %d, which has no 16-bit type", i+2)
		}
	}
	if sel>>o.n&1 != 0 {
		if o.dst.part == nil {
			c.fail("op_sel chooses a half of the destination, which has none")
			return
		}
		o.dst.part.shift = 16
	}
}
