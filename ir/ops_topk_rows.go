package ir

import "fmt"

func init() {
	mustRegister(&OpDef{
		Name: "topk_rows", Group: "reduce", FusedBy: "fuse-topk",
		Doc:      "What stands in rows at the k largest scores along the last axis, in the order of topk; missing places hold -1.",
		Operands: []OperandDef{{Name: "scores", Doc: "[..,N]"}, {Name: "rows", Doc: "i32 [..,N]"}}, Results: []string{"rows"},
		Attrs: []AttrDef{{Name: "k", Kind: AttrInt, Doc: "how many, at least 1"}},
		Infer: func(o *Op) ([]Type, error) {
			t, k := o.Args[0].Type, o.Int("k")
			if err := firstErr(o.want(0, -1, floats...), o.want(1, -1, I32)); err != nil {
				return nil, err
			}
			if t.Rank() < 1 || k < 1 {
				return nil, fmt.Errorf("%s, k = %d: want rank >= 1 and k >= 1", t, k)
			}
			return []Type{T(I32, withAxis(t.Dims, t.Rank()-1, Int(k))...)}, o.wantDims(1, t.Dims...)
		},
		Decompose: func(b *Builder, o *Op) []*Value {
			ids := b.Op1("topk", Attrs{{"k", o.Int("k")}}, o.Args[0])
			return []*Value{b.Op1("take_along", Attrs{{"fill", -1.0}}, o.Args[1], ids)}
		},
		Limit: Limit{Kind: Exact, Why: "the scores are operands: there is one choice"},
	})
}
