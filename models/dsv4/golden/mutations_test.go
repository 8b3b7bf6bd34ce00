package golden

import (
	"math"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

type values = []*ir.Value

// only keeps a rewriter to one op.
func only(name string, f rewriter) rewriter {
	return func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
		if op.Def.Name != name {
			return nil
		}
		return f(b, op, args)
	}
}

// mutations breaks the rules of section 8 in its order.
var mutations = []mutation{
	{
		rule: "contracting the second index of A in hc_post", how: "comb is transposed before hc_post", numerics: dsv4.Unrounded,
		checks: []string{"e2e/short/greedy", "op/hc.256"},
		breaks: swap("hc_post", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			return right(b, with(o, o.Args[0], o.Args[1], o.Args[2], b.Transpose(o.Args[3], 0, 2, 1)))
		}),
	},
	{
		rule: "omitting the first column step of Sinkhorn", how: "softmax, then iters-1 row and column steps", numerics: dsv4.Unrounded,
		checks: []string{"op/sinkhorn", "op/hc.256", "op/hc.4096", "op/hc.7168", "local/short/layer.0", "exact/sinkhorn-steps"},
		breaks: swap("hc_split", withoutColumnStep),
	},
	{
		rule: "YaRN / compressed theta on r = 0 layers (or MTP)", how: "a layer without compression takes the YaRN plan", numerics: dsv4.Unrounded,
		checks: []string{"attn.0/prefill"},
		breaks: rewrite(only("freqs_cis", yarnEverywhere)),
	},
	{
		rule: "YaRN / compressed theta on r = 0 layers (or MTP)", how: "the MTP block takes the YaRN plan", numerics: dsv4.Unrounded,
		checks: []string{"local/short/mtp"},
		breaks: rewriteGraph(string(dsv4.Draft), only("gather_rows", yarnTables)),
	},
	{
		rule: "half-split instead of interleaved rope pairs", how: "dims i and i+32 are a pair", numerics: dsv4.Unrounded,
		checks: []string{"op/rope.plain"},
		breaks: swap("rope", halfSplit),
	},
	{
		rule: "no inverse rope on the output", how: "the attention output is not rotated back", numerics: dsv4.Unrounded,
		checks: []string{"attn.0/prefill"},
		breaks: rewrite(only("rope", func(_ *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if !op.Bool("inverse") {
				return nil
			}
			return values{args[0]}
		})),
	},
	{
		rule: "no per-head query RMS", how: "queries are not normalised per head", numerics: dsv4.Unrounded,
		checks: []string{"attn.0/prefill"},
		breaks: rewrite(only("head_rms_norm", func(_ *ir.Builder, _ *ir.Op, args []*ir.Value) []*ir.Value { return values{args[0]} })),
	},
	{
		rule: "sink left out of the denominator", how: "the sink is minus infinity", numerics: dsv4.Unrounded,
		checks: []string{"op/sparse_attn.a"},
		breaks: swap("sparse_attention", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			none := b.Broadcast(b.F(math.Inf(-1)), o.Args[1].Type.Dims...)
			return right(b, with(o, append(values{o.Args[0], none}, o.Args[2:]...)...))
		}),
	},
	{
		rule: "compressed entry rotated at its last token (or at its row number e) instead of e*r", how: "rotated at the group's last token", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: swap("group_start", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			last := *o
			last.Attrs = set(o.Attrs, "ratio", 1)
			return right(b, &last)
		}),
	},
	{
		rule: "compressed entry rotated at its last token (or at its row number e) instead of e*r", how: "rotated at the entry's number", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: swap("group_start", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			return values{b.Bin("div", right(b, o)[0], b.I(o.Int("ratio")))} // -1 stays -1
		}),
	},
	{
		rule: "halves of the overlapping compressor swapped", how: "the previous group takes the second half of the columns, the current group the first", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: swap("compress", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			if !o.Bool("overlap") {
				return right(b, o)
			}
			args := values{}
			for _, v := range o.Args[:4] {
				w, _ := v.Type.Dims[1].Const()
				args = append(args, b.Concat(1, b.Slice(v, 1, w/2, w/2), b.Slice(v, 1, 0, w/2)))
			}
			return right(b, with(o, append(args, o.Args[4:]...)...))
		}),
	},
	{
		rule: "ape omitted", how: "ape is not added to the gate of a compressor", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: rewrite(only("add", func(_ *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if g := op.Args[1].Op; g == nil || g.Def.Name != "gather_rows" || !strings.HasSuffix(g.Args[0].Name, ".ape") {
				return nil
			}
			return values{args[0]}
		})),
	},
	{
		rule: "relu omitted in the indexer", how: "negative head scores count", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: swap("indexer_scores", func(b *ir.Builder, o *ir.Op, _ decomposition) []*ir.Value {
			q, rows := o.Args[0], o.Args[3]
			t, h, n := q.Type.Dims[0], q.Type.Dims[1], rows.Type.Dims[1]
			s := b.Dot(q, b.Op1("gather_rows", nil, o.Args[2], rows), ir.BF16)
			s = b.Sum(b.Bin("mul", s, b.Reshape(o.Args[1], t, h, ir.Int(1))), 1, ir.BF16)
			return values{b.Select(b.Bin("ge", rows, b.I(0)), b.Reshape(s, t, n), b.Scalar(ir.BF16, math.Inf(-1)))}
		}),
	},
	{
		rule: "window one too small", how: "the window holds one position less", numerics: dsv4.Unrounded,
		checks: []string{"local/short/layer.0", "attn.0/prefill"},
		breaks: rewrite(only("history_rows", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if op.Args[0].Op == nil { // the members of a compressed group
				return nil
			}
			return b.Op("history_rows", set(op.Attrs, "span", op.Int("span")-1), args...)
		})),
	},
	{
		rule: "indexer ties resolved towards the higher index", how: "of equal scores the higher index is chosen", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill", "attn.4/prefill", "exact/topk-ties"},
		breaks: rewrite(only("topk", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			back := b.Bin("sub", b.Cast(lastColumn(b, args[0]), ir.I32), b.Iota(args[0].Type.Rank()-1, args[0].Type.Dims...))
			ids := b.Op1("topk", op.Attrs, b.Op1("take_along", nil, args[0], back))
			mirrored := b.Bin("sub", b.Cast(lastColumn(b, args[0]), ir.I32), ids)
			return values{b.Select(b.Bin("ge", ids, b.I(0)), mirrored, ids)}
		})),
	},
	{
		rule: "routing weight applied after w2", how: "a single expert's output is weighted", numerics: dsv4.Unrounded,
		checks: []string{"op/expert.3.2"},
		breaks: swap("expert", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			weight := o.Args[4]
			one := b.Broadcast(b.F(1), weight.Type.Dims...)
			y := right(b, with(o, append(o.Args[:4:4], one)...))[0]
			return values{b.Cast(b.Bin("mul", b.Cast(y, ir.F32), weight), ir.BF16)}
		}),
	},
	{
		rule: "routing weight applied after w2", how: "the routed experts' outputs are weighted", numerics: dsv4.Unrounded,
		checks: []string{"local/short/layer.3", "moe.3", "op/expert.3.2"},
		breaks: swap("moe_experts", weightAfterW2),
	},
	{
		rule: "bias left in the routing weights", how: "weights are taken from score + bias", numerics: dsv4.Unrounded,
		checks: []string{"moe.3", "op/gate.3"},
		breaks: swap("gate", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			s := b.Bin("add", gateScore(b, o), b.Reshape(o.Args[2], ir.Int(1), o.Args[2].Type.Dims[0]))
			ids := right(b, o)[0]
			w := b.Op1("take_along", nil, s, ids)
			return values{ids, b.Bin("mul", b.Bin("div", w, b.Sum(w, 1, ir.F32)), b.F(o.Float("scale")))}
		}),
	},
	{
		rule: "weights not normalised", how: "scores of the chosen experts are weights as they are", numerics: dsv4.Unrounded,
		checks: []string{"op/gate.3"},
		breaks: swap("gate", notNormalised),
	},
	{
		rule: "weights not normalised", how: "the same in a hash layer", numerics: dsv4.Unrounded,
		checks: []string{"op/gate.0"},
		breaks: swap("hash_gate", notNormalised),
	},
	{
		rule: "gate clamped below as well", how: "the gate is at least -limit", numerics: dsv4.Unrounded,
		checks: []string{"moe.3", "op/expert.3.2", "exact/swiglu-clamp"},
		breaks: swap("swiglu", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			g := b.Bin("max", o.Args[0], b.Scalar(ir.BF16, -o.Float("limit")))
			return right(b, with(o, append(values{g}, o.Args[1:]...)...))
		}),
	},

	// The sentence below the table.
	{
		rule: "NaN instead of zeros for an all -1 row", how: "a query without rows gives NaN", numerics: dsv4.Unrounded,
		checks: []string{"op/sparse_attn.a", "attn.0/prefill", "exact/few-rows"},
		breaks: swap("sparse_attention", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			t := o.Args[0].Type.Dims[0]
			var sets values
			for i := 3; i < len(o.Args); i += 2 {
				sets = append(sets, o.Args[i])
			}
			rows := b.Cast(b.Concat(1, sets...), ir.F32)
			some := b.Bin("ge", b.Op1("reduce_max", ir.A("axis", 1), rows), b.F(0))
			return values{b.Select(b.Reshape(some, t, ir.Int(1), ir.Int(1)), right(b, o)[0], b.Scalar(ir.BF16, math.NaN()))}
		}),
	},
	{
		rule: "hash layers have no bias tensor (and use the *current* token id, MTP the next one)", how: "a hash layer chooses by score", numerics: dsv4.Unrounded,
		checks: []string{"op/gate.0"},
		breaks: rewrite(only("hash_gate", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			return b.Op("gate", op.Attrs, args[0], args[1], b.Broadcast(b.F(0), args[1].Type.Dims[0]))
		})),
	},
	{
		rule: "hash layers have no bias tensor (and use the *current* token id, MTP the next one)", how: "a hash layer takes the next token's id", numerics: dsv4.Unrounded,
		checks: []string{"op/gate.0"},
		breaks: rewrite(only("hash_gate", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			t := args[3].Type.Dims[0]
			row := b.Reshape(b.Iota(1, ir.Int(1), t), t)
			last := b.Reshape(b.Cast(lastColumn(b, b.Reshape(args[3], ir.Int(1), t)), ir.I32), ir.Int(1))
			next := b.Op1("gather_rows", nil, args[3], b.Bin("min", b.Bin("add", row, b.I(1)), last))
			return b.Op("hash_gate", op.Attrs, args[0], args[1], args[2], next)
		})),
	},
	{
		rule: "hash layers have no bias tensor (and use the *current* token id, MTP the next one)", how: "the MTP step takes the current token's id", numerics: dsv4.Unrounded,
		checks: []string{"local/short/mtp"},
		breaks: rewriteGraph(string(dsv4.Draft), only("gather_rows", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if op.Args[0].Name != "embed" {
				return nil
			}
			before := b.Bin("sub", b.Iota(0, args[1].Type.Dims...), b.I(1)) // a chunk's first row gets id 0
			return b.Op("gather_rows", nil, args[0], b.Op1("gather_rows", nil, args[1], before))
		})),
	},
	{
		rule: "window slots are unordered after wrap-around, so never derive a mask from the slot number", how: "a ring row counts only up to the slot of the query's position", numerics: dsv4.Unrounded,
		checks: []string{"local/short/layer.0", "attn.0/prefill"},
		breaks: swap("history_rows", func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
			r := right(b, o)
			size := b.I(o.Int("size"))
			here := b.Bin("mod", b.Op1("gather_rows", nil, o.Args[1], o.Args[0]), size)
			here = b.Reshape(here, here.Type.Dims[0], ir.Int(1))
			return values{b.Select(b.Bin("le", b.Bin("mod", r[0], size), here), r[0], b.I(-1)), r[1]}
		}),
	},
	{
		rule: "the gate and head are not fp8", how: "the gate's input is rounded to fp8", numerics: dsv4.Unrounded,
		checks: []string{"op/gate.3"},
		breaks: rewrite(only("gate", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			return b.Op("gate", op.Attrs, fp8(b, args[0]), args[1], args[2])
		})),
	},
	{
		rule: "the gate and head are not fp8", how: "the head's input is rounded to fp8", numerics: dsv4.Unrounded,
		checks: []string{"local/short/head"},
		breaks: rewrite(only("linear", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if op.Args[1].Name != "head" {
				return nil
			}
			return b.Op("linear", op.Attrs, fp8(b, args[0]), args[1])
		})),
	},
	{
		rule: "wo_a is dequantised, its input is not quantised", how: "the input of wo_a is rounded to fp8", numerics: dsv4.Unrounded,
		checks: []string{"attn.0/prefill"},
		breaks: rewrite(only("grouped_linear", func(b *ir.Builder, _ *ir.Op, args []*ir.Value) []*ir.Value {
			return b.Op("grouped_linear", nil, fp8(b, args[0]), args[1])
		})),
	},
	{
		rule: "the compressor uses f32 without quantised input", how: "a compressor's input is rounded to fp8", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: rewrite(only("linear", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if !strings.Contains(op.Args[1].Name, "compressor.w") {
				return nil
			}
			return b.Op("linear", op.Attrs, fp8(b, args[0]), args[1])
		})),
	},
	{
		rule: "the compressor uses f32 without quantised input", how: "a compressor's k and g are rounded to bf16", numerics: dsv4.Unrounded,
		checks: []string{"attn.3/prefill", "attn.2/prefill", "exact/compressor"},
		breaks: rewrite(only("linear", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if !strings.Contains(op.Args[1].Name, "compressor.w") {
				return nil
			}
			return values{b.Cast(b.Op1("linear", set(op.Attrs, "to", ir.BF16), args...), ir.F32)}
		})),
	},
	{
		rule: "top-k over fewer than IT entries takes all of them", how: "fewer entries than places choose none", numerics: dsv4.Unrounded,
		checks: []string{"attn.2/prefill"},
		breaks: rewrite(only("topk", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			ids := b.Op1("topk", op.Attrs, args...)
			k := op.Int("k")
			full := b.Bin("ge", b.Slice(ids, ids.Type.Rank()-1, k-1, 1), b.I(0))
			return values{b.Select(full, ids, b.I(-1))}
		})),
	},
	{
		rule: "block 64 (not 128) for KV", how: "blocks of 128 where the width allows", numerics: dsv4.Production,
		checks: []string{"op/inplace64", "exact/kv-blocks"},
		breaks: rewrite(only("pack_rows", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			if op.DType("to") != ir.F8E4M3 || op.Int("dims")%128 != 0 {
				return nil
			}
			// Blocks of 64 hold what blocks of 128 were rounded to.
			return b.Op("pack_rows", op.Attrs, b.Op1("fake_quant", set(op.Attrs, "block", 128), args[0]))
		})),
	},
	{
		rule: "e8m0 byte 0", how: "weights whose scale byte is 0 are zero", numerics: dsv4.Unrounded,
		checks: []string{"exact/scale-zero"},
		breaks: func(*testing.T) Maker {
			return func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
				return oracle(entries, pack, zeroScale{w})
			}
		},
	},
	{
		rule: "attention scale is hd^-0.5 with the full hd", how: "the scale is that of the dims that are not rotated", numerics: dsv4.Unrounded,
		checks: []string{"attn.0/prefill"},
		breaks: rewrite(only("sparse_attention", func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
			hd, _ := args[0].Type.Dims[2].Const()
			return b.Op("sparse_attention", ir.A("scale", ir.AttentionScale(hd-ropeDim)), args...)
		})),
	},
}

// ropeDim is the number of rotated dims of every DSV4 model.
const ropeDim = 64

// lastColumn is the index of the last column of x, for every row, as f32: the
// width may be a symbol.
func lastColumn(b *ir.Builder, x *ir.Value) *ir.Value {
	last := x.Type.Rank() - 1
	i := b.Cast(b.Iota(last, x.Type.Dims...), ir.F32)
	return b.Op1("reduce_max", ir.A("axis", last), i)
}

// fp8 rounds activations as the input of a quantised linear is.
func fp8(b *ir.Builder, x *ir.Value) *ir.Value {
	k, _ := x.Type.Dims[x.Type.Rank()-1].Const()
	return b.Op1("fake_quant", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4, "dims", k), x)
}

// yarnTables reads the YaRN plan's packed tables, which stand second in the pack,
// in place of the plain plan's.
func yarnTables(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
	w := args[0]
	if w.Kind != ir.WeightValue || !strings.HasPrefix(w.Name, "packed.freqs_cis.") {
		return nil
	}
	return b.Op(op.Def.Name, op.Attrs, b.Weight(w.Name+".1", w.Type), args[1])
}

func yarnEverywhere(b *ir.Builder, op *ir.Op, _ []*ir.Value) []*ir.Value {
	if op.Int("orig") != 0 {
		return nil
	}
	a := op.Attrs
	for _, k := range []struct {
		key string
		val any
	}{{"base", 160000.0}, {"orig", 1024}, {"factor", 4.0}} { // the tiny model's plan of compressed layers
		a = set(a, k.key, k.val)
	}
	return b.Op("freqs_cis", a)
}

// withoutColumnStep keeps pre and post, and makes comb from the softmax by
// iters-1 row and column steps.
func withoutColumnStep(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
	r := right(b, o)
	m, scale, base := o.Args[0], o.Args[1], o.Args[2]
	t, c := m.Type.Dims[0], r[0].Type.Dims[1]
	n, _ := c.Const()
	one, eps := ir.Int(1), b.F(o.Float("eps"))
	a := b.Bin("mul", b.Slice(m, 1, 2*n, n*n), b.Reshape(b.Slice(scale, 0, 2, 1), one, one))
	a = b.Bin("add", a, b.Reshape(b.Slice(base, 0, 2*n, n*n), one, ir.Int(n*n)))
	a = b.Reshape(a, t, c, c)
	a = b.Un("exp", b.Bin("sub", a, b.Op1("reduce_max", ir.A("axis", 2), a)))
	a = b.Bin("add", b.Bin("div", a, b.Sum(a, 2, ir.F32)), eps)
	for range o.Int("iters") - 1 {
		a = b.Bin("div", a, b.Bin("add", b.Sum(a, 2, ir.F32), eps))
		a = b.Bin("div", a, b.Bin("add", b.Sum(a, 1, ir.F32), eps))
	}
	return values{r[0], r[1], a}
}

// halfSplit rotates the pairs (i, i+n): it brings them side by side, rotates,
// and puts them back.
func halfSplit(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
	x := o.Args[0]
	last := x.Type.Rank() - 1
	d, _ := x.Type.Dims[last].Const()
	n, _ := o.Args[1].Type.Dims[1].Const()
	regroup := func(x *ir.Value, from, to int) *ir.Value {
		rot := b.Slice(x, last, d-2*n, 2*n)
		dims := rot.Type.Dims
		lead := dims[:last:last]
		perm := make([]int, last+2)
		for i := range perm {
			perm[i] = i
		}
		perm[last], perm[last+1] = last+1, last
		rot = b.Reshape(b.Transpose(b.Reshape(rot, append(lead, ir.Int(from), ir.Int(to))...), perm...), dims...)
		if 2*n == d {
			return rot
		}
		return b.Concat(last, b.Slice(x, last, 0, d-2*n), rot)
	}
	y := right(b, with(o, regroup(x, 2, n), o.Args[1], o.Args[2]))[0]
	return values{regroup(y, n, 2)}
}

// weightAfterW2 adds up one column of choices after the other, each expert with
// weight 1, and multiplies the outputs.
func weightAfterW2(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
	ids, weights := o.Args[4], o.Args[5]
	k, _ := ids.Type.Dims[1].Const()
	one := b.Broadcast(b.F(1), ids.Type.Dims[0], ir.Int(1))
	var sum *ir.Value
	for j := range k {
		y := right(b, with(o, o.Args[0], o.Args[1], o.Args[2], o.Args[3], b.Slice(ids, 1, j, 1), one))[0]
		y = b.Cast(b.Cast(b.Bin("mul", y, b.Slice(weights, 1, j, 1)), ir.BF16), ir.F32)
		if sum == nil {
			sum = y
		} else {
			sum = b.Bin("add", sum, y)
		}
	}
	return values{sum}
}

// gateScore is sqrt(softplus(w x)) of both kinds of gate.
func gateScore(b *ir.Builder, o *ir.Op) *ir.Value {
	v := b.Dot(o.Args[0], o.Args[1], ir.F32)
	return b.Un("sqrt", b.Un("log1p", b.Un("exp", v)))
}

func notNormalised(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value {
	ids := right(b, o)[0]
	w := b.Op1("take_along", nil, gateScore(b, o), ids)
	return values{ids, b.Bin("mul", w, b.F(o.Float("scale")))}
}

// zeroScale reads scale byte 0 as the number 0.
type zeroScale struct{ eval.WeightSource }

func (z zeroScale) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	w, err := z.WeightSource.Weight(name, t)
	if err != nil || len(w.Scales) == 0 || strings.Trim(string(w.Scales), "\x00") != "" {
		return w, err
	}
	w = w.Clone() // every scale is 0, so every code is
	clear(w.Codes)
	return w, nil
}
