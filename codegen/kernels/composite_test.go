package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// The forms of the composite ops, against the evaluator, within the op table's
// limits: docs/dsv4.md section 9.
var (
	bf16Op  = limit{ulps: 1, share: 0.005}
	f32Op   = limit{abs: 2e-6}
	mixedHC = limit{ulps: 1, share: 0.005, abs: 2e-6} // bf16 sums that may cancel
)

// gauss makes normally distributed numbers.
func gauss(t testing.TB, r *rand.Rand, dt ir.DType, scale float64, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(dt, intDims(shape)...))
	v := make([]float32, len(x.F))
	for i := range v {
		v[i] = float32(r.NormFloat64() * scale)
	}
	return floatsOf(t, dt, v, shape...)
}

// rowsIn makes row indices below n, some of them -1.
func rowsIn(t testing.TB, r *rand.Rand, n int, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(ir.I32, intDims(shape)...))
	for i := range x.I {
		x.I[i] = int64(r.IntN(n+1) - 1)
	}
	return x
}

func i32s(t testing.TB, v ...int64) *eval.Tensor {
	t.Helper()
	return intsOf(t, ir.I32, v, len(v))
}

// finiteWeight is a block-scaled weight without NaN codes, as checkpoints hold.
func finiteWeight(t testing.TB, r *rand.Rand, dt ir.DType, b0, b1 int, shape ...int) *eval.Tensor {
	t.Helper()
	w := randomScaled(t, r, ordinary, dt, b0, b1, shape...)
	for i, c := range w.Codes {
		if dt == ir.F8E4M3 && c&0x7F == 0x7F {
			w.Codes[i] = 0
		}
	}
	for i := range w.Scales {
		w.Scales[i] = byte(115 + r.IntN(6))
	}
	return w
}

func TestComposites(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	c := newBatch(t)
	bf := func(scale float64, shape ...int) *eval.Tensor { return gauss(t, r, ir.BF16, scale, shape...) }
	f32 := func(scale float64, shape ...int) *eval.Tensor { return gauss(t, r, ir.F32, scale, shape...) }
	w8 := func(shape ...int) *eval.Tensor { return finiteWeight(t, r, ir.F8E4M3, 128, 128, shape...) }
	w4 := func(shape ...int) *eval.Tensor { return finiteWeight(t, r, ir.F4E2M1, 1, 32, shape...) }

	for _, d := range []int{1, 7, 8, 9, 257} {
		c.op("rms_norm", ir.A("eps", 1e-6), bf16Op, bf(1, 3, d), bf(1, d))
	}
	c.op("head_rms_norm", ir.A("eps", 1e-6), bf16Op, bf(1, 5, 4, 128))
	c.op("rope", ir.A("inverse", true), bf16Op, bf(1, 5, 3, 128), f32(1, 5, 32), f32(1, 5, 32))
	c.op("rope", nil, bf16Op, bf(1, 5, 6), f32(1, 5, 3), f32(1, 5, 3))
	for _, n := range []int{1, 4, 128, 256} {
		c.op("hadamard", nil, bf16Op, bf(1, 5, n))
	}
	c.op("fake_quant", ir.A("to", ir.F8E4M3, "block", 64, "floor", 1e-4, "dims", 64), exact, bf(1, 5, 128))
	c.op("fake_quant", ir.A("to", ir.F4E2M1, "block", 32, "floor", 6*0x1p-126, "dims", 128), exact, bf(1, 3, 2, 128))
	// Rows of w that do not fill a tile, and rows of x around one.
	for _, m := range []int{1, 3, 4, 5, 9} {
		c.op("linear", ir.A("to", ir.BF16), bf16Op, bf(1, m, 264), bf(1, 33, 264))
		c.op("block_linear", nil, bf16Op, bf(1, m, 384), w8(201, 384))
		c.op("block_linear", nil, bf16Op, bf(1, m, 256), w4(63, 256))
		c.op("grouped_linear", nil, bf16Op, bf(1, m, 2, 136), bf(1, 2, 33, 136))
	}
	c.op("linear", ir.A("to", ir.F32), limit{ulps: 64, share: 1}, bf(1, 3, 100), bf(1, 5, 100))
	hc := ir.A("eps", 1e-6, "norm_eps", 1e-6)
	for _, s := range []int{1, 2, 4} {
		m := (2 + s) * s
		c.op("hc_pre", hc, mixedHC, bf(1, 5, s, 260), f32(.05, m, s*260), f32(1, 3), f32(1, m))
		c.op("hc_post", nil, mixedHC, bf(1, 5, 37), bf(1, 5, s, 37), f32(1, 5, s), f32(1, 5, s, s))
		c.op("hc_head", hc, mixedHC, bf(1, 5, s, 260), f32(.05, s, s*260), f32(1, 1), f32(1, s))
	}
	c.op("gate", ir.A("k", 2, "scale", 1.5), f32Op, bf(1, 5, 256), bf(.1, 8, 256), f32(1, 8))
	table := intsOf(t, ir.I64, []int64{0, 7, 3, 1, 6, 2, 5, 5}, 4, 2)
	c.op("hash_gate", ir.A("k", 2, "scale", 1.5), f32Op, bf(1, 4, 256), bf(.1, 8, 256), table, i32s(t, 3, 0, 2, 1))
	for _, lim := range []float64{0, 2} {
		c.op("swiglu", ir.A("limit", lim), bf16Op, bf(4, 5, 131), bf(4, 5, 131), f32(1, 5, 1))
	}
	c.op("expert", ir.A("limit", 10.0), bf16Op, bf(1, 5, 256), w8(128, 256), w8(128, 256), w8(256, 128), f32(1, 5, 1))
	ids := blank(t, ir.T(ir.I32, ir.Int(6), ir.Int(2)))
	copy(ids.I, []int64{0, 7, 7, 0, 3, 3, -1, 4, 2, -1, 6, 5}) // twice the same, and none
	c.op("moe_experts", ir.A("limit", 10.0), limit{ulps: 256, share: 0.01}, bf(1, 6, 256), w4(8, 128, 256), w4(8, 128, 256), w4(8, 256, 128), ids, f32(1, 6, 2))
	c.run("x86-64-v3", "x86-64-v2")
}

func TestRowSets(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	c := newBatch(t)
	pos, req := i32s(t, 20, 21, 22, 0, 1, 7, -1), i32s(t, 0, 0, 0, 1, 1, 2, -1)
	for _, span := range []int{1, 8, 9, 23} {
		c.op("history_rows", ir.A("span", span, "size", 24), exact, i32s(t, 0, 1, 2, 3, 4, 5, -1), pos, req, i32s(t, 3, 0, -1))
		c.op("history_rows", ir.A("span", span, "size", 24), exact, i32s(t, 2, -1), pos, req, i32s(t, 3, 0, -1))
	}
	pages := intsOf(t, ir.I32, []int64{3, 1, -1, 0, 5, 2}, 2, 3)
	for _, ratio := range []int{4, 128} {
		c.op("entry_rows", ir.A("ratio", ratio, "per_page", 128/ratio), exact, i32s(t, 200, 3, 4, -1, 383), i32s(t, 0, 1, 1, -1, 1), pages)
	}
	c.op("group_start", ir.A("ratio", 4), exact, i32s(t, 3, -1, 5), i32s(t, 0, 1, 2, 3, 130, 131))
	for _, overlap := range []bool{true, false} {
		// The last entry has no members.
		old, own := rowsIn(t, r, 40, 4, 8), rowsIn(t, r, 9, 4, 8)
		for i := 24; i < 32; i++ {
			old.I[i], own.I[i] = -1, -1
		}
		f := func(rows int) *eval.Tensor { return gauss(t, r, ir.F32, 2, rows, 150) }
		c.op("compress", ir.A("overlap", overlap), bf16Op, f(40), f(40), f(9), f(9), old, own)
	}
	bf := func(shape ...int) *eval.Tensor { return gauss(t, r, ir.BF16, 1, shape...) }
	for _, n := range []int{1, 31, 32, 33, 77} {
		c.op("indexer_scores", nil, bf16Op, bf(3, 4, 128), bf(3, 4), bf(50, 128), rowsIn(t, r, 50, 3, n))
	}
	for _, d := range []int{40, 128} {
		none := rowsIn(t, r, 50, 5, 33)
		for i := range 33 {
			none.I[i] = -1 // the first query sees nothing
		}
		empty := rowsIn(t, r, 5, 5, 9)
		for i := range 9 {
			empty.I[i] = -1
		}
		sink := gauss(t, r, ir.F32, 1, 4)
		sink.F[1] = float32(math.Inf(-1))
		c.op("sparse_attention", ir.A("scale", math.Pow(float64(d), -0.5)), bf16Op, bf(5, 4, d), sink, bf(50, d), none, bf(5, d), empty)
		c.op("sparse_attention", ir.A("scale", 1.0), bf16Op, bf(5, 4, d), sink, bf(50, d), rowsIn(t, r, 50, 5, 7))
	}
	c.run("x86-64-v3", "x86-64-v2")
}

// TestEveryCompositeHasAForm: a DSV4 op that decomposes where a kernel was
// expected would be silently slow.
func TestEveryCompositeHasAForm(t *testing.T) {
	decomposed := []string{
		"freqs_cis",   // a table: packed
		"group_start", // three small launches once per layer
		"hc_split",    // inside hc_pre
	}
	for _, d := range ir.Ops() {
		if d.Primitive() || slices.Contains(decomposed, d.Name) {
			continue
		}
		if len(kernels.For(d.Name)) == 0 {
			t.Errorf("composite %s has no kernel form", d.Name)
		}
	}
	for _, name := range decomposed {
		if len(kernels.For(name)) > 0 {
			t.Errorf("%s has a form now: take it off the list", name)
		}
	}
}

// TestDisabledForms: with a form disabled the op is decomposed, and the results
// stay within its limit.
func TestDisabledForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	c := newBatch(t)
	c.op("rms_norm", ir.A("eps", 1e-6), bf16Op, gauss(t, r, ir.BF16, 1, 3, 40), gauss(t, r, ir.BF16, 1, 40))
	u := codegen.NewUnit(mustTarget(t, "x86-64-v3"))
	u.Disable["rms_norm"] = true
	g := c.graph()
	p, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Launches) < 5 {
		t.Errorf("%d launches: rms_norm was not decomposed", len(p.Launches))
	}
	for _, l := range p.Launches {
		if u.Module.Kernels[l.Kernel].Form == "rms_norm" {
			t.Error("the disabled form was chosen")
		}
	}
}
