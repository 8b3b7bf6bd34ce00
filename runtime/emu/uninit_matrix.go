package emu

import (
	"regexp"
	"strings"
)

// matrix is a matrix instruction: an element of D follows from a row of A, a column of
// B and the same element of C. Lanes that are off take part.
func (x *uninitWatcher) matrix(in *Inst, use *uses, u *undefined) {
	var d span
	for _, s := range use.writes {
		d = s
	}
	all := uint32(0)
	var rows, columns uint32 // undefined ones of A and B
	side := resultSide(in.Op)
	for _, s := range use.reads {
		for r := s.reg; r < s.reg+s.n; r++ {
			if !s.vector {
				all |= u.s[r]
				continue
			}
			if !u.dirty[r] {
				continue
			}
			for i, b := range &u.v[r] {
				switch {
				case b == 0 || s.arg == 3 && s.n == d.n:
				case side == 0 || s.arg > 3:
					all = ^uint32(0)
				case s.arg == 1:
					rows |= 1 << (i % side)
				case s.arg == 2:
					columns |= 1 << (i % side)
				default:
					all = ^uint32(0)
				}
			}
		}
	}
	c := -1
	for _, s := range use.reads {
		if s.arg == 3 && s.vector && s.n == d.n {
			c = s.reg
		}
	}
	for j := range d.n {
		v := &x.source[0]
		for i := range v {
			v[i] = all
			if side != 0 && (rows>>rowOfResult(side, i, j)&1 != 0 || columns>>(i%side)&1 != 0) {
				v[i] = ^uint32(0)
			}
			if c >= 0 {
				v[i] |= spread(u.v[c+j][i])
			}
		}
		// C and D may overlap only as the same registers: word j of C is read no more.
		u.set(d.reg+j, v, fullMask, ^uint32(0))
	}
}

// blocks is the part of a mnemonic that says that there are several.
var blocks = regexp.MustCompile(`_[0-9]+b_`)

// resultSide is M and N of a matrix instruction with one block and results of one
// word; 0 for others, of which all results follow from all sources.
func resultSide(op string) int {
	switch {
	case strings.Contains(op, "_f64") || blocks.MatchString(op):
		return 0
	case strings.Contains(op, "_16x16x"):
		return 16
	case strings.Contains(op, "_32x32x"):
		return 32
	}
	return 0
}

// rowOfResult is the row of word j of D in a lane (MI300 ISA, "Matrix Arithmetic
// Instructions", the layouts of 16x16 and 32x32 results).
func rowOfResult(side, lane, j int) int {
	if side == 16 {
		return 4*(lane/16) + j
	}
	return 8*(j/4) + 4*(lane/32) + j%4
}
