package ir

import (
	"fmt"
	"slices"
)

// Hyper-connections: C residual streams mixed before and after each sublayer.

var hcAttrs = []AttrDef{
	{Name: "iters", Kind: AttrInt, Default: 20, Doc: "Sinkhorn iterations, 1..100"},
	{Name: "eps", Kind: AttrFloat, Doc: "added inside pre and the Sinkhorn divisions"},
	{Name: "norm_eps", Kind: AttrFloat, Doc: "added to the mean square"},
}

// The limits of f32 results, and of bf16 results that are sums of streams, which
// can cancel (dsv4.md section 9).
var (
	f32Noise = Limit{Kind: AbsF32, Bound: 2e-6}
	hcSum    = Limit{Kind: BF16ULP, Bound: 0.995, Abs: f32Noise.Bound}
	hcNormed = Limit{Kind: BF16ULP, Bound: 0.995, Abs: f32Noise.Bound, Ulps: 2, Why: "of a y within its limit: one ulp of y, times a factor, is up to two"}
)

// twoWeights is the liberty to multiply with f32 weights that two bf16 numbers stand
// for, and the limits of results: of streams, of y, of y's norm, of f32 numbers, and of
// the quantised norm.
func twoWeights(limits ...Limit) []Liberty {
	return []Liberty{{Name: "two-bf16-weights", Doc: "fn is multiplied as the sum of two bf16 numbers, within 2^-16 of it; sigmoids, the softmax, Sinkhorn steps and roots are made of the chip's own exponentials and reciprocals", Limits: limits}}
}

var (
	twoWeightsF32    = Limit{Kind: AbsF32, Bound: 1e-4}
	twoWeightsSum    = Limit{Kind: BF16ULP, Bound: 0.99, Abs: 1e-4}
	twoWeightsNormed = Limit{Kind: BF16ULP, Bound: 0.99, Abs: 1e-4, Ulps: 2}
)

func init() {
	mustRegister(
		&OpDef{
			Name: "hc_split", Group: "hyper-connection",
			Doc:      "Splits the mixes m [T,(2+C)C]: pre = sigmoid(m scale0 + base) + eps, post = 2 sigmoid(m scale1 + base), comb = Sinkhorn of m scale2 + base: softmax over the second index plus eps, one column step, then iters-1 row and column steps, each dividing by (sum + eps).",
			Operands: []OperandDef{{Name: "m", Doc: "f32 [T,(2+C)C]"}, {Name: "scale", Doc: "f32 [3]"}, {Name: "base", Doc: "f32 [(2+C)C]"}},
			Results:  []string{"pre", "post", "comb"},
			Attrs:    hcAttrs[:2],
			Infer: func(o *Op) ([]Type, error) {
				m := o.Args[0].Type
				if err := firstErr(o.want(0, 2, F32), o.want(1, 1, F32), o.want(2, 1, F32), o.wantDims(1, Int(3)), hcIters(o)); err != nil {
					return nil, err
				}
				c, ok := hcStreams(m.Dims[1])
				if !ok {
					return nil, fmt.Errorf("operand m is %s, want (2+C)*C columns", m)
				}
				t, cd := m.Dims[0], Int(c)
				return []Type{T(F32, t, cd), T(F32, t, cd), T(F32, t, cd, cd)}, o.wantDims(2, m.Dims[1])
			},
			Decompose: decomposeSplit,
			Limit:     f32Noise,
		},
		&OpDef{
			Name: "hc_pre", Group: "hyper-connection",
			Doc:      "Mixes the C streams into the sublayer input y = b(sum_c pre_c h_c), with pre, post and comb from hc_split of (fn x) / rms(x), x the flattened streams.",
			Operands: []OperandDef{{Name: "h", Doc: "bf16 [T,C,D]"}, {Name: "fn", Doc: "f32 [(2+C)C,C*D]"}, {Name: "scale", Doc: "f32 [3]"}, {Name: "base", Doc: "f32 [(2+C)C]"}},
			Results:  []string{"y", "post", "comb"},
			Attrs:    hcAttrs,
			Infer:    func(o *Op) ([]Type, error) { return hcPreTypes(o, 0, 1) },
			Decompose: func(b *Builder, o *Op) []*Value {
				h := o.Args[0]
				m := hcMixes(b, h, o.Args[1], o.Float("norm_eps"))
				s := b.Op("hc_split", Attrs{{"iters", o.Int("iters")}, {"eps", o.Float("eps")}}, m, o.Args[2], o.Args[3])
				return []*Value{hcGather(b, s[0], h), s[1], s[2]}
			},
			Limit: hcSum, MoreLimits: []Limit{f32Noise},
			Liberties: twoWeights(twoWeightsSum, twoWeightsF32),
		},
		&OpDef{
			Name: "hc_post", Group: "hyper-connection",
			Doc:      "h'_j = b(post_j o + sum_i comb[i,j] h_i): the first index of comb is contracted.",
			Operands: []OperandDef{{Name: "o", Doc: "bf16 [T,D], sublayer output"}, {Name: "h", Doc: "bf16 [T,C,D], input of hc_pre"}, {Name: "post", Doc: "f32 [T,C]"}, {Name: "comb", Doc: "f32 [T,C,C]"}},
			Results:  []string{"h"},
			Infer:    hcPostTypes,
			Decompose: func(b *Builder, o *Op) []*Value {
				x, h, post, comb := o.Args[0], o.Args[1], o.Args[2], o.Args[3]
				t, c, d := h.Type.Dims[0], h.Type.Dims[1], h.Type.Dims[2]
				mixed := b.Dot(b.Transpose(comb, 0, 2, 1), b.Transpose(h, 0, 2, 1), F32) // [T,j,D]
				scaled := b.Bin("mul", b.Reshape(post, t, c, Int(1)), b.Reshape(b.Cast(x, F32), t, Int(1), d))
				return []*Value{b.Cast(b.Bin("add", scaled, mixed), BF16)}
			},
			Limit: hcSum,
		},
		hcFused("hc_fused", "The border of two sublayers: hc_post of the one, hc_pre of the next on the new streams, and the next one's rms_norm of y.", false),
		hcFused("hc_fused_quant", "hc_fused with the quantisation of hidden that products with this act_block do as a result too, as bf16 values.", true),
		&OpDef{
			Name: "hc_head", Group: "hyper-connection",
			Doc:      "The final mix y = b(sum_c pre_c h_c), pre = sigmoid(m scale + base) + eps, without Sinkhorn.",
			Operands: []OperandDef{{Name: "h", Doc: "bf16 [T,C,D]"}, {Name: "fn", Doc: "f32 [C,C*D]"}, {Name: "scale", Doc: "f32 [1]"}, {Name: "base", Doc: "f32 [C]"}},
			Results:  []string{"y"},
			Attrs:    hcAttrs[1:],
			Infer: func(o *Op) ([]Type, error) {
				h := o.Args[0].Type
				if err := firstErr(o.want(0, 3, BF16), o.want(1, 2, F32), o.want(2, 1, F32), o.want(3, 1, F32)); err != nil {
					return nil, err
				}
				t, c, d := h.Dims[0], h.Dims[1], h.Dims[2]
				return []Type{T(BF16, t, d)}, firstErr(o.wantConst(0, 1), o.wantConst(0, 2), o.wantDims(1, c, c.Mul(d)), o.wantDims(2, Int(1)), o.wantDims(3, c))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				h := o.Args[0]
				m := hcMixes(b, h, o.Args[1], o.Float("norm_eps"))
				scaled := b.Bin("mul", m, b.Reshape(o.Args[2], Int(1), Int(1)))
				logit := b.Bin("add", scaled, alignLast(b, o.Args[3], 2))
				pre := b.Bin("add", b.Un("sigmoid", logit), b.F(o.Float("eps")))
				return []*Value{hcGather(b, pre, h)}
			},
			Limit: hcSum,
		},
	)
}

// hcFused is the row of hc_fused, with or without the quantised result.
func hcFused(name, doc string, quant bool) *OpDef {
	d := &OpDef{
		Name: name, Group: "hyper-connection", Doc: doc, FusedBy: "fuse-hc",
		Operands: []OperandDef{
			{Name: "o", Doc: "bf16 [T,D], sublayer output"}, {Name: "h", Doc: "bf16 [T,C,D], the streams before it"}, {Name: "post", Doc: "f32 [T,C]"}, {Name: "comb", Doc: "f32 [T,C,C]"},
			{Name: "fn", Doc: "f32 [(2+C)C,C*D], of the next sublayer, as all that follow"}, {Name: "scale", Doc: "f32 [3]"}, {Name: "base", Doc: "f32 [(2+C)C]"}, {Name: "w", Doc: "bf16 [D], of the norm"},
		},
		Results: []string{"residual", "hidden", "post", "comb"},
		Attrs:   slices.Concat(hcAttrs, []AttrDef{{Name: "rms_eps", Kind: AttrFloat, Doc: "added to the mean square of y by the norm"}}),
		Infer: func(o *Op) ([]Type, error) {
			h, err := hcPostTypes(o)
			if err != nil {
				return nil, err
			}
			pre, err := hcPreTypes(o, 1, 4)
			if err != nil {
				return nil, err
			}
			types := append(h, pre...)
			if quant {
				types = append(types, pre[0])
				err = wantWholeBlocks(o, pre[0])
			}
			return types, firstErr(o.want(7, 1, BF16), o.wantDims(7, h[0].Dims[2]), err)
		},
		Decompose: func(b *Builder, o *Op) []*Value {
			h := b.Op1("hc_post", nil, o.Args[:4]...)
			return append([]*Value{h}, hcNext(b, o, h)...)
		},
		Rest:  hcNext,
		Limit: hcSum, MoreLimits: []Limit{hcNormed, f32Noise},
		Liberties: twoWeights(hcSum, twoWeightsNormed, twoWeightsF32),
	}
	if quant {
		d.FusedBy = "fuse-norm-quant"
		d.Results = append(d.Results, "q")
		d.Attrs = append(d.Attrs, normQuantAttrs[0])
		d.MoreLimits = []Limit{hcNormed, f32Noise, f32Noise, normQuantLimit}
		q := normQuantLimit
		q.Bound = twoWeightsNormed.Bound
		d.Liberties = twoWeights(hcSum, twoWeightsNormed, twoWeightsF32, twoWeightsF32, q)
	}
	return d
}

// wantWholeBlocks checks act_block against the last axis of a type.
func wantWholeBlocks(o *Op, t Type) error {
	n, ok := t.Dims[t.Rank()-1].Const()
	if block := o.Int("act_block"); !ok || block < 1 || n%block != 0 {
		return fmt.Errorf("act_block %d does not divide the last axis of %s", block, t)
	}
	return nil
}

// hcNext is what hc_fused has besides residual, from the new streams h.
func hcNext(b *Builder, o *Op, h *Value) []*Value {
	pre := b.Op("hc_pre", Attrs{{"iters", o.Int("iters")}, {"eps", o.Float("eps")}, {"norm_eps", o.Float("norm_eps")}}, append([]*Value{h}, o.Args[4:7]...)...)
	out := []*Value{b.Op1("rms_norm", Attrs{{"eps", o.Float("rms_eps")}}, pre[0], o.Args[7]), pre[1], pre[2]}
	if len(o.Results) == 5 {
		out = append(out, b.RoundActivations(out[0], o.Int("act_block")))
	}
	return out
}

// hcPostTypes are those of hc_post, whose operands come first.
func hcPostTypes(o *Op) ([]Type, error) {
	h := o.Args[1].Type
	if err := firstErr(o.want(0, 2, BF16), o.want(1, 3, BF16), o.want(2, 2, F32), o.want(3, 3, F32)); err != nil {
		return nil, err
	}
	t, c, d := h.Dims[0], h.Dims[1], h.Dims[2]
	return []Type{h}, firstErr(o.wantDims(0, t, d), o.wantDims(2, t, c), o.wantDims(3, t, c, c))
}

// hcPreTypes are those of hc_pre; h is the operand with the streams, and fn, scale
// and base are three in a row.
func hcPreTypes(o *Op, h, fn int) ([]Type, error) {
	x, scale, base := o.Args[h].Type, fn+1, fn+2
	if err := firstErr(o.want(h, 3, BF16), o.want(fn, 2, F32), o.want(scale, 1, F32), o.want(base, 1, F32), hcIters(o)); err != nil {
		return nil, err
	}
	t, c, d := x.Dims[0], x.Dims[1], x.Dims[2]
	cols := c.Add(Int(2)).Mul(c)
	if err := firstErr(o.wantConst(h, 1), o.wantConst(h, 2)); err != nil {
		return nil, err
	}
	return []Type{T(BF16, t, d), T(F32, t, c), T(F32, t, c, c)},
		firstErr(o.wantDims(fn, cols, c.Mul(d)), o.wantDims(scale, Int(3)), o.wantDims(base, cols))
}

// hcIters bounds the iterations, each of which the decomposition writes out.
func hcIters(o *Op) error {
	if n := o.Int("iters"); n < 1 || n > 100 {
		return fmt.Errorf("iters is %d, want 1..100", n)
	}
	return nil
}

// hcStreams finds C with (2+C)*C = n.
func hcStreams(n Dim) (int, bool) {
	cols, ok := n.Const()
	for c := 1; ok && c*(c+2) <= cols; c++ {
		if c*(c+2) == cols {
			return c, true
		}
	}
	return 0, false
}

// hcMixes is (fn x) * 1/rms(x) over the flattened streams, f32.
func hcMixes(b *Builder, h, fn *Value, eps float64) *Value {
	d := h.Type.Dims
	x := b.Cast(b.Reshape(h, d[0], d[1].Mul(d[2])), F32)
	return b.Bin("mul", b.Dot(x, fn, F32), invRMS(b, x, eps))
}

// hcGather is b(sum_c pre_c h_c).
func hcGather(b *Builder, pre, h *Value) *Value {
	t, c, d := h.Type.Dims[0], h.Type.Dims[1], h.Type.Dims[2]
	w := b.Bin("mul", b.Reshape(pre, t, c, Int(1)), b.Cast(h, F32))
	return b.Reshape(b.Cast(b.Sum(w, 1, F32), BF16), t, d)
}

func decomposeSplit(b *Builder, o *Op) []*Value {
	m, scale, base := o.Args[0], o.Args[1], o.Args[2]
	t := m.Type.Dims[0]
	c, _ := hcStreams(m.Type.Dims[1])
	eps := b.F(o.Float("eps"))
	// part is m*scale[i] + base over columns from..from+n-1.
	part := func(i, from, n int) *Value {
		s := b.Reshape(b.Slice(scale, 0, i, 1), Int(1), Int(1))
		return b.Bin("add", b.Bin("mul", b.Slice(m, 1, from, n), s), alignLast(b, b.Slice(base, 0, from, n), 2))
	}
	pre := b.Bin("add", b.Un("sigmoid", part(0, 0, c)), eps)
	post := b.Bin("mul", b.F(2), b.Un("sigmoid", part(1, c, c)))
	a := b.Reshape(part(2, 2*c, c*c), t, Int(c), Int(c))
	const rows, cols = 2, 1 // the axis a step sums over
	e := b.Un("exp", b.Bin("sub", a, b.Op1("reduce_max", Attrs{{"axis", rows}}, a)))
	a = b.Bin("add", b.Bin("div", e, b.Sum(e, rows, F32)), eps)
	step := func(axis int) { a = b.Bin("div", a, b.Bin("add", b.Sum(a, axis, F32), eps)) }
	step(cols)
	for i := 1; i < o.Int("iters"); i++ {
		step(rows)
		step(cols)
	}
	return []*Value{pre, post, a}
}
