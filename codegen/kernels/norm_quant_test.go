package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// The fused norm gives the bits of rms_norm, and those of fake_quant of it.
func TestNormQuantEqualsTwoOps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 12))
	var xs, ws []*eval.Tensor
	for _, d := range []int{128, 384, 1024} {
		for _, x := range []*eval.Tensor{gauss(t, r, ir.BF16, 1, 5, d), hardRows(t, r, d)} {
			for _, scale := range []float64{1, 1e-5, 1e30} {
				xs, ws = append(xs, x), append(ws, gauss(t, r, ir.BF16, scale, d))
			}
		}
	}
	for _, host := range everyHost {
		norms, fused, quants := newBatch(t), newBatch(t), newBatch(t)
		for i, x := range xs {
			norms.op("rms_norm", normEps, exact, x, ws[i])
			fused.op("rms_norm_and_quant", normEps, exact, x, ws[i])
			fused.op("rms_norm_quant", normEps, exact, x, ws[i])
		}
		ys := host.run(norms)
		for i := range xs {
			y := ys[fmt.Sprintf("y%d", i)]
			quants.op("fake_quant", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4, "dims", y.Shape[1]), exact, y)
		}
		qs, got := host.run(quants), host.run(fused)
		for i := range xs {
			y := fmt.Sprintf("y%d", i)
			for j, want := range []*eval.Tensor{ys[y], qs[y], qs[y]} {
				if d := exact.compare(want, got[fmt.Sprintf("y%d", 3*i+j)]); d != "" {
					t.Errorf("%s: %s: result %d: %s", host.name, norms.what[i], j, d)
				}
			}
		}
	}
}

// Products give the same bits whether they quantise their activations themselves
// or get them quantised.
func TestProductsOfQuantised(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 12))
	x := hardRows(t, r, 256)
	rows := x.Shape[0]
	w8 := func(shape ...int) *eval.Tensor { return finiteWeight(t, r, ir.F8E4M3, 128, 128, shape...) }
	w4 := func(shape ...int) *eval.Tensor { return finiteWeight(t, r, ir.F4E2M1, 1, 32, shape...) }
	f32 := func(shape ...int) *eval.Tensor { return gauss(t, r, ir.F32, 1, shape...) }
	own, given := newBatch(t), newBatch(t)
	type product struct {
		op    string
		attrs ir.Attrs
		rest  []*eval.Tensor
	}
	ids := rowsIn(t, r, 4, rows, 2)
	for _, p := range []product{
		{"block_linear", nil, []*eval.Tensor{w8(201, 256)}},
		{"block_linear", nil, []*eval.Tensor{w4(63, 256)}},
		{"split_linear", ir.A("sizes", []int{128, 73}), []*eval.Tensor{w8(201, 256)}},
		{"expert", ir.A("limit", 10.0), []*eval.Tensor{w8(128, 256), w8(128, 256), w8(256, 128), f32(rows, 1)}},
		{"moe_experts", ir.A("limit", 10.0), []*eval.Tensor{w8(4, 128, 256), w8(4, 128, 256), w8(4, 256, 128), ids, f32(rows, 2)}},
		{"moe_experts", ir.A("limit", 10.0), []*eval.Tensor{w4(4, 128, 256), w4(4, 128, 256), w4(4, 256, 128), ids, f32(rows, 2)}},
	} {
		own.op(p.op, p.attrs, exact, append([]*eval.Tensor{x}, p.rest...)...)
		var args []*ir.Value
		for _, a := range p.rest {
			args = append(args, given.input(a))
		}
		q := given.b.RoundActivations(given.input(x), 128)
		for _, y := range given.b.Op(p.op, append(slices.Clone(p.attrs), ir.A("act_block", 0)...), append([]*ir.Value{q}, args...)...) {
			given.output(p.op, exact, y)
		}
	}
	sameBits(t, own, given)
}

// TestLimitOfCodes: what hc_fused_quant may be off where a form takes its liberty is one
// code of the block, and two are too many, however near zero.
func TestLimitOfCodes(t *testing.T) {
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(1, 1))}
	realCases(c, 1, 128)
	at := slices.IndexFunc(c.value, func(v *ir.Value) bool { return v.Op.Def.Name == "hc_fused_quant" && v.Index == 4 })
	if at < 0 || c.limit[at].block != 128 {
		t.Fatalf("no limit of codes of 128: %+v", c.limit)
	}
	want := blank(t, ir.T(ir.BF16, ir.Int(8), ir.Int(128)))
	for i := range want.F {
		want.F[i] = 4
	}
	const step = 0x1p-6 * 0x1p-9 // between the smallest codes of a block whose largest number is 4
	want.F[200] = 2 * step
	for _, tc := range []struct {
		got  float32
		want string
	}{
		{2 * step, ""}, {step, ""}, {3 * step, ""},
		{0, "element 200 of 1024 is 0 (0x00000000), want 6.1035156e-05 (0x38800000)"},
		{4 * step, "element 200 of 1024 is 0.00012207031 (0x39000000), want 6.1035156e-05 (0x38800000)"},
		{2.5 * step, "element 200 of 1024 is 7.6293945e-05 (0x38a00000), want 6.1035156e-05 (0x38800000)"}, // no code
	} {
		got := want.Clone()
		got.F[200] = tc.got
		if d := c.limit[at].compare(want, got); d != tc.want {
			t.Errorf("%g for %g: %q, want %q", tc.got, want.F[200], d, tc.want)
		}
	}
}
