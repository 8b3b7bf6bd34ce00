package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

func rnd(t *testing.T, r *rand.Rand, dt ir.DType, scale float64, shape ...int) *eval.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64() * scale)
	}
	x, err := eval.FromF32(dt, v, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSmoke(t *testing.T) {
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
	check("rms_norm", ir.A("eps", 1e-6), rnd(t, r, ir.BF16, 1, 5, 257), rnd(t, r, ir.BF16, 1, 257))
	for _, op := range []string{"exp", "log1p", "sigmoid", "cos", "sin", "sqrt", "rsqrt"} {
		check(op, nil, rnd(t, r, ir.F32, 5, 1000))
	}
	check("add", nil, rnd(t, r, ir.F32, 5, 3, 1, 7), rnd(t, r, ir.F32, 5, 3, 5, 1))
	check("mul", nil, rnd(t, r, ir.BF16, 5, 3, 5, 7), rnd(t, r, ir.BF16, 5, 1, 1, 7))
	check("cast", ir.A("to", ir.F8E4M3), rnd(t, r, ir.F32, 50, 1000))
	check("cast", ir.A("to", ir.F8E4M3FNUZ), rnd(t, r, ir.F32, 50, 1000))
	check("cast", ir.A("to", ir.F16), rnd(t, r, ir.F32, 50, 1000))
	check("cast", ir.A("to", ir.E8M0), rnd(t, r, ir.F32, 50, 1000))
	check("linear", ir.A("to", ir.BF16), rnd(t, r, ir.BF16, 1, 9, 264), rnd(t, r, ir.BF16, 1, 33, 264))
	w := &eval.Tensor{DType: ir.F8E4M3, Shape: []int{200, 384}, Quant: &ir.Quant{Block: [2]int{128, 128}, Scale: ir.E8M0}, Codes: make([]byte, 200*384), Scales: make([]byte, 6)}
	for i := range w.Codes {
		w.Codes[i] = byte(r.IntN(256))
		if w.Codes[i]&127 == 127 {
			w.Codes[i] = 0
		}
	}
	for i := range w.Scales {
		w.Scales[i] = byte(115 + r.IntN(4))
	}
	check("block_linear", nil, rnd(t, r, ir.BF16, 1, 5, 384), w)
	w4 := &eval.Tensor{DType: ir.F4E2M1, Shape: []int{96, 256}, Quant: &ir.Quant{Block: [2]int{1, 32}, Scale: ir.E8M0}, Codes: make([]byte, 96*128), Scales: make([]byte, 96*8)}
	for i := range w4.Codes {
		w4.Codes[i] = byte(r.IntN(256))
	}
	for i := range w4.Scales {
		w4.Scales[i] = byte(115 + r.IntN(4))
	}
	check("block_linear", nil, rnd(t, r, ir.BF16, 1, 5, 256), w4)
}
