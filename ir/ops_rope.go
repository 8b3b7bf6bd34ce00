package ir

import (
	"fmt"
	"slices"
)

// ropeAttrs is a rope plan: it stands on rope_freqs and, by value, on freqs_cis.
var ropeAttrs = []AttrDef{
	{Name: "dim", Kind: AttrInt, Doc: "rotated dims, even"},
	{Name: "base", Kind: AttrFloat, Doc: "theta"},
	{Name: "orig", Kind: AttrInt, Default: 0, Doc: "original context length; 0: no YaRN"},
	{Name: "factor", Kind: AttrFloat, Default: 1.0, Doc: "YaRN factor"},
	{Name: "beta_fast", Kind: AttrFloat, Default: 32.0, Doc: "rotations at the ramp's low end"},
	{Name: "beta_slow", Kind: AttrFloat, Default: 1.0, Doc: "rotations at the ramp's high end"},
}

func inferRopeFreqs(o *Op) ([]Type, error) {
	d := o.Int("dim")
	if d < 2 || d%2 != 0 {
		return nil, fmt.Errorf("dim is %d, want an even number of at least 2", d)
	}
	if o.Float("base") <= 1 || o.Float("factor") < 1 || o.Int("orig") < 0 || o.Float("beta_slow") <= 0 || o.Float("beta_fast") < o.Float("beta_slow") {
		return nil, fmt.Errorf("want base > 1, factor >= 1, orig >= 0 and beta_fast >= beta_slow > 0")
	}
	return []Type{T(F32, Int(d/2))}, nil
}

func init() {
	mustRegister(
		&OpDef{
			Name: "freqs_cis", Group: "rope", Table: true,
			Doc:     "Tables of cos and sin of f32(p * f_i) for positions p < len; f as in rope_freqs. The angle is rounded to f32 before cos and sin, which matters beyond position 10^5.",
			Results: []string{"cos", "sin"},
			Attrs:   append([]AttrDef{{Name: "len", Kind: AttrInt, Doc: "number of positions"}}, ropeAttrs...),
			Infer: func(o *Op) ([]Type, error) {
				if o.Int("len") < 1 {
					return nil, fmt.Errorf("len is %d, want at least 1", o.Int("len"))
				}
				f, err := inferRopeFreqs(o)
				if err != nil {
					return nil, err
				}
				t := T(F32, Int(o.Int("len")), f[0].Dims[0])
				return []Type{t, t}, nil
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				f := b.Op1("rope_freqs", slices.Clone(o.Attrs[1:]))
				n, half := Int(o.Int("len")), f.Type.Dims[0]
				p := b.Cast(b.Iota(0, n, Int(1)), F32)
				angle := b.Bin("mul", p, b.Reshape(f, Int(1), half))
				return []*Value{b.Un("cos", angle), b.Un("sin", angle)}
			},
			Limit: Limit{Kind: AbsF32, Bound: 1e-5, Why: "dsv4.md section 9: cos/sin within 3.8e-6 of the reference table"},
		},
		&OpDef{
			Name: "rope", Group: "rope",
			Doc:      "Rotates interleaved pairs of the last 2n elements of the last axis: (a,b) -> (a c - b s, a s + b c), f32 inside, rounded to bf16; inverse uses -s. The elements before pass.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [T,..,D]"}, {Name: "cos", Doc: "f32 [T,n]"}, {Name: "sin", Doc: "f32 [T,n]"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "inverse", Kind: AttrBool, Default: false, Doc: "rotate back"}},
			Infer: func(o *Op) ([]Type, error) {
				x, c := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, -1, BF16), o.want(1, 2, F32), o.want(2, 2, F32), o.wantDims(2, c.Dims...)); err != nil {
					return nil, err
				}
				if x.Rank() < 2 || !x.Dims[0].Equal(c.Dims[0]) {
					return nil, fmt.Errorf("x %s and cos %s: first axes differ", x, c)
				}
				d, ok1 := x.Dims[x.Rank()-1].Const()
				n, ok2 := c.Dims[1].Const()
				if !ok1 || !ok2 || 2*n > d {
					return nil, fmt.Errorf("cos %s has more pairs than the last axis of %s", c, x)
				}
				return []Type{x}, nil
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				x, cos, sin := o.Args[0], o.Args[1], o.Args[2]
				rank := x.Type.Rank()
				d, _ := x.Type.Dims[rank-1].Const()
				n, _ := cos.Type.Dims[1].Const()
				rot := x
				if 2*n < d {
					rot = b.Slice(x, rank-1, d-2*n, 2*n)
				}
				pairs := append(slices.Clone(x.Type.Dims[:rank-1]), Int(n), Int(2))
				rot = b.Cast(b.Reshape(rot, pairs...), F32)
				// cos and sin line up with [T,..,n,1]
				tab := make([]Dim, rank+1)
				for i := range tab {
					tab[i] = Int(1)
				}
				tab[0], tab[rank-1] = cos.Type.Dims[0], Int(n)
				c, s := b.Reshape(cos, tab...), b.Reshape(sin, tab...)
				if o.Bool("inverse") {
					s = b.Un("neg", s)
				}
				p, q := b.Slice(rot, rank, 0, 1), b.Slice(rot, rank, 1, 1)
				y := b.Concat(rank,
					b.Cast(b.Bin("sub", b.Bin("mul", p, c), b.Bin("mul", q, s)), BF16),
					b.Cast(b.Bin("add", b.Bin("mul", p, s), b.Bin("mul", q, c)), BF16))
				y = b.Reshape(y, withAxis(x.Type.Dims, rank-1, Int(2*n))...)
				if 2*n < d {
					y = b.Concat(rank-1, b.Slice(x, rank-1, 0, d-2*n), y)
				}
				return []*Value{y}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
	)
}
