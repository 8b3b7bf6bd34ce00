package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

func ri(r *rand.Rand, lo, hi int, shape ...int) *eval.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(lo + r.IntN(hi-lo))
	}
	x, _ := eval.FromI32(v, shape...)
	return x
}

func scaled(r *rand.Rand, dt ir.DType, b0, b1 int, shape ...int) *eval.Tensor {
	dims := make([]ir.Dim, len(shape))
	for i, s := range shape {
		dims[i] = ir.Int(s)
	}
	w, _ := eval.New(ir.Scaled(dt, b0, b1, dims...))
	for i := range w.Codes {
		w.Codes[i] = byte(r.IntN(256))
		if dt == ir.F8E4M3 && w.Codes[i]&127 == 127 {
			w.Codes[i] = 0
		}
	}
	for i := range w.Scales {
		w.Scales[i] = byte(115 + r.IntN(4))
	}
	return w
}

func TestSmoke2(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(op string, attrs ir.Attrs, in ...*eval.Tensor) {
		t.Helper()
		g, v := opGraph(t, op, attrs, in...)
		w, got := runBoth(t, g, v)
		for n := range w {
			if d := describe(w[n], got[n]); d != "" {
				t.Logf("%s %s: %s", op, n, d)
			} else {
				t.Logf("%s %s: equal", op, n)
			}
		}
	}
	bf := func(s float64, shape ...int) *eval.Tensor { return rnd(t, r, ir.BF16, s, shape...) }
	f := func(s float64, shape ...int) *eval.Tensor { return rnd(t, r, ir.F32, s, shape...) }
	check("head_rms_norm", ir.A("eps", 1e-6), bf(1, 5, 4, 128))
	check("rope", ir.A("inverse", true), bf(1, 5, 4, 128), f(1, 5, 32), f(1, 5, 32))
	check("rope", nil, bf(1, 5, 64), f(1, 5, 32), f(1, 5, 32))
	check("hadamard", nil, bf(1, 5, 4, 128))
	check("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 64), bf(1, 5, 128))
	check("fake_quant", ir.A("to", ir.F4E2M1, "block", 32, "floor", 6*0x1p-126, "dims", 128), bf(1, 5, 4, 128))
	check("grouped_linear", nil, bf(1, 5, 2, 256), bf(1, 2, 33, 256))
	check("hc_pre", ir.A("eps", 1e-6, "norm_eps", 1e-6), bf(1, 5, 4, 256), f(.1, 24, 1024), f(1, 3), f(1, 24))
	check("hc_post", nil, bf(1, 5, 256), bf(1, 5, 4, 256), f(1, 5, 4), f(1, 5, 4, 4))
	check("hc_head", ir.A("eps", 1e-6, "norm_eps", 1e-6), bf(1, 5, 4, 256), f(.1, 4, 1024), f(1, 1), f(1, 4))
	i32 := func(v ...int32) *eval.Tensor { x, _ := eval.FromI32(v, len(v)); return x }
	check("history_rows", ir.A("span", 9, "size", 11), i32(0, 1, 2, 3, 4, 5, -1), i32(20, 21, 22, 0, 1, 7, -1), i32(0, 0, 0, 1, 1, 2, -1), i32(3, 0, -1))
	pg, _ := eval.FromI32([]int32{3, 1, -1, 0, 5, 2}, 2, 3)
	check("entry_rows", ir.A("ratio", 4, "per_page", 32), i32(200, 3, 4, -1, 383), i32(0, 1, 1, -1, 1), pg)
	check("compress", ir.A("overlap", true), f(1, 40, 256), f(1, 40, 256), f(1, 9, 256), f(1, 9, 256), ri(r, -1, 40, 3, 8), ri(r, -1, 9, 3, 8))
	check("compress", ir.A("overlap", false), f(1, 40, 100), f(1, 40, 100), f(1, 9, 100), f(1, 9, 100), ri(r, -1, 40, 3, 128), ri(r, -1, 9, 3, 128))
	check("indexer_scores", nil, bf(1, 5, 4, 128), bf(1, 5, 4), bf(1, 50, 128), ri(r, -1, 50, 5, 77))
	check("sparse_attention", ir.A("scale", 0.0883883), bf(1, 5, 4, 128), f(1, 4), bf(1, 50, 128), ri(r, -1, 50, 5, 77), bf(1, 5, 128), ri(r, -1, 5, 5, 9))
	check("gate", ir.A("k", 2, "scale", 1.5), bf(1, 5, 256), bf(.1, 8, 256), f(1, 8))
	check("swiglu", ir.A("limit", 10.0), bf(8, 5, 128), bf(8, 5, 128), f(1, 5, 1))
	check("expert", ir.A("limit", 10.0), bf(1, 5, 256), scaled(r, ir.F8E4M3, 128, 128, 128, 256), scaled(r, ir.F8E4M3, 128, 128, 128, 256), scaled(r, ir.F8E4M3, 128, 128, 256, 128), f(1, 5, 1))
	check("moe_experts", ir.A("limit", 10.0), bf(1, 5, 256), scaled(r, ir.F4E2M1, 1, 32, 8, 128, 256), scaled(r, ir.F4E2M1, 1, 32, 8, 128, 256), scaled(r, ir.F4E2M1, 1, 32, 8, 256, 128), ri(r, 0, 8, 5, 2), f(1, 5, 2))
}
