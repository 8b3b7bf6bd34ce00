package kernels_test

import (
	"math"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Products with weights, and the ops about experts.

// narrowWidths are numbers of weight rows: one, and some that do not fill a tile.
var narrowWidths = []int{1, 3, kernels.TileN, kernels.TileN + 1, 33}

func linearCases(c *cases) {
	to := ir.A("to", ir.BF16)
	for _, m := range c.around(kernels.TileM) {
		for _, n := range narrowWidths {
			c.add(to, c.bf16(1, m, 72), c.bf16(1, n, 72))
		}
		for _, k := range []int{1, 7, 8, 9, 264} {
			c.add(to, c.bf16(1, m, k), c.bf16(1, 5, k))
			c.add(ir.A("to", ir.F32), c.bf16(1, m, k), c.f32(1, 5, k))
		}
		c.add(to, c.spoiled(c.bf16(1, m, 72), m), c.bf16(1, 33, 72))
	}
	c.add(to, c.bf16(1, 5, 72), c.spoiled(c.bf16(1, 33, 72), 33))
	// An f32 result differs in the order of its sum only: that is much less than the
	// table's bf16 ulp.
	c.op("linear", ir.A("to", ir.F32), limit{ulps: 64, share: 1}, c.bf16(1, 3, 100), c.bf16(1, 5, 100))
}

// given are attributes of products whose activations are quantised before.
var given = ir.A("act_block", 0)

func blockLinearCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, n := range narrowWidths {
			c.add(nil, c.bf16(1, m, 256), c.w8(n, 256))
			c.add(nil, c.bf16(1, m, 256), c.w4(n, 256))
		}
		c.add(nil, c.bf16(1, m, 384), c.w8(201, 384))
		c.add(nil, c.spoiled(c.bf16(1, m, 384), m), c.w8(33, 384))
		c.add(nil, c.spoiled(c.bf16(1, m, 384), m), c.w4(33, 384))
		c.add(ir.A("act_block", 64), c.bf16(1, m, 192), c.w4(33, 192))
		c.add(ir.A("act_block", 64), c.bf16(1, m, 192), c.w8(33, 192)) // a block ends inside: decomposed
		c.add(given, c.bf16(1, m, 192), c.w4(33, 192))
		c.add(given, c.spoiled(c.bf16(1, m, 256), m), c.w8(33, 256))
	}
	c.add(nil, c.bf16(0, 5, 256), c.w8(33, 256))
	c.add(nil, c.bf16(1, 5, 256), badScale(c.w8(33, 256)))
	c.add(nil, c.bf16(1, 5, 256), badScale(c.w4(33, 256)))
}

func splitLinearCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, s := range [][]int{{1, 1}, {128, 33}, {33, 8}, {4, 30}, {7, kernels.TileN}} {
			sizes, n := ir.A("sizes", s), s[0]+s[1]
			c.add(sizes, c.bf16(1, m, 256), c.w8(n, 256))
			c.add(sizes, c.bf16(1, m, 256), c.w4(n, 256))
			c.add(sizes, c.spoiled(c.bf16(1, m, 256), m), c.w8(n, 256))
		}
		c.add(ir.A("sizes", []int{9, 24}, "act_block", 64), c.bf16(1, m, 192), c.w4(33, 192))
		c.add(ir.A("sizes", []int{9, 24}, "act_block", 64), c.bf16(1, m, 192), c.w8(33, 192)) // a block ends inside: decomposed
	}
	c.add(ir.A("sizes", []int{8, 25}), c.bf16(0, 5, 256), c.w8(33, 256))
	c.add(append(ir.A("sizes", []int{8, 25}), given...), c.bf16(1, 5, 256), c.w8(33, 256))
	c.add(ir.A("sizes", []int{8, 25}), c.bf16(1, 5, 256), badScale(c.w4(33, 256)))
}

// badScale has NaN as the scale of the first block. NaN codes of 8 bits need no
// case: binding refuses weights that have any.
func badScale(w *eval.Tensor) *eval.Tensor { w.Scales[0] = 0xFF; return w }

func groupedLinearCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, n := range narrowWidths {
			c.add(nil, c.bf16(1, m, 2, 136), c.bf16(1, 2, n, 136))
		}
		for _, g := range []int{1, 3} {
			c.add(nil, c.bf16(1, m, g, 7), c.bf16(1, g, 5, 7))
		}
		c.add(nil, c.spoiled(c.bf16(1, m, 2, 136), m), c.bf16(1, 2, 33, 136))
	}
	c.add(nil, c.bf16(1, 5, 2, 136), c.spoiled(c.bf16(1, 2, 5, 136), 10))
}

func gateCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, s := range []struct{ d, e, k int }{{256, 8, 2}, {7, 33, 6}, {7, 8, 8}, {1, 1, 1}, {64, 64, 6}} {
			attrs := ir.A("k", s.k, "scale", 1.5)
			w := c.bf16(1/math.Sqrt(float64(s.d)), s.e, s.d)
			c.add(attrs, c.bf16(1, m, s.d), w, c.f32(1, s.e))
			c.add(attrs, c.bf16(30, m, s.d), w, c.f32(1, s.e)) // beyond softplus' threshold too
			c.add(attrs, c.spoiled(c.bf16(1, m, s.d), m), w, c.f32(1, s.e))
		}
	}
	// Equal scores: the lower id is chosen, whether all are equal, or pairs.
	attrs := ir.A("k", 3, "scale", 2.5)
	same, pairs := c.bf16(.1, 8, 64), c.bf16(.1, 8, 64)
	flat, stepped := c.f32(0, 8), c.f32(1, 8)
	for i := range 8 {
		copy(same.F[64*i:64*(i+1)], same.F[:64])
		copy(pairs.F[64*i:64*(i+1)], pairs.F[64*(i&^1):64*(i&^1)+64])
		stepped.F[i] = stepped.F[i&^1]
	}
	c.add(attrs, c.bf16(1, 5, 64), same, flat)
	c.add(attrs, c.bf16(1, 5, 64), pairs, flat)
	c.add(attrs, c.bf16(1, 5, 64), pairs, stepped)
	c.add(attrs, c.bf16(0, 5, 64), pairs, flat) // x w is 0 for all
	many := c.bf16(.1, 64, 64)
	for i := range 64 {
		copy(many.F[64*i:64*(i+1)], many.F[64*(i%40):64*(i%40)+64]) // of 24 pairs
	}
	c.add(attrs, c.bf16(1, 5, 64), many, c.f32(0, 64))
	rare := c.f32(0, 64)
	for i := range rare.F {
		rare.F[i] = []float32{float32(math.Inf(-1)), float32(math.NaN())}[i%2]
	}
	rare.F[37], rare.F[5] = 0, 0
	c.add(attrs, c.bf16(1, 3, 64), many, rare)
	// Scores of -inf and NaN are not chosen: places are left.
	few := c.f32(0, 8)
	for i := range few.F {
		few.F[i] = []float32{float32(math.Inf(-1)), float32(math.NaN())}[i%2]
	}
	c.add(attrs, c.bf16(1, 3, 64), same, few)
	one := few.Clone()
	one.F[5] = 0
	c.add(attrs, c.bf16(1, 3, 64), same, one)
}

func hashGateCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, s := range []struct{ d, e, k int }{{256, 8, 2}, {7, 33, 6}, {1, 1, 1}} {
			attrs := ir.A("k", s.k, "scale", 1.5)
			w, table := c.bf16(1/math.Sqrt(float64(s.d)), s.e, s.d), blank(c.t, ir.T(ir.I64, ir.Int(5), ir.Int(s.k)))
			for i := range table.I {
				table.I[i] = int64(c.r.IntN(s.e))
			}
			c.add(attrs, c.bf16(1, m, s.d), w, table, c.rows(5, m)) // a row of -1 has zeros, as padding does
			c.add(attrs, c.bf16(30, m, s.d), w, table, c.rows(5, m))
			c.add(attrs, c.spoiled(c.bf16(1, m, s.d), m), w, table, c.rows(5, m))
			c.add(attrs, c.bf16(1, m, s.d), w, table, none(c.rows(5, m)))
			some := table.Clone()
			some.I[0] = -1
			c.add(attrs, c.bf16(1, m, s.d), w, some, none(c.rows(5, m)))
			c.add(attrs, c.bf16(1, m, s.d), w, some, intsOf(c.t, ir.I32, make([]int64, m), m))
		}
	}
}

func swigluCases(c *cases) {
	for _, lim := range []float64{0, 2} {
		attrs := ir.A("limit", lim)
		for _, n := range widths {
			for _, t := range []int{1, 3, 5} {
				c.add(attrs, c.bf16(4, t, n), c.bf16(4, t, n), c.f32(1, t, 1))
			}
			c.add(attrs, c.spoiled(c.bf16(4, 5, n), 5), c.bf16(4, 5, n), c.f32(1, 5, 1))
			c.add(attrs, c.bf16(4, 5, n), c.spoiled(c.bf16(4, 5, n), 5), c.f32(1, 5, 1))
			c.add(attrs, c.bf16(4, 5, n), c.bf16(4, 5, n), c.spoiled(c.f32(1, 5, 1), 5))
		}
		c.add(attrs, c.bf16(4, 7), c.bf16(4, 7), c.f32(1, 1))
		c.add(attrs, c.bf16(4, 2, 3, 7), c.bf16(4, 2, 3, 7), c.f32(1, 2, 3, 1))
		c.add(attrs, random(c.t, c.r, special, ir.BF16, 5, 33), random(c.t, c.r, special, ir.BF16, 5, 33), c.f32(1, 5, 1))
	}
}

func expertCases(c *cases) {
	limits := ir.A("limit", 10.0)
	for _, m := range c.around(kernels.TileM) {
		for _, w := range []func(...int) *eval.Tensor{c.w8, c.w4} {
			c.add(limits, c.bf16(1, m, 256), w(128, 256), w(128, 256), w(256, 128), c.f32(1, m, 1))
			c.add(limits, c.bf16(1, m, 128), w(256, 128), w(256, 128), w(128, 256), c.f32(1, m, 1))
			c.add(limits, c.spoiled(c.bf16(1, m, 256), m), w(128, 256), w(128, 256), w(256, 128), c.f32(1, m, 1))
			c.add(ir.A("limit", 0.0), c.bf16(1, m, 256), w(128, 256), w(128, 256), w(256, 128), c.spoiled(c.f32(1, m, 1), m))
		}
	}
	c.add(limits, c.bf16(1, 3, 256), c.w8(128, 256), badScale(c.w8(128, 256)), c.w8(256, 128), c.f32(1, 3, 1))
	c.add(append(slices.Clone(given), limits...), c.bf16(1, 5, 256), c.w8(128, 256), c.w8(128, 256), c.w8(256, 128), c.f32(1, 5, 1))
}

func moeAddCases(c *cases) {
	const experts, d, inner = 8, 128, 256
	for _, w := range []func(...int) *eval.Tensor{c.w8, c.w4} {
		w1, w3, w2 := w(experts, inner, d), w(experts, inner, d), w(experts, d, inner)
		for _, m := range c.around(kernels.TileM) {
			for _, k := range []int{1, 2, 6} {
				c.add(ir.A("limit", 10.0), c.bf16(1, m, d), w1, w3, w2, c.rows(experts, m, k), c.f32(1, m, k), c.bf16(40, m, d))
			}
			c.add(ir.A("limit", 10.0), c.bf16(1, m, d), w1, w3, w2, none(c.rows(experts, m, 2)), c.f32(1, m, 2), c.spoiled(c.bf16(1, m, d), m))
		}
	}
}

func moeCases(c *cases) {
	const experts, d, inner = 8, 128, 256
	limits := ir.A("limit", 10.0)
	for _, w := range []func(...int) *eval.Tensor{c.w8, c.w4} {
		w1, w3, w2 := w(experts, inner, d), w(experts, inner, d), w(experts, d, inner)
		for _, m := range c.around(kernels.TileM) {
			for _, k := range []int{1, 2, 3, 6} {
				ids := c.rows(experts, m, k)
				c.add(limits, c.bf16(1, m, d), w1, w3, w2, ids, c.f32(1, m, k))
			}
			ids := without(c.rows(experts, m, 2))
			c.add(limits, c.bf16(1, m, d), w1, w3, w2, ids, c.f32(1, m, 2))
			c.add(limits, c.spoiled(c.bf16(1, m, d), m), w1, w3, w2, ids, c.f32(1, m, 2))
			c.add(limits, c.bf16(1, m, d), w1, w3, w2, c.rows(experts, m, 2), c.spoiled(c.f32(1, m, 2), m))
			c.add(limits, c.bf16(1, m, d), w1, w3, w2, none(ids), c.spoiled(c.f32(1, m, 2), m))
			c.add(append(slices.Clone(given), limits...), c.bf16(1, m, d), w1, w3, w2, ids, c.f32(1, m, 2))
		}
		// Twice the same expert, and its weights' NaN where nobody chooses it.
		ids := intsOf(c.t, ir.I32, []int64{1, 7, 7, 1, 3, 3, -1, 4, 2, -1, 6, 5}, 6, 2)
		c.add(ir.A("limit", 0.0), c.bf16(1, 6, d), badScale(w(experts, inner, d)), w3, badScale(w(experts, d, inner)), ids, c.f32(1, 6, 2))
		// Where no rounding between the products goes the other way, f32 results are
		// much closer than the table's bf16 ulp.
		c.op("moe_experts", limits, limit{ulps: 256, share: 0.005}, c.bf16(1, 6, d), w1, w3, w2, ids, c.f32(1, 6, 2))
	}
}
