package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// rowOp is an op whose results' row i follows from row i of some operands, the first
// ones but for those that are shared.
type rowOp struct {
	name   string
	attrs  ir.Attrs
	args   []*eval.Tensor // of all rows
	shared []int          // operands without rows
}

// buckets are the row counts of which every row must have one row's bits: the smallest,
// those about a tile of matrix units, and odd ones.
var buckets = []int{1, 2, 5, 16, 17}

// rowOps lists ops with operands of so many rows.
func rowOps(c *cases, t int) []rowOp {
	const d, inner, experts, k = 256, 128, 8, 3
	w8 := func(shape ...int) *eval.Tensor {
		if c.recoded {
			return recode(c.t, c.w8(shape...))
		}
		return c.w8(shape...)
	}
	x, narrow := c.bf16(1, t, d), c.bf16(1, t, 128)
	ids, weights := c.rows(experts, t, k), c.f32(1, t, k)
	kv, own, rows := c.bf16(1, 50, 128), c.bf16(1, 9, 128), c.rows(50, t, 70)
	streams, mix := c.bf16(1, t, 4, d), c.f32(.03, 24, 4*d)
	post, comb, scale, base := c.f32(1, t, 4), c.f32(1, t, 4, 4), c.f32(1, 3), c.f32(1, 24)
	cos, sin := c.f32(1, t, 32), c.f32(1, t, 32)
	limits := ir.A("limit", 10.0)
	wide, pairs := c.bf16(1, t, 512), c.rows(3, t, 2) // waves of e2m1 share chunks, of one row in both products
	list := []rowOp{
		{"linear", ir.A("to", ir.BF16), []*eval.Tensor{x, c.bf16(1, 33, d)}, []int{1}},
		{"linear", ir.A("to", ir.F32), []*eval.Tensor{x, c.f32(1, 9, d)}, []int{1}},
		{"linear2", ir.A("sizes", []int{40, 9}, "to", ir.BF16), []*eval.Tensor{x, c.bf16(1, 49, d)}, []int{1}},
		{"linear_argmax", nil, []*eval.Tensor{x, c.bf16(1, 300, d)}, []int{1}},
		{"grouped_linear", nil, []*eval.Tensor{c.bf16(1, t, 2, d), c.bf16(1, 2, 33, d)}, []int{1}},
		{"block_linear", nil, []*eval.Tensor{x, w8(200, d)}, []int{1}},
		{"block_linear", nil, []*eval.Tensor{x, c.w4(33, d)}, []int{1}},
		{"split_linear", ir.A("sizes", []int{128, 9}), []*eval.Tensor{x, w8(137, d)}, []int{1}},
		{"expert", limits, []*eval.Tensor{x, w8(inner, d), w8(inner, d), w8(d, inner), c.f32(1, t, 1)}, []int{1, 2, 3}},
		{"moe_experts", limits, []*eval.Tensor{x, w8(experts, inner, d), w8(experts, inner, d), w8(experts, d, inner), ids, weights}, []int{1, 2, 3}},
		{"moe_experts_add", limits, []*eval.Tensor{x, c.w4(experts, inner, d), c.w4(experts, inner, d), c.w4(experts, d, inner), ids, weights, c.bf16(1, t, d)}, []int{1, 2, 3}},
		{"moe_experts", limits, []*eval.Tensor{wide, c.w4(3, 512, 512), c.w4(3, 512, 512), c.w4(3, 512, 512), pairs, c.f32(1, t, 2)}, []int{1, 2, 3}},
		{"linear", ir.A("to", ir.BF16), []*eval.Tensor{narrow, c.bf16(1, 8200, 128)}, []int{1}}, // tiles of 2 and 4 columns
		{"gate", ir.A("k", k, "scale", 1.5), []*eval.Tensor{x, c.bf16(.1, experts, d), c.f32(1, experts)}, []int{1, 2}},
		{"rms_norm", normEps, []*eval.Tensor{x, c.bf16(1, d)}, []int{1}},
		{"rms_norm_quant", normEps, []*eval.Tensor{x, c.bf16(1, d)}, []int{1}},
		{"head_rms_norm", normEps, []*eval.Tensor{c.bf16(1, t, 3, 128)}, nil},
		{"rope", ir.A("inverse", false), []*eval.Tensor{narrow, cos, sin}, nil},
		{"rms_norm_rope", append(ir.A("inverse", false), normEps...), []*eval.Tensor{narrow, cos, sin, c.bf16(1, 128)}, []int{3}},
		{"hadamard", nil, []*eval.Tensor{narrow}, nil},
		{"fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 192), []*eval.Tensor{x}, nil},
		{"swiglu", limits, []*eval.Tensor{x, c.bf16(1, t, d), c.f32(1, t, 1)}, nil},
		{"hc_pre", hcAttrs, []*eval.Tensor{streams, mix, scale, base}, []int{1, 2, 3}},
		{"hc_post", nil, []*eval.Tensor{x, streams, post, comb}, nil},
		{"hc_fused", hcFusedAttrs, []*eval.Tensor{x, streams, post, comb, mix, scale, base, c.bf16(1, d)}, []int{4, 5, 6, 7}},
		{"hc_head", hcAttrs, []*eval.Tensor{streams, c.f32(.03, 4, 4*d), c.f32(1, 1), c.f32(1, 4)}, []int{1, 2, 3}},
		{"indexer_scores", nil, []*eval.Tensor{c.bf16(1, t, 4, 128), c.bf16(1, t, 4), kv, rows}, []int{2}},
		{"sparse_attention", ir.A("scale", 0.1), []*eval.Tensor{c.bf16(1, t, 3, 128), c.f32(1, 3), kv, rows, own, c.rows(9, t, 5)}, []int{1, 2, 4}},
		{"topk_rows", ir.A("k", 20), []*eval.Tensor{c.f32(1, t, 70), rows}, nil},
		{"argmax", nil, []*eval.Tensor{c.f32(1, t, 300)}, nil},
		{"argmax", nil, []*eval.Tensor{c.f32(1, t, 2*kernels.ShardWidth+1)}, nil},
		{"sample", nil, append([]*eval.Tensor{c.f32(1, t, 300)}, randomDraws(c.t, c.r, t)...), nil},
		{"reduce_sum", ir.A("axis", 1), []*eval.Tensor{c.f32(1, t, 333)}, nil},
		{"dot", ir.A("to", ir.F32), []*eval.Tensor{c.f32(1, t, 333), c.f32(1, 5, 333)}, []int{1}},
	}
	return list
}

// firstRows is a tensor's first rows.
func firstRows(t testing.TB, x *eval.Tensor, n int) *eval.Tensor {
	t.Helper()
	shape := append([]int{n}, x.Shape[1:]...)
	y := blank(t, ir.T(x.DType, intDims(shape)...))
	copy(y.F, x.F)
	copy(y.I, x.I)
	return y
}

// TestEmulatedRows: on both chips, with and without matrix units, a row's bits are the
// same in every bucket.
func TestEmulatedRows(t *testing.T) {
	most := buckets[len(buckets)-1]
	for _, name := range bothChips {
		chip := strings.TrimPrefix(name, "emu:")
		c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(4, 6)), recoded: mustTarget(t, chip).FNUZ}
		type output struct{ first, rows int }
		var groups [][]output
		for _, o := range rowOps(c, most) {
			var list []output
			for _, n := range buckets {
				args := make([]*eval.Tensor, len(o.args))
				for i, a := range o.args {
					args[i] = firstRows(t, a, n)
				}
				for _, i := range o.shared {
					args[i] = o.args[i]
				}
				list = append(list, output{len(c.what), n})
				c.batch.op(o.name, o.attrs, exact, args...)
			}
			groups = append(groups, append(list, output{len(c.what), 0}))
		}
		got := emulate(t, name, "", c.batch, c.graph())
		for _, list := range groups {
			all := list[len(list)-2]
			results := list[len(list)-1].first - all.first
			if equalRows(got[fmt.Sprintf("y%d", all.first)]) {
				t.Errorf("%s: %s: all rows are equal: the test shows nothing", name, c.what[all.first])
			}
			for _, o := range list[:len(list)-2] {
				for r := range results {
					want, part := got[fmt.Sprintf("y%d", all.first+r)], got[fmt.Sprintf("y%d", o.first+r)]
					if d := exact.compare(firstRows(t, want, o.rows), part); d != "" {
						t.Errorf("%s: %s: result %d in a bucket of %d and of %d rows: %s", name, c.what[o.first], r, o.rows, all.rows, d)
					}
				}
			}
		}
	}
}

// equalRows tells whether rows of a tensor that differ are missing.
func equalRows(x *eval.Tensor) bool {
	for i, v := range x.F {
		if n := len(x.F) / x.Shape[0]; v != x.F[i%n] {
			return false
		}
	}
	for i, v := range x.I {
		if n := len(x.I) / x.Shape[0]; v != x.I[i%n] {
			return false
		}
	}
	return true
}

// realCases are cases of the hidden sizes of the models.
func realCases(c *cases, t, d int) {
	n := 4 * d
	mix, scale, base, w := c.f32(1/math.Sqrt(float64(n)), 24, n), c.f32(1, 3), c.f32(1, 24), c.bf16(1, d)
	x, streams, post, comb := c.bf16(1, t, d), c.bf16(1, t, 4, d), c.f32(1, t, 4), c.f32(1, t, 4, 4)
	add := func(op string, attrs ir.Attrs, args ...*eval.Tensor) {
		def, err := ir.Lookup(op)
		if err != nil {
			c.t.Fatal(err)
		}
		c.def = def
		from := len(c.limit)
		c.add(attrs, args...)
		for _, f := range kernels.For(op) { // of those that take the case, the first has the liberty
			c.liberty(f, from)
		}
	}
	limits := ir.A("limit", 10.0)
	add("rms_norm", normEps, x, w)
	add("rms_norm_quant", normEps, x, w)
	add("hc_post", nil, x, streams, post, comb)
	add("hc_pre", hcAttrs, streams, mix, scale, base)
	add("hc_fused_quant", append(ir.A("act_block", 128), hcFusedAttrs...), x, streams, post, comb, mix, scale, base, w)
	add("linear", ir.A("to", ir.BF16), x, c.bf16(1, 40, d))
	add("block_linear", nil, x, c.w8(40, d))
	add("split_linear", ir.A("sizes", []int{24, 16}), x, c.w8(40, d))
	add("grouped_linear", nil, c.bf16(1, t, 2, d), c.bf16(1, 2, 16, d))
	w1, w3, w2 := c.w4(4, 128, d), c.w4(4, 128, d), c.w4(4, d, 128)
	add("moe_experts", limits, x, w1, w3, w2, c.rows(4, t, 2), c.f32(1, t, 2))
	add("expert", limits, x, c.w8(128, d), c.w8(128, d), c.w8(d, 128), c.f32(1, t, 1))
	add("sparse_attention", ir.A("scale", 1/math.Sqrt(512)), c.bf16(1, t, 8, 512), c.f32(1, 8), c.bf16(1, 160, 512), c.rows(160, t, 128), c.bf16(1, 9, 512), c.rows(9, t, 8))
	add("hc_head", hcAttrs, streams, c.f32(1/math.Sqrt(float64(n)), 4, n), c.f32(1, 1), c.f32(1, 4))
	// Waves share the chunks of both products.
	add("moe_experts", limits, x, c.w4(4, 512, d), c.w4(4, 512, d), c.w4(4, d, 512), c.rows(4, t, 2), c.f32(1, t, 2))
}

// realSize is a number of tokens and a hidden size; the seed makes operands as
// compositeSeed does, with which the host's kernels hold the limits, too.
type realSize struct {
	t, d int
	seed uint64
}

// TestEmulatedSizes: the hidden sizes of the models, on both chips.
func TestEmulatedSizes(t *testing.T) {
	sizes := map[string][]realSize{"emu:gfx942": {{1, 4096, 12}}, "emu:gfx950": {{3, 4096, 13}}}
	if long {
		for _, name := range bothChips {
			sizes[name] = []realSize{{1, 4096, 12}, {3, 4096, 13}, {8, 4096, 14}, {1, 7168, 13}, {3, 7168, 13}, {8, 7168, 14}}
		}
	}
	for _, name := range bothChips {
		for _, s := range sizes[name] {
			t.Run(fmt.Sprintf("%s T=%d D=%d", strings.TrimPrefix(name, "emu:"), s.t, s.d), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, s.seed)), recoded: mustTarget(t, strings.TrimPrefix(name, "emu:")).FNUZ}
				realCases(c, s.t, s.d)
				g := c.graph()
				want, _ := c.want(g)
				c.check(name, want, emulate(t, name, "", c.batch, g))
			})
		}
	}
}
