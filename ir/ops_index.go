package ir

import (
	"fmt"
	"slices"
)

// Row access. Index -1 reads nothing and writes nothing; any other index
// outside the rows is an error at run time.

func init() {
	mustRegister(
		&OpDef{
			Name: "gather_rows", Group: "index",
			Doc:      "y[i..,:] = table[rows[i..],:]; row -1 gives zeros (false for bool).",
			Operands: []OperandDef{{Name: "table", Doc: "[N,..]"}, {Name: "rows", Doc: "i32 of any shape"}}, Results: []string{"y"},
			Infer: func(o *Op) ([]Type, error) {
				t, ix := o.Args[0].Type, o.Args[1].Type
				arith := append([]DType{Bool}, numbers...)
				if err := firstErr(o.want(0, -1, arith...), o.want(1, -1, I32)); err != nil {
					return nil, err
				}
				if t.Rank() < 1 {
					return nil, fmt.Errorf("table is %s, want rank >= 1", t)
				}
				return []Type{T(t.DType, append(slices.Clone(ix.Dims), t.Dims[1:]...)...)}, nil
			},
		},
		&OpDef{
			Name: "scatter_rows", Group: "index",
			Doc:      "pool with row slots[i] replaced by rows[i]; slot -1 writes nothing; a slot given twice is an error.",
			Operands: []OperandDef{{Name: "pool", Doc: "[N,..]"}, {Name: "slots", Doc: "i32 [R]"}, {Name: "rows", Doc: "[R,..]"}}, Results: []string{"pool"},
			Infer: func(o *Op) ([]Type, error) {
				p, s, r := o.Args[0].Type, o.Args[1].Type, o.Args[2].Type
				if err := firstErr(o.want(0, -1, numbers...), o.want(1, 1, I32), o.want(2, -1, numbers...)); err != nil {
					return nil, err
				}
				if p.Rank() < 1 || r.Rank() < 1 || p.DType != r.DType || !SameDims(p.Dims[1:], r.Dims[1:]) || !r.Dims[0].Equal(s.Dims[0]) {
					return nil, fmt.Errorf("pool %s, slots %s and rows %s do not fit", p, s, r)
				}
				return []Type{p}, nil
			},
		},
		&OpDef{
			Name: "take_along", Group: "index",
			Doc:      "y[..,j] = x[..,cols[..,j]] along the last axis; column -1 gives fill.",
			Operands: []OperandDef{{Name: "x", Doc: "[..,N]"}, {Name: "cols", Doc: "i32 [..,K]"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "fill", Kind: AttrFloat, Default: 0.0, AnyFloat: true, Doc: "value for column -1"}},
			Infer: func(o *Op) ([]Type, error) {
				x, c := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, -1, numbers...), o.want(1, -1, I32)); err != nil {
					return nil, err
				}
				r := x.Rank()
				if r < 1 || c.Rank() != r || !SameDims(x.Dims[:r-1], c.Dims[:r-1]) {
					return nil, fmt.Errorf("x %s and cols %s: want equal leading axes", x, c)
				}
				if f := o.Float("fill"); !holds(x.DType, f) {
					return nil, fmt.Errorf("fill %v is not an %s", f, x.DType)
				}
				return []Type{T(x.DType, c.Dims...)}, nil
			},
		},
	)
}
