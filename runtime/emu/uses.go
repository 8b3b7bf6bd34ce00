package emu

import "fmt"

// regSCC stands for SCC in a span: a number of wave.s that no instruction can name.
const regSCC = 125

// span is a run of registers that an instruction reads or writes.
type span struct {
	arg    int  // index of the operand; negative if it is implied
	vector bool // of wave.v, or of wave.s
	reg, n int
	// index is the bit by which VGPR index mode moves the registers; 0 is not at all.
	index uint32
	// mask is the bits of a word that count, as SDWA and op_sel choose them.
	mask uint32
}

// allBits is a span's mask if nothing chooses.
const allBits = ^uint32(0)

// uses are the registers that an instruction reads and writes, in the order in which
// its compiler asked for them. They are recorded by the functions that compile
// operands, so that whoever watches cannot disagree with what is executed. EXEC as
// the mask of active lanes is not listed: an instruction with vector operands obeys
// it.
type uses struct {
	class         class
	reads, writes []span
	// data are the registers of the words that a memory instruction writes to memory.
	data []span
	// kept are registers that are written in part, so that the rest has to be there.
	kept []span
}

// readsPart records which bits of source operand arg count.
func (c *compiler) readsPart(arg int, p *part) {
	for i := range c.uses.reads {
		if s := &c.uses.reads[i]; s.arg == arg && p != nil {
			s.mask = p.bits()
		}
	}
}

// writesPart records which bits of the vector destinations are written, if the others
// stay.
func (c *compiler) writesPart(p *part) {
	if p == nil || p.unused != unusedPreserve {
		return
	}
	for i := range c.uses.writes {
		if s := &c.uses.writes[i]; s.vector {
			s.mask = p.bits()
			c.uses.kept = append(c.uses.kept, span{s.arg, true, s.reg, s.n, s.index, ^s.mask})
		}
	}
}

// bits are the bits of a word that the part takes.
func (s *part) bits() uint32 { return uint32(1<<s.width-1) << s.shift }

// implied is the operand index of registers that do not stand in the text.
const implied = -1

func (c *compiler) readsVector(arg, reg, n int, index uint32) {
	c.uses.reads = append(c.uses.reads, span{arg, true, reg, n, index, allBits})
}

func (c *compiler) writesVector(arg, reg, n int, index uint32) {
	c.uses.writes = append(c.uses.writes, span{arg, true, reg, n, index, allBits})
}

func (c *compiler) readsScalar(arg, reg, n int) {
	c.uses.reads = append(c.uses.reads, span{arg, false, reg, n, 0, allBits})
}

func (c *compiler) writesScalar(arg, reg, n int) {
	c.uses.writes = append(c.uses.writes, span{arg, false, reg, n, 0, allBits})
}

// reads records a scalar register that the text does not name: VCC, EXEC, M0 or SCC.
func (c *compiler) reads(reg int) { c.readsScalar(implied, reg, width(reg)) }

// writes records one that is written.
func (c *compiler) writes(reg int) { c.writesScalar(implied, reg, width(reg)) }

func width(reg int) int {
	if reg == regVCC || reg == regEXEC {
		return 2
	}
	return 1
}

// name is what the disassembler calls the registers.
func (s span) name() string {
	switch {
	case s.vector && s.reg >= agprs:
		return rangeName("a", s.reg-agprs, s.n)
	case s.vector:
		return rangeName("v", s.reg, s.n)
	}
	switch {
	case s.reg == regSCC:
		return "scc"
	case s.reg == regM0:
		return "m0"
	case s.reg == regVCC && s.n == 2:
		return "vcc"
	case s.reg == regEXEC && s.n == 2:
		return "exec"
	}
	return rangeName("s", s.reg, s.n)
}

func rangeName(file string, reg, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s%d", file, reg)
	}
	return fmt.Sprintf("%s[%d:%d]", file, reg, reg+n-1)
}
