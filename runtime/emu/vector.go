package emu

import "math"

// elem is the type of an operand: it decides what a constant means, and whether
// signs and bars are allowed.
type elem uint8

const (
	b32 elem = iota // integers and bits
	f32
	b16
	f16
	bf16
	b64
	f64
)

func (e elem) float() bool { return e == f32 || e == f16 || e == bf16 || e == f64 }

// words is the number of registers.
func (e elem) words() int {
	if e == b64 || e == f64 {
		return 2
	}
	return 1
}

// constant is an operand's value in the type, and whether it is a constant.
func (o *Operand) constant(e elem) (uint64, bool) {
	switch o.Kind {
	case Integer: // inline: sign extended
		if e.words() == 1 {
			return uint64(uint32(o.Int)), true
		}
		return uint64(o.Int), true
	case Hex:
		if e == f64 { // the literal is the high half
			return uint64(uint32(o.Int)) << 32, true
		}
		return uint64(uint32(o.Int)), true
	case Float:
		switch e {
		case f64, b64:
			if o.Text == "0.15915494" || o.Text == "0.15915494309189532" {
				return 0x3fc45f306dc9c882, true
			}
			return math.Float64bits(o.Float), true
		case b16, bf16: // LLVM has no such inline constant
			return 0, false
		case f16:
			return uint64(halfConstants[o.Text]), halfConstants[o.Text] != 0
		}
		return uint64(inline32(o)), true
	}
	return 0, false
}

// halfConstants are the inline constants as f16.
var halfConstants = map[string]uint16{
	"0.5": 0x3800, "-0.5": 0xb800, "1.0": 0x3c00, "-1.0": 0xbc00, "2.0": 0x4000, "-2.0": 0xc000, "4.0": 0x4400, "-4.0": 0xc400, "0.15915494": 0x3118,
}

// source is a vector source operand: a register, a scalar or a constant, whose
// words are those of all lanes.
type source struct {
	kind     sourceKind
	reg      int
	n        int     // words
	konst    [2]*Vec // constants, broadcast when the kernel is compiled
	scalar   scalar
	neg, abs uint32 // bits to flip and to clear in the last word
	part     *part  // nil: the whole register
	dpp      *dpp   // nil: of the lane itself
	// index is the bit of M0 that adds an index to the register; 0 in kernels that do
	// not use s_set_gpr_idx_on.
	index uint32
	// accumulates marks a destination that is read, in kernels that use
	// s_set_gpr_idx_on: which index it has there is not documented.
	accumulates bool
}

type sourceKind uint8

const (
	sourceVector sourceKind = iota
	sourceScalar
	sourceConstant
)

// vectorSource compiles source operand i, the n-th source of the instruction.
func (c *compiler) vectorSource(i, nth int, e elem) *source {
	o := c.arg(i)
	s := &source{n: e.words()}
	sign := uint32(1) << 31
	if e == f16 || e == bf16 {
		sign = 1 << 15
	}
	if (o.Neg || o.Abs) && !e.float() || o.Sext && c.in.Enc != EncSDWA {
		c.fail("operand %s takes no modifiers", o.Text)
	}
	if o.Neg {
		s.neg = sign
	}
	if o.Abs {
		s.abs = sign
	}
	switch o.Kind {
	case VGPR, AGPR:
		s.reg = c.vectorRegister(o, s.n)
		if c.indexed {
			s.index = indexSrc0 << nth
		}
		c.readsVector(i, s.reg, s.n, s.index)
	case SGPR:
		if o.Count != s.n {
			c.fail("operand %s has %d registers, not %d", o.Text, o.Count, s.n)
		}
		s.kind, s.scalar = sourceScalar, scalar{reg: o.Reg}
		c.readsScalar(i, o.Reg, s.n)
	case Name:
		s.kind, s.scalar = sourceScalar, c.scalarSource(i, 32*s.n)
	default:
		v, ok := o.constant(e)
		if !ok {
			c.fail("operand %s is no vector source", o.Text)
		}
		if e == b64 && o.Kind == Hex {
			v = c.literal64(o)
		}
		s.kind = sourceConstant
		for j := range s.n {
			s.konst[j] = new(Vec)
			broadcast(s.konst[j], uint32(v>>(32*j)))
		}
	}
	return s
}

// vectorRegister checks n registers and returns the index of the first in wave.v.
func (c *compiler) vectorRegister(o *Operand, n int) int {
	if o.Count != n {
		c.fail("operand %s has %d registers, not %d", o.Text, o.Count, n)
	}
	if o.Kind == AGPR {
		return agprs + o.Reg
	}
	if o.Reg+n > c.k.vgprs {
		c.fail("operand %s: the kernel's descriptor allocates %d vector registers", o.Text, c.k.vgprs)
	}
	return o.Reg
}

// vectorDest compiles destination operand i of n registers.
func (c *compiler) vectorDest(i, n int) int {
	o := c.plain(c.arg(i))
	if o.Kind != VGPR && o.Kind != AGPR {
		c.fail("operand %s is no vector register", o.Text)
		return 0
	}
	r := c.vectorRegister(o, n)
	c.writesVector(i, r, n, 0)
	return r
}

// words returns both words of source nth; the high one of a single word is any.
func (s *source) words(w *wave, nth int) [2]*Vec {
	low := s.word(w, 0, 2*nth)
	if s.n == 1 {
		return [2]*Vec{low, low}
	}
	return [2]*Vec{low, s.word(w, 1, 2*nth+1)}
}

// word returns word j of the source; slot is the operand storage it may use.
func (s *source) word(w *wave, j, slot int) *Vec {
	var p *Vec
	switch s.kind {
	case sourceVector:
		r := s.reg
		if s.index != 0 && w.indexing(s.index) {
			r, _ = w.index(r, s.n)
		}
		if s.accumulates && w.gprIndexed {
			w.fail(w.group.k.insts[w.pc-1], "accumulating in VGPR index mode is not supported")
		}
		p = &w.v[r+j]
	case sourceConstant:
		p = s.konst[j]
	default:
		p = &w.operand[slot]
		if j == 0 {
			broadcast(p, s.scalar.get(w))
		} else {
			broadcast(p, uint32(s.scalar.get64(w)>>32))
		}
	}
	if s.dpp != nil {
		s.dpp.gather(&w.operand[slot], p, w.exec())
		p = &w.operand[slot]
	}
	if s.part != nil {
		s.part.extract(&w.operand[slot], p)
		p = &w.operand[slot]
	}
	if j == s.n-1 && s.neg|s.abs != 0 {
		q := &w.operand[slot]
		for i := range q {
			q[i] = p[i]&^s.abs ^ s.neg
		}
		return q
	}
	return p
}
