package ir

import "fmt"

func init() {
	mustRegister(
		&OpDef{
			Name: "rms_norm", Group: "norm",
			Doc:      "w * (x / sqrt(mean(x^2) + eps)) over the last axis, f32 inside, one rounding to bf16.",
			Operands: normOperands, Results: []string{"y"}, Attrs: normAttrs,
			Infer: func(o *Op) ([]Type, error) { return []Type{o.Args[0].Type}, checkNorm(o) },
			Decompose: func(b *Builder, o *Op) []*Value {
				x := b.Cast(o.Args[0], F32)
				y := b.Bin("mul", x, invRMS(b, x, o.Float("eps")))
				return []*Value{b.Cast(b.Bin("mul", alignLast(b, b.Cast(o.Args[1], F32), x.Type.Rank()), y), BF16)}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "head_rms_norm", Group: "norm",
			Doc:      "The weightless norm of each query head, in bf16 steps: u = b(mean(b(x^2))), s = b(1/sqrt(b(u + eps))), b(x*s), where b rounds to bf16.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [T,H,D]"}}, Results: []string{"y"},
			Attrs: normAttrs,
			Infer: func(o *Op) ([]Type, error) {
				if err := o.want(0, 3, BF16); err != nil {
					return nil, err
				}
				return []Type{o.Args[0].Type}, o.wantConst(0, 2)
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				x := o.Args[0]
				n, _ := x.Type.Dims[2].Const()
				mean := b.Bin("div", b.Sum(b.Bin("mul", x, x), 2, F32), b.F(float64(n)))
				u := b.Cast(b.Cast(mean, BF16), F32)
				s := b.Un("rsqrt", b.Cast(b.Cast(b.Bin("add", u, b.F(o.Float("eps"))), BF16), F32))
				return []*Value{b.Bin("mul", x, b.Cast(s, BF16))}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
	)
}

var (
	normOperands = []OperandDef{{Name: "x", Doc: "bf16 [..,D]"}, {Name: "w", Doc: "bf16 [D]"}}
	normAttrs    = []AttrDef{{Name: "eps", Kind: AttrFloat, Doc: "added to the mean square"}}
)

// checkNorm checks the operands of rms_norm.
func checkNorm(o *Op) error {
	x := o.Args[0].Type
	if x.Rank() < 1 {
		return fmt.Errorf("operand x is %s, want rank >= 1", x)
	}
	return firstErr(o.want(0, -1, BF16), o.want(1, 1, BF16), o.wantConst(0, x.Rank()-1), o.wantDims(1, x.Dims[x.Rank()-1]))
}

// wantRows checks that there is an axis before the last one.
func wantRows(x Type) error {
	if x.Rank() < 2 {
		return fmt.Errorf("operand x is %s, want rank >= 2", x)
	}
	return nil
}

// invRMS is 1/sqrt(mean(x^2) + eps) over the last axis, which is constant; it is
// kept as extent 1.
func invRMS(b *Builder, x *Value, eps float64) *Value {
	last := x.Type.Rank() - 1
	n, _ := x.Type.Dims[last].Const()
	mean := b.Bin("div", b.Sum(b.Bin("mul", x, x), last, F32), b.F(float64(n)))
	return b.Un("rsqrt", b.Bin("add", mean, b.F(eps)))
}

// alignLast gives a vector leading axes of 1 up to rank.
func alignLast(b *Builder, v *Value, rank int) *Value {
	dims := make([]Dim, rank)
	for i := range dims {
		dims[i] = Int(1)
	}
	dims[rank-1] = v.Type.Dims[0]
	return b.Reshape(v, dims...)
}
