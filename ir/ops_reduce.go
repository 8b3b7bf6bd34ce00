package ir

import "fmt"

// Reductions accumulate in float64 in index order and round once to the
// declared dtype, whatever the parallelism.

func reduction(name, doc string, to bool) *OpDef {
	d := &OpDef{
		Name: name, Group: "reduce", Doc: doc,
		Operands: []OperandDef{{Name: "x"}}, Results: []string{"y"},
		Attrs: []AttrDef{{Name: "axis", Kind: AttrInt, Doc: "axis that becomes 1"}},
		Infer: func(o *Op) ([]Type, error) {
			t := o.Args[0].Type
			axis, err := axisOf(o, t)
			if err != nil {
				return nil, err
			}
			dt := t.DType
			if to {
				if dt = o.DType("to"); !dt.IsFloat() {
					return nil, fmt.Errorf("to is %s, want %s", dt, dtypeList(floats))
				}
			}
			return []Type{T(dt, withAxis(t.Dims, axis, Int(1))...)}, o.want(0, -1, floats...)
		},
		Flops: func(o *Op) int64 {
			n, _ := o.Args[0].Type.Size()
			return int64(n)
		},
	}
	if to {
		d.Attrs = append(d.Attrs, AttrDef{Name: "to", Kind: AttrDType, Default: F32, Doc: "result dtype"})
	}
	return d
}

func init() {
	mustRegister(
		inexact(reduction("reduce_sum", "Sum along axis.", true)),
		reduction("reduce_max", "Largest along axis; NaN if any is NaN.", false),
		inexact(&OpDef{
			Name: "dot", Group: "reduce",
			Doc:      "y[..,m,n] = sum_k x[..,m,k] * w[..,n,k]. Leading axes are batch axes: equal, or 1 on one side.",
			Operands: []OperandDef{{Name: "x", Doc: "[..,M,K]"}, {Name: "w", Doc: "[..,N,K]"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Default: F32, Doc: "result dtype"}},
			Infer: func(o *Op) ([]Type, error) {
				x, w := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, -1, floats...), o.want(1, -1, floats...)); err != nil {
					return nil, err
				}
				r := x.Rank()
				if r < 2 || w.Rank() != r {
					return nil, fmt.Errorf("%s and %s: want equal ranks of at least 2", x, w)
				}
				if !x.Dims[r-1].Equal(w.Dims[r-1]) {
					return nil, fmt.Errorf("%s and %s: last axes differ", x, w)
				}
				to := o.DType("to")
				if !to.IsFloat() {
					return nil, fmt.Errorf("to is %s, want %s", to, dtypeList(floats))
				}
				batch, err := broadcastDims(T(F32, x.Dims[:r-2]...), T(F32, w.Dims[:r-2]...))
				if err != nil {
					return nil, err
				}
				return []Type{T(to, append(batch, x.Dims[r-2], w.Dims[r-2])...)}, nil
			},
			Flops: func(o *Op) int64 {
				n, _ := o.Results[0].Type.Size()
				k, _ := o.Args[0].Type.Dims[o.Args[0].Type.Rank()-1].Const()
				return 2 * int64(n) * int64(k)
			},
		}),
		&OpDef{
			Name: "topk", Group: "reduce",
			Doc:      "Indices of the k largest along the last axis, largest first; equal scores: the lower index first. -inf and NaN are never chosen; missing places hold -1.",
			Operands: []OperandDef{{Name: "scores"}}, Results: []string{"ids"},
			Attrs: []AttrDef{{Name: "k", Kind: AttrInt, Doc: "how many, at least 1"}},
			Infer: func(o *Op) ([]Type, error) {
				t, k := o.Args[0].Type, o.Int("k")
				if err := o.want(0, -1, floats...); err != nil {
					return nil, err
				}
				if t.Rank() < 1 || k < 1 {
					return nil, fmt.Errorf("%s, k = %d: want rank >= 1 and k >= 1", t, k)
				}
				return []Type{T(I32, withAxis(t.Dims, t.Rank()-1, Int(k))...)}, nil
			},
			Limit: Limit{Kind: ByChoice},
		},
	)
}
