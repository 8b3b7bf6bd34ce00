package ir

import (
	"fmt"
	"math"
	"slices"
)

// Helpers of the op table's Infer functions. Messages name the operand by its
// declared name; the caller adds the op and its place.

func (o *Op) operandName(i int) string {
	defs := o.Def.Operands
	if i < len(defs) && !defs[i].Repeat {
		return defs[i].Name
	}
	fixed := 0
	for !defs[fixed].Repeat {
		fixed++
	}
	group := len(defs) - fixed
	name := defs[fixed+(i-fixed)%group].Name
	return fmt.Sprintf("%s%d", name, (i-fixed)/group)
}

// want checks operand i's dtype and rank; rank -1 allows any.
func (o *Op) want(i int, rank int, dts ...DType) error {
	t := o.Args[i].Type
	if !slices.Contains(dts, t.DType) || t.Quant != nil {
		return fmt.Errorf("operand %s is %s, want dtype %s", o.operandName(i), t, dtypeList(dts))
	}
	if rank >= 0 && t.Rank() != rank {
		return fmt.Errorf("operand %s is %s, want rank %d", o.operandName(i), t, rank)
	}
	return nil
}

func dtypeList(dts []DType) string {
	s := ""
	for i, d := range dts {
		if i > 0 {
			s += " or "
		}
		s += d.String()
	}
	return s
}

// wantDims checks operand i's extents.
func (o *Op) wantDims(i int, dims ...Dim) error {
	t := o.Args[i].Type
	if !SameDims(t.Dims, dims) {
		return fmt.Errorf("operand %s is %s, want extents %s", o.operandName(i), t, dimsText(dims))
	}
	return nil
}

// wantConst checks that an extent of operand i is an integer.
func (o *Op) wantConst(i, axis int) error {
	t := o.Args[i].Type
	if _, ok := t.Dims[axis].Const(); !ok {
		return fmt.Errorf("operand %s is %s, want axis %d constant", o.operandName(i), t, axis)
	}
	return nil
}

// wantBlocks checks that an extent of operand i is a multiple of block.
func (o *Op) wantBlocks(i, axis, block int) error {
	t := o.Args[i].Type
	if n, ok := t.Dims[axis].Const(); !ok || block < 1 || n%block != 0 {
		return fmt.Errorf("operand %s is %s, want axis %d a multiple of block %d", o.operandName(i), t, axis, block)
	}
	return nil
}

func dimsText(dims []Dim) string { return attrText(dims, Dim.String) }

// firstErr returns the first non-nil error.
func firstErr(errs ...error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

// axisOf checks an axis attribute against a rank.
func axisOf(o *Op, t Type) (int, error) {
	a := o.Int("axis")
	if a < 0 || a >= t.Rank() {
		return 0, fmt.Errorf("axis %d is outside %s", a, t)
	}
	return a, nil
}

// broadcastDims gives the result extents of an elementwise op: equal ranks with
// equal extents or 1; a rank-0 operand goes with anything.
func broadcastDims(ts ...Type) ([]Dim, error) {
	var out []Dim
	for _, t := range ts {
		if t.Rank() > len(out) {
			out = slices.Clone(t.Dims)
		}
	}
	for _, t := range ts {
		if t.Rank() == 0 {
			continue
		}
		if t.Rank() != len(out) {
			return nil, fmt.Errorf("ranks differ: %s", typeList(ts))
		}
		for i, d := range t.Dims {
			if isOne(d) {
				continue
			}
			if isOne(out[i]) {
				out[i] = d
			} else if !out[i].Equal(d) {
				return nil, fmt.Errorf("axis %d differs: %s", i, typeList(ts))
			}
		}
	}
	return out, nil
}

func isOne(d Dim) bool { n, ok := d.Const(); return ok && n == 1 }

func typeList(ts []Type) string {
	s := ""
	for i, t := range ts {
		if i > 0 {
			s += " and "
		}
		s += t.String()
	}
	return s
}

// product multiplies extents.
func product(dims []Dim) Dim {
	p := Int(1)
	for _, d := range dims {
		p = p.Mul(d)
	}
	return p
}

// Size is the number of elements of a type whose extents are integers; the
// second result is false otherwise.
func (t Type) Size() (int, bool) {
	return product(t.Dims).Const()
}

// holds reports whether an integer format has the value v; floats hold any.
func holds(dt DType, v float64) bool {
	if !dt.IsInt() {
		return true
	}
	low, end := 0.0, math.Ldexp(1, dt.Bits())
	if dt != U8 {
		low, end = -end/2, end/2
	}
	return v == math.Trunc(v) && v >= low && v < end
}

// withAxis returns dims with axis i replaced.
func withAxis(dims []Dim, i int, d Dim) []Dim {
	out := slices.Clone(dims)
	out[i] = d
	return out
}

var floats = []DType{F32, BF16, F16}
var ints = []DType{I64, I32, I8, U8}
var numbers = append(slices.Clone(floats), ints...)
var everyDType = []DType{F32, BF16, F16, F8E4M3, F8E4M3FNUZ, F4E2M1, E8M0, I64, I32, I8, U8, Bool}
