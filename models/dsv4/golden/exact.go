package golden

import (
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/models/dsv4"
)

// exactChecks are small cases whose results follow from the rules by hand. They
// stand where a rule leaves so little trace in the golden tensors that a limit
// for rounding noise would hide a mistake.
func (s *Suite) exactChecks() []Check {
	return []Check{
		s.opCheck("exact/sinkhorn-steps", sinkhornSteps),
		s.opCheck("exact/topk-ties", topkTies),
		s.opCheck("exact/indexer-choice", indexerChoice),
		s.opCheck("exact/few-rows", fewRows),
		s.opCheck("exact/window-rows", windowRows),
		s.opCheck("exact/entry-rows", entryRows),
		s.opCheck("exact/compressor", compressor),
		s.opCheck("exact/kv-blocks", func(c *opCase) { cacheBlocks(c, ir.F8E4M3, 64, []float32{448, 17}, []float32{448, 16}, 0x1.2p-10) }),
		s.opCheck("exact/index-blocks", func(c *opCase) { cacheBlocks(c, ir.F4E2M1, 32, []float32{6, 5}, []float32{6, 4}, 0x1.8p-12) }),
		s.opCheck("exact/scale-zero", scaleZero),
		s.opCheck("exact/swiglu-clamp", swigluClamp),
	}
}

// sinkhornSteps checks one and two iterations of Sinkhorn on two streams: after
// twenty, a first step left out is no longer visible. eps is 1/8, so that every
// place where it is added shows. With A = [[0, ln 3], [0, 0]] the softmax rows
// are [1/4, 3/4] and [1/2, 1/2], and all later numbers are fractions.
func sinkhornSteps(c *opCase) {
	const eps = 1.0 / 8
	ln3 := float32(math.Log(3))
	m := c.in("m", c.floats(ir.F32, []float32{ln3, 0 /* pre */, 0, ln3 /* post */, 0, ln3, 0, 0 /* comb */}, 1, 8))
	scale := c.own("scale", c.floats(ir.F32, []float32{1, 1, 1}, 3))
	base := c.own("base", c.floats(ir.F32, make([]float32, 8), 8))

	soft := [4]float64{1.0/4 + eps, 3.0/4 + eps, 1.0/2 + eps, 1.0/2 + eps}
	one := columnStep(soft, eps)
	two := columnStep(rowStep(one, eps), eps)
	for _, k := range []struct {
		iters int
		comb  [4]float64
	}{{1, one}, {2, two}} {
		r := c.Op("hc_split", ir.A("iters", k.iters, "eps", eps), m, scale, base)
		name := []string{"", "one", "two"}[k.iters]
		c.expectValues(name+".pre", r[0], []float32{3.0/4 + eps, 1.0/2 + eps}, f32Limit)
		c.expectValues(name+".post", r[1], []float32{1, 3.0 / 2}, f32Limit)
		comb := make([]float32, 4)
		for i, v := range k.comb {
			comb[i] = float32(v)
		}
		c.expectValues(name+".comb", r[2], comb, f32Limit)
	}
}

// columnStep and rowStep divide a 2x2 matrix by its column or row sums + eps.
func columnStep(a [4]float64, eps float64) [4]float64 {
	left, right := a[0]+a[2]+eps, a[1]+a[3]+eps
	return [4]float64{a[0] / left, a[1] / right, a[2] / left, a[3] / right}
}

func rowStep(a [4]float64, eps float64) [4]float64 {
	up, down := a[0]+a[1]+eps, a[2]+a[3]+eps
	return [4]float64{a[0] / up, a[1] / up, a[2] / down, a[3] / down}
}

// topkTies checks that equal scores go to the lower index, that -inf is never
// chosen, and that fewer scores than places leave -1.
func topkTies(c *opCase) {
	low := float32(math.Inf(-1))
	scores := c.in("scores", c.floats(ir.BF16, []float32{
		1, 2, 2, 1, 2, 0, // 2 2 2, then the first 1
		5, 5, 5, 5, 5, 5, // all equal
		0, 0, low, 0, 0, 0, // zeros, as when every head is negative
		low, -1, low, low, 3, low, // fewer than places
		low, low, low, low, low, low,
	}, 5, 6))
	ids := c.Op1("topk", ir.A("k", 4), scores)
	c.expectValues("ids", ids, []float32{
		1, 2, 4, 0,
		0, 1, 2, 3,
		0, 1, 3, 4,
		4, 1, -1, -1,
		-1, -1, -1, -1,
	}, exactLimit)
}

// indexerChoice scores and chooses as the model does, for a token that sees all
// entries equal, one with every second entry zero after the relu, and one that
// sees fewer entries than it may choose.
func indexerChoice(c *opCase) {
	m := c.s.model
	k, heads, dim := m.IndexTopK, m.IndexHeads, m.IndexDim
	n := 2*k - 2
	// One element per head and key is not zero, so all dots are whole numbers.
	q, w, keys := make([]float32, 3*heads*dim), make([]float32, 3*heads), make([]float32, 2*dim)
	for i := range w {
		q[i*dim], w[i] = 1, 1
	}
	keys[0], keys[dim] = 1, -1 // key 0 scores heads, key 1 scores 0
	rows := make([]int32, 3*n)
	for j := range n {
		rows[j] = 0
		rows[n+j] = int32(j % 2)
		rows[2*n+j] = -1
	}
	few := min(3, k)
	for j := range few {
		rows[2*n+j] = 1
	}
	scores := c.Op1("indexer_scores", nil,
		c.in("q", c.floats(ir.BF16, q, 3, heads, dim)),
		c.in("w", c.floats(ir.BF16, w, 3, heads)),
		c.in("keys", c.floats(ir.BF16, keys, 2, dim)),
		c.in("rows", c.ints(rows, 3, n)))
	chosen := c.Op1("topk", ir.A("k", k), scores)

	want := make([]float32, 0, 3*k)
	for j := range k {
		want = append(want, float32(j))
	}
	even := (n + 1) / 2 // k-1 entries of key 0, then the first of key 1
	for j := range even {
		want = append(want, float32(2*j))
	}
	want = append(want, 1)
	for j := range k {
		if j < few {
			want = append(want, float32(j))
		} else {
			want = append(want, -1)
		}
	}
	high := make([]float32, 0, 3*n)
	for _, row := range rows { // -1, key 0, key 1
		high = append(high, []float32{float32(math.Inf(-1)), float32(heads), 0}[row+1])
	}
	c.expectValues("scores", scores, high, exactLimit)
	c.expectValues("chosen", chosen, want, exactLimit)
}

// fewRows checks attention over no row at all, which is zero and not NaN, and
// over a single row whose score equals the sink's: half of it. The scale of a
// query of ones over a key of ones is seen with the sink at the score.
func fewRows(c *opCase) {
	m := c.s.model
	d := m.HeadDim
	scale := ir.AttentionScale(d)
	q, kv := make([]float32, 3*d), make([]float32, 2*d)
	for i := range d {
		q[2*d+i] = 1       // the third query; the others are 0
		kv[i] = float32(i) // whole numbers below 256 are bf16
		kv[d+i] = 1
	}
	o := c.Op1("sparse_attention", ir.A("scale", scale),
		c.in("q", c.floats(ir.BF16, q, 3, 1, d)),
		c.own("sink", c.floats(ir.F32, []float32{0}, 1)),
		c.in("kv", c.floats(ir.BF16, kv, 2, d)),
		c.in("rows", c.ints([]int32{-1, -1, 0, -1, -1, 1}, 3, 2)))
	want := make([]float32, 3*d)
	share := 1 / (1 + math.Exp(-scale*float64(d))) // score d*scale against a sink of 0
	for i := range d {
		want[d+i] = num.RoundBF16(float32(i) / 2)
		want[2*d+i] = num.RoundBF16F64(share)
	}
	c.expectValues("o", o, want, exactLimit)
}

// windowRows checks the window of a request that has been running for longer
// than its ring: which positions are still in the ring, which come from this
// step, where the window begins, and that a padding row sees nothing.
func windowRows(c *opCase) {
	m := c.s.model
	span, ring := m.Window, c.s.options().RingSizes(m).Window
	const tokens, number = 4, 1 // tokens of the step; the request's ring
	first := 3 * span           // position of the first
	pos, req := make([]int32, tokens+1), make([]int32, tokens+1)
	old, own := make([]float32, 0, (tokens+1)*span), make([]float32, 0, (tokens+1)*span)
	for t := range tokens {
		pos[t] = int32(first + t)
		for p := first + t - span + 1; p <= first+t; p++ {
			if p < first {
				old, own = append(old, float32(number*ring+p%ring)), append(own, -1)
			} else {
				old, own = append(old, -1), append(own, float32(p-first))
			}
		}
	}
	pos[tokens], req[tokens] = -1, -1
	for range span {
		old, own = append(old, -1), append(own, -1)
	}
	rows := c.Op("history_rows", ir.A("span", span, "size", ring), c.Iota(0, ir.Int(tokens+1)),
		c.in("pos", c.ints(pos, tokens+1)), c.in("req", c.ints(req, tokens+1)), c.in("ring", c.ints([]int32{number}, 1)))
	c.expectValues("old", rows[0], old, exactLimit)
	c.expectValues("own", rows[1], own, exactLimit)
}

// entryRows checks which compressed entries a token sees: one more from the
// token that closes a group on, that token included. Pages are out of order.
func entryRows(c *opCase) {
	pos := c.in("pos", c.ints([]int32{0, 2, 3, 6, 7, 11, -1}, 7))
	req := c.in("req", c.ints([]int32{0, 0, 0, 0, 0, 0, -1}, 7))
	pages := c.in("pages", c.ints([]int32{5, 2}, 1, 2))
	rows := c.Op1("entry_rows", ir.A("ratio", 4, "per_page", 2), pos, req, pages)
	c.expectValues("rows", rows, []float32{
		-1, -1, -1, -1,
		-1, -1, -1, -1,
		10, -1, -1, -1,
		10, -1, -1, -1,
		10, 11, -1, -1,
		10, 11, 4, -1,
		-1, -1, -1, -1,
	}, exactLimit)
	start := c.Op1("group_start", ir.A("ratio", 4), c.in("close", c.ints([]int32{2, 5, -1}, 3)), pos)
	c.expectValues("start", start, []float32{0, 8, -1}, exactLimit)
}

// compressor pools two tokens as the model does, with k and g of which no digit
// may be lost before the pooling: rounded to bf16, or made from an input rounded
// to fp8, they give another entry. u is one bf16 step above 1.
//
// Channel 0 has equal g and k = 1 + 3/8 u, 1 + 11/8 u, whose mean is nearest to
// 1 + u. Channel 1 has k = -512, 512 and g = 8, 8 + 3/128: 512 tanh(3/256).
func compressor(c *opCase) {
	const k, u = 128, 0x1p-7
	x := make([]float32, 2*k)
	copy(x, []float32{1, 3 * u / 8, -512, 8, 0})
	copy(x[k:], []float32{1, 11 * u / 8, 512, 8, 3 * u})
	wkv, wgate := make([]float32, 2*k), make([]float32, 2*k)
	copy(wkv, []float32{1, 1})
	copy(wkv[k:], []float32{0, 0, 1})
	copy(wgate[k:], []float32{0, 0, 0, 1, 1})
	xv := c.in("x", c.floats(ir.BF16, x, 2, k))
	kv := c.Op1("linear", ir.A("to", ir.F32), xv, c.own("compressor.wkv", c.floats(ir.BF16, wkv, 2, k)))
	g := c.Op1("linear", ir.A("to", ir.F32), xv, c.own("compressor.wgate", c.floats(ir.BF16, wgate, 2, k)))
	empty := c.floats(ir.F32, make([]float32, 2), 1, 2)
	v := c.Op1("compress", ir.A("overlap", false), c.in("k_pool", empty), c.in("g_pool", empty), kv, g,
		c.in("old", c.ints([]int32{-1, -1}, 1, 2)), c.in("own", c.ints([]int32{0, 1}, 1, 2)))
	c.expectValues("v", v, []float32{1 + u, num.RoundBF16F64(512 * math.Tanh(3.0/256))}, exactLimit)
}

// cacheBlocks checks that blocks of a cached vector are rounded apart. The first
// block holds the format's largest number and one that is rounded; the second is
// so small that it would vanish under the first one's scale, and is exact under
// its own. Without rounding nothing changes.
func cacheBlocks(c *opCase, dt ir.DType, block int, first, rounded []float32, second float32) {
	x := make([]float32, 2*block)
	copy(x, first)
	x[block] = second
	want := slices.Clone(x)
	if c.s.cfg.Numerics == dsv4.Production {
		copy(want, rounded)
	}
	c.expectValues("y", c.cacheRound(dt, c.in("x", c.floats(ir.BF16, x, 1, 2*block))), want, exactLimit)
}

// scaleZero checks e8m0 byte 0, which is 2^-127 and not zero: read alone, and in
// a product whose activations are so large that the result is a normal number.
func scaleZero(c *opCase) {
	const k = 128
	codes, x, values := make([]byte, k), make([]float32, k), make([]float32, k)
	codes[0], codes[1] = num.E4M3(1), num.E4M3(-3)
	values[0], values[1] = 0x1p-127, -3*0x1p-127
	x[0], x[1] = 0x1p100, 0x1p101
	w := c.own("w", &eval.Tensor{DType: ir.F8E4M3, Shape: []int{1, k}, Quant: &ir.Quant{Block: [2]int{128, 128}, Scale: ir.E8M0}, Codes: codes, Scales: []byte{0}})
	c.expectValues("value", c.Op1("dequantize", ir.A("to", ir.F32), w), values, exactLimit)
	y := c.Op1("block_linear", nil, c.in("x", c.floats(ir.BF16, x, 1, k)), w)
	c.expectValues("y", y, []float32{-5 * 0x1p-27}, exactLimit)
}

// swigluClamp checks the clamps far outside the limit: the gate is clamped above
// only, the up projection on both sides.
func swigluClamp(c *opCase) {
	limit := c.s.model.SwigluLimit
	if limit == 0 {
		limit = 10 // this model clamps nothing; the op must be right all the same
	}
	l := float32(limit)
	g := []float32{2 * l, -2 * l, 1, 1, -2 * l}
	u := []float32{1, 1, 3 * l, -3 * l, -3 * l}
	weight := float32(0.5)
	silu := func(x float32) float64 { return float64(x) / (1 + math.Exp(-float64(x))) }
	want := []float32{
		num.RoundBF16F64(0.5 * silu(l)),
		num.RoundBF16F64(0.5 * silu(-2*l)),
		num.RoundBF16F64(0.5 * silu(1) * limit),
		num.RoundBF16F64(-0.5 * silu(1) * limit),
		num.RoundBF16F64(-0.5 * silu(-2*l) * limit),
	}
	a := c.Op1("swiglu", ir.A("limit", limit),
		c.in("g", c.floats(ir.BF16, g, 1, len(g))), c.in("u", c.floats(ir.BF16, u, 1, len(u))),
		c.in("weight", c.floats(ir.F32, []float32{weight}, 1, 1)))
	c.expectValues("a", a, want, exactLimit)
}
