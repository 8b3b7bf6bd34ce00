package ir

import "fmt"

// MaxSampled is the largest number of columns that sample draws from: the sum of as
// many of its weights is below 2^63.
const MaxSampled = 1 << 22

func init() {
	mustRegister(&OpDef{
		Name: "sample", Group: "reduce",
		Doc: "A token of each row of logits, and what is wrong with the row. At temperature 0, and of a row with flags, it is what argmax chooses. " +
			"Else it is drawn, in integers, so that every device draws the same one: column i weighs w(i) = floor(2^40 2^((x(i) - max x) log2(e)/temperature)). " +
			"In the order of x, greater ones first and of equal ones the lower index, the first top_k columns are kept, and of those the shortest beginning that has top_p of their weight. " +
			"u is floor(r W / 2^64) with W the weight of what is kept and r the first 64 bits of Philox4x32-10 with the key seed and the counter pos; " +
			"the token is the lowest index up to which the kept columns weigh more than u. So it depends on the row's own operands alone, whatever stands in other rows. " +
			argmaxFlagsDoc + fmt.Sprintf(" %d a parameter is outside of its range.", SampleRange),
		Operands: []OperandDef{
			{Name: "x", Doc: "f32 or bf16 [B,V]"},
			{Name: "temperature", Doc: "f32 [B], 0 or more and finite; 0: the largest"},
			{Name: "top_k", Doc: "i32 [B], 0 or more; 0: all"},
			{Name: "top_p", Doc: "f32 [B], 0..1; 0: all"},
			{Name: "seed", Doc: "i64 [B]"},
			{Name: "pos", Doc: "i32 [B], the row's place in its sequence"},
		},
		Results: []string{"ids", "flags"},
		Attrs:   []AttrDef{validAttr},
		Infer: func(o *Op) ([]Type, error) {
			x := o.Args[0].Type
			if err := firstErr(o.want(0, 2, F32, BF16), o.want(1, 1, F32), o.want(2, 1, I32), o.want(3, 1, F32), o.want(4, 1, I64), o.want(5, 1, I32)); err != nil {
				return nil, err
			}
			for i := range o.Args[1:] {
				if err := o.wantDims(i+1, x.Dims[0]); err != nil {
					return nil, err
				}
			}
			if err := o.checkValid(x.Dims[1]); err != nil {
				return nil, err
			}
			if v, ok := x.Dims[1].Const(); ok && o.Columns(v) > MaxSampled {
				return nil, fmt.Errorf("%d columns, at most %d are drawn from", o.Columns(v), MaxSampled)
			}
			return []Type{T(I32, x.Dims[0]), T(I32, x.Dims[0])}, nil
		},
		Limit: Limit{Kind: Exact, Why: "one rounded difference and one product in f32, all else in integers"},
	})
}
