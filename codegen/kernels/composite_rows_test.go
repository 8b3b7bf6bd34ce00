package kernels_test

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
)

// Ops over rows of elements: norms, rotations, formats.

var normEps = ir.A("eps", 1e-6)

// widths are odd ones, and those about the lanes of the hosts.
var widths = []int{1, 3, 4, 5, 7, 8, 9, 17, 257}

func rmsNormCases(c *cases) {
	for _, d := range widths {
		for _, t := range []int{1, 3, 5} {
			c.add(normEps, c.bf16(1, t, d), c.bf16(1, d))
		}
		c.add(normEps, c.spoiled(c.bf16(1, 5, d), 5), c.bf16(1, d))
		c.add(normEps, c.bf16(1, 5, d), c.spoiled(c.bf16(1, d), d))
	}
	c.add(normEps, c.bf16(1, 9), c.bf16(1, 9))
	c.add(normEps, c.bf16(1, 2, 3, 9), c.bf16(1, 9))
	c.add(normEps, c.bf16(0, 3, 9), c.bf16(1, 9)) // eps alone
	c.add(normEps, c.bf16(1e30, 3, 9), c.bf16(1, 9))
}

func normQuantCases(c *cases) {
	for _, block := range []int{8, 64, 128, 12} { // the last one has no form
		attrs := append(ir.A("act_block", block), normEps...)
		for _, blocks := range []int{1, 3, 9} {
			d := block * blocks
			for _, t := range []int{1, 3, 5} {
				c.add(attrs, c.bf16(1, t, d), c.bf16(1, d))
			}
			c.add(attrs, c.spoiled(c.bf16(1, 5, d), 5), c.bf16(1, d))
			c.add(attrs, c.bf16(1, 5, d), c.spoiled(c.bf16(1, d), d))
			c.add(attrs, c.bf16(1, 2, 3, d), c.bf16(1, d))
		}
		c.add(attrs, c.bf16(0, 3, block), c.bf16(1, block)) // eps alone
		c.add(attrs, c.bf16(1e30, 3, block), c.bf16(1, block))
		c.add(attrs, c.bf16(1, 3, 2*block), c.bf16(1e-5, 2*block)) // below the floor of scales
	}
}

func headRMSNormCases(c *cases) {
	for _, d := range append(widths, 128) {
		for _, t := range []int{1, 3, 5} {
			c.add(normEps, c.bf16(1, t, 1+c.r.IntN(4), d))
		}
		c.add(normEps, c.spoiled(c.bf16(1, 5, 3, d), 5))
	}
	c.add(normEps, c.bf16(0, 3, 2, 9))
}

func ropeCases(c *cases) {
	for _, inverse := range []bool{false, true} {
		for _, s := range []struct{ d, pairs int }{{2, 1}, {6, 3}, {7, 3}, {17, 1}, {128, 32}, {130, 65}} {
			for _, t := range []int{1, 3, 5} {
				cos, sin := c.f32(1, t, s.pairs), c.f32(1, t, s.pairs)
				c.add(ir.A("inverse", inverse), c.bf16(1, t, s.d), cos, sin)
				c.add(ir.A("inverse", inverse), c.bf16(1, t, 3, s.d), cos, sin)
				c.add(ir.A("inverse", inverse), c.spoiled(c.bf16(1, t, 2, s.d), t), cos, sin)
			}
			c.add(ir.A("inverse", inverse), c.bf16(1, 5, s.d), c.spoiled(c.f32(1, 5, s.pairs), 5), c.f32(1, 5, s.pairs))
		}
	}
}

func hadamardCases(c *cases) {
	for n := 1; n <= 512; n *= 2 {
		for _, t := range []int{1, 3, 5} {
			c.add(nil, c.bf16(1, t, n))
		}
		c.add(nil, c.spoiled(c.bf16(1, 5, n), 5))
	}
	c.add(nil, c.bf16(1, 16))
	c.add(nil, c.bf16(1, 2, 3, 16))
}

func fakeQuantCases(c *cases) {
	for _, f := range []struct {
		to    ir.DType
		block int
		floor float64
	}{
		{ir.F8E4M3, 64, 1e-4}, {ir.F8E4M3, 7, 1e-4}, {ir.F8E4M3FNUZ, 64, 1e-4}, {ir.F8E4M3, 64, 1}, // the last two have no form
		{ir.F4E2M1, 32, 6 * 0x1p-126}, {ir.F4E2M1, 6, 6 * 0x1p-126},
	} {
		for _, pass := range []int{0, 1, 65} { // elements that are not rounded
			attrs := ir.A("to", f.to, "block", f.block, "floor", f.floor, "dims", 2*f.block)
			for _, t := range []int{1, 3, 5} {
				c.add(attrs, c.bf16(1, t, 2*f.block+pass))
			}
			c.add(attrs, c.spoiled(c.bf16(1, 5, 2*f.block+pass), 5))
			c.add(attrs, c.bf16(0, 3, 2*f.block+pass))
			for _, s := range []style{patterns, special} {
				c.add(attrs, random(c.t, c.r, s, ir.BF16, 3, 2, 2*f.block+pass))
			}
		}
	}
}

var hcAttrs = ir.A("eps", 1e-6, "norm_eps", 1e-6)

// hcShapes are numbers of streams and widths: one stream, as many as are
// unrolled and one more; sums about a block.
func hcShapes() (shapes []struct{ s, d int }) {
	for _, s := range []int{1, 2, 3, 4, kernels.MaxStreams, kernels.MaxStreams + 1} {
		shapes = append(shapes, struct{ s, d int }{s, 37})
	}
	for _, d := range []int{kernels.HCBlock - 1, kernels.HCBlock, kernels.HCBlock + 1} {
		shapes = append(shapes, struct{ s, d int }{1, d})
	}
	return append(shapes, struct{ s, d int }{2, 1}, struct{ s, d int }{4, kernels.HCBlock/4 + 1})
}

func hcPreCases(c *cases) {
	for _, sh := range hcShapes() {
		n, m := sh.s*sh.d, (2+sh.s)*sh.s
		fn, scale, base := c.f32(1/math.Sqrt(float64(n)), m, n), c.f32(1, 3), c.f32(1, m)
		for _, t := range []int{1, 3, 5} {
			c.add(hcAttrs, c.bf16(1, t, sh.s, sh.d), fn, scale, base)
		}
		c.add(hcAttrs, c.spoiled(c.bf16(1, 5, sh.s, sh.d), 5), fn, scale, base)
	}
	fn, scale, base := c.f32(.1, 24, 4*37), c.f32(1, 3), c.f32(1, 24)
	for _, iters := range []int{1, 2, 100} {
		c.add(append(ir.A("iters", iters), hcAttrs...), c.bf16(1, 3, 4, 37), fn, scale, base)
	}
	c.add(hcAttrs, c.bf16(0, 3, 4, 37), fn, scale, base)
	c.add(hcAttrs, c.bf16(1, 3, 4, 37), fn, c.spoiled(scale, 3), base)
	c.add(hcAttrs, c.bf16(1, 3, 4, 37), fn, scale, c.spoiled(base, 24))
}

func hcPostCases(c *cases) {
	for _, sh := range hcShapes() {
		for _, t := range []int{1, 3, 5} {
			c.add(nil, c.bf16(1, t, sh.d), c.bf16(1, t, sh.s, sh.d), c.f32(1, t, sh.s), c.f32(1, t, sh.s, sh.s))
		}
		c.add(nil, c.spoiled(c.bf16(1, 5, sh.d), 5), c.bf16(1, 5, sh.s, sh.d), c.f32(1, 5, sh.s), c.f32(1, 5, sh.s, sh.s))
		c.add(nil, c.bf16(1, 5, sh.d), c.spoiled(c.bf16(1, 5, sh.s, sh.d), 5), c.f32(1, 5, sh.s), c.f32(1, 5, sh.s, sh.s))
		c.add(nil, c.bf16(1, 5, sh.d), c.bf16(1, 5, sh.s, sh.d), c.f32(1, 5, sh.s), c.spoiled(c.f32(1, 5, sh.s, sh.s), 5))
	}
}

// hcFusedAttrs tell the three small numbers apart.
var hcFusedAttrs = ir.A("eps", 1e-3, "norm_eps", 1e-2, "rms_eps", 0.1)

func hcFusedCases(c *cases) {
	for _, sh := range hcShapes() {
		n, m := sh.s*sh.d, (2+sh.s)*sh.s
		fn, scale, base, w := c.f32(1/math.Sqrt(float64(n)), m, n), c.f32(1, 3), c.f32(1, m), c.bf16(1, sh.d)
		o, h, post, comb := c.bf16(1, 5, sh.d), c.bf16(1, 5, sh.s, sh.d), c.f32(1, 5, sh.s), c.f32(1, 5, sh.s, sh.s)
		for _, t := range []int{1, 3} {
			c.add(hcFusedAttrs, c.bf16(1, t, sh.d), c.bf16(1, t, sh.s, sh.d), c.f32(1, t, sh.s), c.f32(1, t, sh.s, sh.s), fn, scale, base, w)
		}
		c.add(hcFusedAttrs, o, h, post, comb, fn, scale, base, w)
		c.add(hcFusedAttrs, c.spoiled(o, 5), h, post, comb, fn, scale, base, w)
		c.add(hcFusedAttrs, o, c.spoiled(h, 5), post, comb, fn, scale, base, w)
		c.add(hcFusedAttrs, o, h, post, c.spoiled(comb, 5), fn, scale, base, w)
		c.add(hcFusedAttrs, o, h, post, comb, fn, scale, base, c.spoiled(w, sh.d))
	}
	fn, scale, base, w := c.f32(.1, 24, 4*37), c.f32(1, 3), c.f32(1, 24), c.bf16(1, 37)
	o, h, post, comb := c.bf16(1, 3, 37), c.bf16(1, 3, 4, 37), c.f32(1, 3, 4), c.f32(1, 3, 4, 4)
	for _, iters := range []int{1, 2, 100} {
		c.add(append(ir.A("iters", iters), hcFusedAttrs...), o, h, post, comb, fn, scale, base, w)
	}
	c.add(hcFusedAttrs, c.bf16(0, 3, 37), c.bf16(0, 3, 4, 37), post, comb, fn, scale, base, w) // eps alone
	c.add(hcFusedAttrs, o, h, post, comb, fn, c.spoiled(scale, 3), base, w)
	c.add(hcFusedAttrs, o, h, post, comb, fn, scale, c.spoiled(base, 24), w)
}

func hcHeadCases(c *cases) {
	for _, sh := range hcShapes() {
		n := sh.s * sh.d
		fn, scale, base := c.f32(1/math.Sqrt(float64(n)), sh.s, n), c.f32(1, 1), c.f32(1, sh.s)
		for _, t := range []int{1, 3, 5} {
			c.add(hcAttrs, c.bf16(1, t, sh.s, sh.d), fn, scale, base)
		}
		c.add(hcAttrs, c.spoiled(c.bf16(1, 5, sh.s, sh.d), 5), fn, scale, base)
	}
	c.add(hcAttrs, c.bf16(0, 3, 2, 37), c.f32(.1, 2, 74), c.f32(1, 1), c.f32(1, 2))
}

func hcSplitCases(c *cases) {
	attrs := ir.A("eps", 1e-6)
	for _, s := range []int{1, 2, 4, 5} {
		m := (2 + s) * s
		for _, t := range []int{1, 3, 5} {
			c.add(attrs, c.f32(1, t, m), c.f32(1, 3), c.f32(1, m))
		}
		c.add(attrs, c.spoiled(c.f32(1, 5, m), 5), c.f32(1, 3), c.f32(1, m))
	}
	c.add(ir.A("eps", 1e-6, "iters", 1), c.f32(1, 3, 24), c.f32(1, 3), c.f32(1, 24))
}
