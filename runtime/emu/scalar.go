package emu

import (
	"math"
	"strings"
)

// scalar is a scalar source operand.
type scalar struct {
	reg   int // of wave.s, or negative
	konst uint64
	scc   bool
}

// scalarSource compiles source operand i of an instruction of 32 or 64 bits.
func (c *compiler) scalarSource(i, bits int) scalar {
	o := c.plain(c.arg(i))
	switch o.Kind {
	case SGPR:
		if o.Count != bits/32 {
			c.fail("operand %s has %d registers, not %d", o.Text, o.Count, bits/32)
		}
		c.readsScalar(i, o.Reg, bits/32)
		return scalar{reg: o.Reg}
	case Integer:
		return scalar{reg: -1, konst: uint64(o.Int)}
	case Hex:
		return scalar{reg: -1, konst: c.literal64(o)}
	case Float:
		if bits == 64 {
			return scalar{reg: -1, konst: math.Float64bits(o.Float)}
		}
		return scalar{reg: -1, konst: uint64(inline32(o))}
	case Name:
		if o.Text == "src_scc" || o.Text == "scc" {
			c.readsScalar(i, regSCC, 1)
			return scalar{reg: -1, scc: true}
		}
		if v, ok := c.k.aperture(o.Text); ok {
			return scalar{reg: -1, konst: v}
		}
	}
	c.fail("operand %s is no scalar source", o.Text)
	return scalar{reg: -1}
}

// literal64 is a 32-bit literal as a 64-bit integer: sign extended where the operand is
// signed, zero extended for u64 and b64 (LLVM's "AMDGPU Operand Syntax", "Literals").
func (c *compiler) literal64(o *Operand) uint64 {
	if strings.HasSuffix(c.in.Op, "_i64") {
		return uint64(int64(int32(o.Int)))
	}
	return uint64(uint32(o.Int))
}

// inline32 is an inline floating point constant as an f32. 1/(2 pi) is printed with
// fewer digits than it has.
func inline32(o *Operand) uint32 {
	if o.Text == "0.15915494" {
		return 0x3e22f983
	}
	return math.Float32bits(float32(o.Float))
}

func (s *scalar) get(w *wave) uint32 {
	if s.reg >= 0 {
		return w.s[s.reg]
	}
	if s.scc {
		return b2u(w.scc)
	}
	return uint32(s.konst)
}

func (s *scalar) get64(w *wave) uint64 {
	if s.reg >= 0 {
		return w.s64(s.reg)
	}
	if s.scc {
		return uint64(b2u(w.scc))
	}
	return s.konst
}

// scalarDest compiles destination operand i of n registers.
func (c *compiler) scalarDest(i, n int) int {
	o := c.plain(c.arg(i))
	if o.Kind != SGPR || o.Count != n {
		c.fail("operand %s is no destination of %d scalar registers", o.Text, n)
		return 0
	}
	c.writesScalar(i, o.Reg, n)
	return o.Reg
}

// scalarChanged compiles a destination whose old value counts too.
func (c *compiler) scalarChanged(i, n int) int {
	r := c.scalarDest(i, n)
	c.readsScalar(i, r, n)
	return r
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
