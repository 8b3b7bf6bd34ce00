package ir

import (
	"fmt"
	"slices"
)

// Constants, generators and data movement. Shape ops also move the codes of a
// block-scaled tensor as long as its last two axes stay whole.

func init() {
	mustRegister(
		&OpDef{
			Name: "const", Group: "shape", Doc: "A rank-0 constant, rounded to its dtype.",
			Results: []string{"c"},
			Attrs: []AttrDef{
				{Name: "value", Kind: AttrFloat, AnyFloat: true, Doc: "the number; inf, -inf and nan are allowed for floats"},
				{Name: "dtype", Kind: AttrDType, Default: F32, Doc: "result dtype"},
			},
			Infer: func(o *Op) ([]Type, error) {
				dt, v := o.DType("dtype"), o.Float("value")
				if !slices.Contains(numbers, dt) {
					return nil, fmt.Errorf("dtype is %s, want %s", dt, dtypeList(numbers))
				}
				if !holds(dt, v) {
					return nil, fmt.Errorf("value %v is not an %s", v, dt)
				}
				return []Type{T(dt)}, nil
			},
		},
		&OpDef{
			Name: "iota", Group: "shape", Doc: "0, 1, 2, ... along axis, repeated along the others.",
			Results: []string{"i"},
			Attrs: []AttrDef{
				{Name: "axis", Kind: AttrInt, Doc: "the counting axis"},
				{Name: "shape", Kind: AttrDims, Doc: "result extents"},
			},
			Infer: func(o *Op) ([]Type, error) {
				t := T(I32, o.Dims("shape")...)
				_, err := axisOf(o, t)
				return []Type{t}, err
			},
		},
		&OpDef{
			Name: "reshape", Group: "shape", Doc: "The same elements in row-major order under other extents.",
			Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "shape", Kind: AttrDims, Doc: "result extents, same element count"}},
			Infer: func(o *Op) ([]Type, error) {
				t, dims := o.Args[0].Type, o.Dims("shape")
				if !product(t.Dims).Equal(product(dims)) {
					return nil, fmt.Errorf("%s has %s elements, extents %s have %s", t, product(t.Dims), dimsText(dims), product(dims))
				}
				if t.Quant != nil && (len(dims) < 2 || !SameDims(t.Dims[t.Rank()-2:], dims[len(dims)-2:])) {
					return nil, fmt.Errorf("%s: a block-scaled tensor keeps its last two axes", t)
				}
				return []Type{t.With(dims...)}, nil
			},
		},
		&OpDef{
			Name: "broadcast", Group: "shape", Doc: "Repeats extents of 1; the rank stays, or rises from 0.",
			Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "shape", Kind: AttrDims, Doc: "result extents"}},
			Infer: func(o *Op) ([]Type, error) {
				t, dims := o.Args[0].Type, o.Dims("shape")
				if t.Quant != nil {
					return nil, fmt.Errorf("%s: block-scaled tensors do not broadcast", t)
				}
				if t.Rank() != 0 && t.Rank() != len(dims) {
					return nil, fmt.Errorf("%s does not broadcast to %s: ranks differ", t, dimsText(dims))
				}
				for i, d := range t.Dims {
					if !isOne(d) && !d.Equal(dims[i]) {
						return nil, fmt.Errorf("%s does not broadcast to %s: axis %d is not 1", t, dimsText(dims), i)
					}
				}
				return []Type{t.With(dims...)}, nil
			},
		},
		&OpDef{
			Name: "transpose", Group: "shape", Doc: "Permutes axes: result axis i is operand axis perm[i].",
			Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "perm", Kind: AttrInts, Doc: "a permutation of the axes"}},
			Infer: func(o *Op) ([]Type, error) {
				t, perm := o.Args[0].Type, o.Ints("perm")
				if t.Quant != nil {
					return nil, fmt.Errorf("%s: block-scaled tensors do not transpose", t)
				}
				if t.DType == F4E2M1 {
					return nil, fmt.Errorf("%s: packed f4e2m1 does not transpose", t)
				}
				sorted := slices.Clone(perm)
				slices.Sort(sorted)
				for i, p := range sorted {
					if p != i {
						return nil, fmt.Errorf("perm %v is not a permutation of %d axes", perm, t.Rank())
					}
				}
				if len(perm) != t.Rank() {
					return nil, fmt.Errorf("perm %v is not a permutation of %d axes", perm, t.Rank())
				}
				dims := make([]Dim, len(perm))
				for i, p := range perm {
					dims[i] = t.Dims[p]
				}
				return []Type{t.With(dims...)}, nil
			},
		},
		&OpDef{
			Name: "slice", Group: "shape", Doc: "Elements start .. start+size-1 along axis.",
			Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
			Attrs: []AttrDef{
				{Name: "axis", Kind: AttrInt, Doc: "axis to cut"},
				{Name: "start", Kind: AttrInt, Doc: "first element"},
				{Name: "size", Kind: AttrInt, Doc: "number of elements, at least 1"},
			},
			Infer: func(o *Op) ([]Type, error) {
				t := o.Args[0].Type
				axis, err := axisOf(o, t)
				if err != nil {
					return nil, err
				}
				start, size := o.Int("start"), o.Int("size")
				n, ok := t.Dims[axis].Const()
				if !ok {
					return nil, fmt.Errorf("axis %d of %s is symbolic", axis, t)
				}
				if start < 0 || size < 1 || start > n-size {
					return nil, fmt.Errorf("start %d size %d is outside axis %d of %s", start, size, axis, t)
				}
				if (t.Quant != nil || t.DType == F4E2M1) && axis >= t.Rank()-2 {
					return nil, fmt.Errorf("%s: a block-scaled or packed tensor keeps its last two axes", t)
				}
				return []Type{t.With(withAxis(t.Dims, axis, Int(size))...)}, nil
			},
		},
		&OpDef{
			Name: "concat", Group: "shape",
			Doc:      "Joins operands along axis. Block-scaled operands join along the second-last axis, where every operand but the last must end on a block border, or along an earlier one.",
			Operands: []OperandDef{{Name: "x", Repeat: true}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "axis", Kind: AttrInt, Doc: "axis to join"}},
			Infer: func(o *Op) ([]Type, error) {
				t := o.Args[0].Type
				axis, err := axisOf(o, t)
				if err != nil {
					return nil, err
				}
				if (t.Quant != nil || t.DType == F4E2M1) && axis == t.Rank()-1 {
					return nil, fmt.Errorf("%s does not join along its last axis", t)
				}
				sum := Int(0)
				for i, a := range o.Args {
					if a.Type.Rank() != t.Rank() || !a.Type.With(withAxis(a.Type.Dims, axis, Int(1))...).Equal(t.With(withAxis(t.Dims, axis, Int(1))...)) {
						return nil, fmt.Errorf("operand x%d is %s, does not join %s along axis %d", i, a.Type, t, axis)
					}
					if t.Quant != nil && axis == t.Rank()-2 && i < len(o.Args)-1 {
						if n, ok := a.Type.Dims[axis].Const(); !ok || n%t.Quant.Block[0] != 0 {
							return nil, fmt.Errorf("operand x%d is %s: its %s rows end inside a block", i, a.Type, a.Type.Dims[axis])
						}
					}
					sum = sum.Add(a.Type.Dims[axis])
				}
				return []Type{t.With(withAxis(t.Dims, axis, sum)...)}, nil
			},
		},
		&OpDef{
			Name: "hadamard_matrix", Group: "shape", Table: true,
			Doc:     "The n x n Sylvester-Hadamard matrix: entry (i,j) is +1 or -1 by the parity of the ones in i&j.",
			Results: []string{"h"},
			Attrs:   []AttrDef{{Name: "n", Kind: AttrInt, Doc: "a power of two"}},
			Infer: func(o *Op) ([]Type, error) {
				n := o.Int("n")
				if n < 1 || n&(n-1) != 0 {
					return nil, fmt.Errorf("n is %d, want a power of two", n)
				}
				return []Type{T(F32, Int(n), Int(n))}, nil
			},
		},
		&OpDef{
			Name: "rope_freqs", Group: "shape", Table: true,
			Doc:     "Rotary frequencies base^(-2i/dim), i < dim/2. orig > 0 turns YaRN on: frequencies are divided by factor where the wavelength is long, blended by a linear ramp between the dims whose rotations over orig positions are beta_fast and beta_slow.",
			Results: []string{"f"},
			Attrs:   ropeAttrs,
			Infer:   inferRopeFreqs,
		},
	)
}
