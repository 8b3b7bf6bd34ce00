package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// fnuzHost is a host as if its 8-bit floats were e4m3fnuz: no such CPU exists, but
// forms see the table row alone, so that what they do on such a chip can be run.
func (c *batch) fnuzHost(name string, g *ir.Graph) map[string]*eval.Tensor {
	c.t.Helper()
	tg := *mustTarget(c.t, name)
	tg.FNUZ = true
	d, plans := loadFor(c.t, &tg, g)
	defer d.Close()
	out, _ := execute(c.t, d, plans[0], c.in, c.states)
	return out
}

// recode is recode_fnuz of a weight.
func recode(t testing.TB, w *eval.Tensor) *eval.Tensor {
	t.Helper()
	c := newBatch(t)
	c.op("recode_fnuz", nil, exact, w)
	out, _ := c.want(c.graph())
	return out["y0"]
}

// hardRows are activations that stress quantisation in blocks of 128: ordinary,
// zeros of both signs, tiny of both signs, beyond the largest code by rounding,
// subnormal, huge, one NaN, one infinity.
func hardRows(t testing.TB, r *rand.Rand, k int) *eval.Tensor {
	t.Helper()
	minus := math.Copysign(0, -1)
	rows := []func(i int) float64{
		func(int) float64 { return r.NormFloat64() },
		func(i int) float64 { return []float64{0, minus, 1, -1e-6, 1e-6}[i%5] },
		func(i int) float64 { return []float64{0, minus}[i%2] },
		func(i int) float64 { return []float64{1e-8, -1e-8, -0x1p-133, 0x1p-126}[i%4] },
		func(i int) float64 { return 448 * math.Pow(2, float64(i/128)) * (1 - float64(i%7)/7) },
		func(i int) float64 { return []float64{450, -449, 3, 447, -0.01}[i%5] },
		func(i int) float64 { return []float64{3e38, -1e38, 1, -1e-30}[i%4] },
		func(i int) float64 { return []float64{1, math.NaN()}[i%k/(k-1)] },
		func(i int) float64 { return []float64{-1, math.Inf(-1)}[i%k/(k-1)] },
		func(i int) float64 { return r.NormFloat64() * math.Pow(2, float64(r.IntN(30)-15)) },
	}
	var v []float32
	for _, f := range rows {
		for i := range k {
			v = append(v, float32(f(i)))
		}
	}
	return floatsOf(t, ir.BF16, v, len(rows), k)
}

// With recoded weights on a chip with e4m3fnuz every op gives the bits that it
// gives with OCP e4m3, NaN included; only fake_quant shows zeros, which have no
// sign then.
func TestFNUZForms(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 8))
	ocp, fnuz := newBatch(t), newBatch(t)
	w8 := func(shape ...int) *eval.Tensor {
		w := finiteWeight(t, r, ir.F8E4M3, 128, 128, shape...)
		for i := 0; i < len(w.Codes); i += 41 {
			w.Codes[i] = 0x80
		}
		return w
	}
	w4 := func(shape ...int) *eval.Tensor { return finiteWeight(t, r, ir.F4E2M1, 1, 32, shape...) }
	add := func(op string, attrs ir.Attrs, args ...*eval.Tensor) {
		ocp.op(op, attrs, exact, args...)
		moved := make([]*eval.Tensor, len(args))
		for i, a := range args {
			if moved[i] = a; a.DType == ir.F8E4M3 {
				moved[i] = recode(t, a)
			}
		}
		fnuz.op(op, attrs, exact, moved...)
	}
	x := hardRows(t, r, 256)
	rows := x.Shape[0]
	f32 := func(shape ...int) *eval.Tensor { return gauss(t, r, ir.F32, 1, shape...) }
	add("block_linear", nil, x, w8(201, 256))
	add("block_linear", ir.A("act_block", 64), x, w8(7, 256))
	add("block_linear", nil, x, w4(63, 256))
	add("expert", ir.A("limit", 10.0), x, w8(128, 256), w8(128, 256), w8(256, 128), f32(rows, 1))
	ids := blank(t, ir.T(ir.I32, ir.Int(rows), ir.Int(2)))
	for i := range ids.I {
		ids.I[i] = int64(r.IntN(5) - 1)
	}
	add("moe_experts", ir.A("limit", 10.0), x, w8(4, 128, 256), w8(4, 128, 256), w8(4, 256, 128), ids, f32(rows, 2))
	add("moe_experts", ir.A("limit", 10.0), x, w4(4, 128, 256), w4(4, 128, 256), w4(4, 256, 128), ids, f32(rows, 2))
	add("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 192), x)
	add("fake_quant", ir.A("to", ir.F4E2M1, "block", 32, "floor", 6*0x1p-126, "dims", 128), x)
	add("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-3, "dims", 192), x) // no form: decomposed
	add("dequantize", ir.A("to", ir.BF16), w8(130, 200))
	zeros := map[int]bool{6: true, 9: true} // the results whose zeros lose their signs

	for _, name := range bothHosts {
		want, got := ocp.outputs(name), fnuz.fnuzHost(name, fnuz.graph())
		signs := 0
		for i, what := range ocp.what {
			y := fmt.Sprintf("y%d", i)
			if zeros[i] {
				for j, v := range want[y].F {
					if v == 0 && math.Signbit(float64(v)) && (i != 6 || j%256 < 192) { // what passes is not touched
						want[y].F[j] = 0
						signs++
					}
				}
			}
			if d := exact.compare(want[y], got[y]); d != "" {
				t.Errorf("%s: %s: %s", name, what, d)
			}
		}
		if signs == 0 {
			t.Errorf("%s: no zero lost its sign: the test shows nothing", name)
		}
	}
}
