package ir

import (
	"fmt"
	"math"
	"slices"
)

var gateAttrs = []AttrDef{
	{Name: "k", Kind: AttrInt, Doc: "experts per token"},
	{Name: "scale", Kind: AttrFloat, Doc: "factor of the normalised weights"},
}

func init() {
	mustRegister(
		&OpDef{
			Name: "gate", Group: "moe",
			Doc:      "s = sqrt(softplus(w x)), softplus(v) = v above 20; ids = the k largest of s + bias, weights = s[ids] / sum * scale: the bias chooses, it does not weigh.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [T,D]"}, {Name: "w", Doc: "bf16 [E,D]"}, {Name: "bias", Doc: "f32 [E]"}},
			Results:  []string{"ids", "weights"},
			Attrs:    gateAttrs,
			Infer: func(o *Op) ([]Type, error) {
				x, w := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, 2, BF16), o.want(1, 2, BF16), o.want(2, 1, F32)); err != nil {
					return nil, err
				}
				if err := firstErr(o.wantDims(1, w.Dims[0], x.Dims[1]), o.wantDims(2, w.Dims[0])); err != nil {
					return nil, err
				}
				return gateTypes(o, x.Dims[0], w.Dims[0])
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				s := gateScores(b, o.Args[0], o.Args[1])
				ids := b.Op1("topk", Attrs{{"k", o.Int("k")}}, b.Bin("add", s, alignLast(b, o.Args[2], 2)))
				return []*Value{ids, gateWeights(b, s, ids, o.Float("scale"))}
			},
			Limit: Limit{Kind: ByChoice}, MoreLimits: []Limit{f32Noise},
		},
		&OpDef{
			Name: "hash_gate", Group: "moe",
			Doc:      "As gate, but the ids come from a table row chosen by the token id; there is no bias.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [T,D]"}, {Name: "w", Doc: "bf16 [E,D]"}, {Name: "tid2eid", Doc: "i64 [V,k]"}, {Name: "tokens", Doc: "i32 [T]"}},
			Results:  []string{"ids", "weights"},
			Attrs:    gateAttrs,
			Infer: func(o *Op) ([]Type, error) {
				x, w, t := o.Args[0].Type, o.Args[1].Type, o.Args[2].Type
				if err := firstErr(o.want(0, 2, BF16), o.want(1, 2, BF16), o.want(2, 2, I64), o.want(3, 1, I32)); err != nil {
					return nil, err
				}
				if err := firstErr(o.wantDims(1, w.Dims[0], x.Dims[1]), o.wantDims(2, t.Dims[0], Int(o.Int("k"))), o.wantDims(3, x.Dims[0])); err != nil {
					return nil, err
				}
				return gateTypes(o, x.Dims[0], w.Dims[0])
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				s := gateScores(b, o.Args[0], o.Args[1])
				ids := b.Cast(b.Op1("gather_rows", nil, o.Args[2], o.Args[3]), I32)
				return []*Value{ids, gateWeights(b, s, ids, o.Float("scale"))}
			},
			Limit: Limit{Kind: Exact}, MoreLimits: []Limit{f32Noise},
		},
		&OpDef{
			Name: "swiglu", Group: "moe",
			Doc:      "b(weight * (g' * sigmoid(g') * u')), g' = min(g, limit), u' = clamp(u, -limit, limit); limit 0 clamps nothing. f32 inside.",
			Operands: []OperandDef{{Name: "g", Doc: "bf16 [..,I]"}, {Name: "u", Doc: "bf16 [..,I]"}, {Name: "weight", Doc: "f32, last axis 1"}}, Results: []string{"a"},
			Attrs: []AttrDef{{Name: "limit", Kind: AttrFloat, Doc: "clamp; 0: off"}},
			Infer: func(o *Op) ([]Type, error) {
				g := o.Args[0].Type
				if err := firstErr(o.want(0, -1, BF16), o.want(1, -1, BF16), o.want(2, g.Rank(), F32), o.wantDims(1, g.Dims...)); err != nil {
					return nil, err
				}
				if o.Float("limit") < 0 || g.Rank() < 1 {
					return nil, fmt.Errorf("limit %v, g %s: want limit >= 0 and rank >= 1", o.Float("limit"), g)
				}
				return []Type{g}, o.wantDims(2, withAxis(g.Dims, g.Rank()-1, Int(1))...)
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				g, u := b.Cast(o.Args[0], F32), b.Cast(o.Args[1], F32)
				if lim := o.Float("limit"); lim > 0 {
					g = b.Bin("min", g, b.F(lim))
					u = b.Bin("min", b.Bin("max", u, b.F(-lim)), b.F(lim))
				}
				silu := b.Bin("mul", g, b.Un("sigmoid", g))
				return []*Value{b.Cast(b.Bin("mul", o.Args[2], b.Bin("mul", silu, u)), BF16)}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "expert", Group: "moe",
			Doc:      "One gated MLP: w2 applied to swiglu(w1 x, w3 x, weight); the weight multiplies before w2 and before its activation quantisation.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [T,D]"}, {Name: "w1", Doc: "gate, [I,D] block scaled"}, {Name: "w3", Doc: "up, [I,D]"}, {Name: "w2", Doc: "down, [D,I]"}, {Name: "weight", Doc: "f32 [T,1]"}},
			Results:  []string{"y"},
			Attrs:    []AttrDef{{Name: "limit", Kind: AttrFloat, Doc: "swiglu clamp; 0: off"}, actBlockAttr},
			Infer: func(o *Op) ([]Type, error) {
				x, w1 := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, 2, BF16), wantScaled(o, 1, 2), wantScaled(o, 2, 2), wantScaled(o, 3, 2), o.want(4, 2, F32)); err != nil {
					return nil, err
				}
				if o.Float("limit") < 0 {
					return nil, fmt.Errorf("limit %v: want limit >= 0", o.Float("limit"))
				}
				i, d := w1.Dims[0], x.Dims[1]
				return []Type{x}, firstErr(o.wantDims(1, i, d), o.wantDims(2, i, d), o.wantDims(3, d, i), o.wantDims(4, x.Dims[0], Int(1)), o.wantActBlocks(), o.wantBlocks(1, 0, actBlock))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				x := o.Args[0]
				act := Attrs{{"act_block", o.Int("act_block")}}
				g, u := b.Op1("block_linear", act, x, o.Args[1]), b.Op1("block_linear", act, x, o.Args[2])
				a := b.Op1("swiglu", Attrs{{"limit", o.Float("limit")}}, g, u, o.Args[4])
				return []*Value{b.Op1("block_linear", nil, a, o.Args[3])}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "moe_experts", Group: "moe",
			Doc:      "The f32 sum, in ascending expert id, of the chosen experts' outputs (each as in expert). Defined as every expert on every row, then a select of the chosen ones; an expert that is not chosen contributes nothing, NaN included. An expert chosen twice counts once with both weights.",
			Operands: moeOperands, Results: []string{"y"}, Attrs: moeAttrs,
			Infer: func(o *Op) ([]Type, error) {
				t, err := inferExperts(o)
				return []Type{t.As(F32)}, err
			},
			Decompose: decomposeExperts,
			Flops:     expertFlops,
			Limit:     Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "moe_experts_add", Group: "moe", FusedBy: "fuse-moe-add",
			Doc:      "b(moe_experts + shared): the routed experts' sum and another's output, added in f32 and rounded once.",
			Operands: append(slices.Clone(moeOperands), OperandDef{Name: "shared", Doc: "bf16 [T,D]"}), Results: []string{"y"}, Attrs: moeAttrs,
			Infer: func(o *Op) ([]Type, error) {
				t, err := inferExperts(o)
				return []Type{t}, firstErr(err, o.want(6, 2, BF16), o.wantDims(6, o.Args[0].Type.Dims...))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				routed := b.Op1("moe_experts", slices.Clone(o.Attrs), o.Args[:6]...)
				return []*Value{b.Cast(b.Bin("add", routed, b.Cast(o.Args[6], F32)), BF16)}
			},
			Flops: expertFlops,
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
	)
}

var (
	moeOperands = []OperandDef{{Name: "x", Doc: "bf16 [T,D]"}, {Name: "w1", Doc: "[E,I,D] block scaled"}, {Name: "w3", Doc: "[E,I,D]"}, {Name: "w2", Doc: "[E,D,I]"}, {Name: "ids", Doc: "i32 [T,K]"}, {Name: "weights", Doc: "f32 [T,K]"}}
	moeAttrs    = []AttrDef{{Name: "limit", Kind: AttrFloat, Doc: "swiglu clamp; 0: off"}, actBlockAttr}
)

// inferExperts checks what moe_experts and moe_experts_add share, and returns x's
// type.
func inferExperts(o *Op) (Type, error) {
	x, w1, ids := o.Args[0].Type, o.Args[1].Type, o.Args[4].Type
	if err := firstErr(o.want(0, 2, BF16), wantScaled(o, 1, 3), wantScaled(o, 2, 3), wantScaled(o, 3, 3), o.want(4, 2, I32), o.want(5, 2, F32)); err != nil {
		return x, err
	}
	if o.Float("limit") < 0 {
		return x, fmt.Errorf("limit %v: want limit >= 0", o.Float("limit"))
	}
	e, i, d := w1.Dims[0], w1.Dims[1], x.Dims[1]
	return x, firstErr(o.wantDims(1, e, i, d), o.wantDims(2, e, i, d), o.wantDims(3, e, d, i), o.wantDims(4, x.Dims[0], ids.Dims[1]), o.wantDims(5, ids.Dims...), o.wantActBlocks(), o.wantBlocks(1, 1, actBlock))
}

// expertFlops: the decomposition runs every expert; an implementation, the chosen
// ones.
func expertFlops(o *Op) int64 {
	rows, _ := o.Args[4].Type.Size()
	expert, _ := o.Args[1].Type.With(o.Args[1].Type.Dims[1:]...).Size()
	return 3 * 2 * int64(rows) * int64(expert)
}

func gateTypes(o *Op, t, e Dim) ([]Type, error) {
	k := o.Int("k")
	if n, ok := e.Const(); k < 1 || ok && k > n {
		return nil, fmt.Errorf("k is %d, want 1..%s", k, e)
	}
	return []Type{T(I32, t, Int(k)), T(F32, t, Int(k))}, nil
}

// gateScores is sqrt(softplus(w x)) in f32.
func gateScores(b *Builder, x, w *Value) *Value {
	v := b.Dot(x, w, F32)
	soft := b.Select(b.Bin("gt", v, b.F(20)), v, b.Un("log1p", b.Un("exp", v)))
	return b.Un("sqrt", soft)
}

// gateWeights normalises the chosen scores.
func gateWeights(b *Builder, s, ids *Value, scale float64) *Value {
	w := b.Op1("take_along", nil, s, ids)
	return b.Bin("mul", b.Bin("div", w, b.Sum(w, 1, F32)), b.F(scale))
}

func decomposeExperts(b *Builder, o *Op) []*Value {
	x, w1, w3, w2, ids, weights := o.Args[0], o.Args[1], o.Args[2], o.Args[3], o.Args[4], o.Args[5]
	t, d, e, k, one := x.Type.Dims[0], x.Type.Dims[1], w1.Type.Dims[0], ids.Type.Dims[1], Int(1)

	hit := b.Bin("eq", b.Reshape(ids, one, t, k), b.Iota(0, e, one, one)) // [E,T,K]
	share := b.Select(hit, b.Reshape(weights, one, t, k), b.F(0))
	weight := b.Sum(share, 2, F32)                                              // [E,T,1]
	chosen := b.Bin("gt", b.Sum(b.Select(hit, b.F(1), b.F(0)), 2, F32), b.F(0)) // [E,T,1]

	xq := b.Reshape(activations(b, x, o.Int("act_block")), one, t, d)
	g, u := b.Dot(xq, dequantized(b, w1), BF16), b.Dot(xq, dequantized(b, w3), BF16) // [E,T,I]
	a := b.Op1("swiglu", Attrs{{"limit", o.Float("limit")}}, g, u, weight)
	y := b.Dot(quantized(b, a, actBlock), dequantized(b, w2), BF16) // [E,T,D]
	y = b.Select(chosen, b.Cast(y, F32), b.F(0))
	return []*Value{b.Reshape(b.Sum(y, 0, F32), t, d)}
}

// IndexerScale is the factor of the indexer's head weights: ID^-0.5 * IH^-0.5
// in float64, then f32.
func IndexerScale(heads, dim int) float64 {
	return float64(float32(math.Pow(float64(dim), -0.5) * math.Pow(float64(heads), -0.5)))
}

// AttentionScale is hd^-0.5 as f32.
func AttentionScale(headDim int) float64 { return powHalf(headDim) }
