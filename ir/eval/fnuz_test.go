package eval

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// wantRecoded compares recode_fnuz with the values that codes and scales have by
// definition; the sign of a zero may go, and a scale of 2^127 makes NaN.
func wantRecoded(t rapid.TB, q *Tensor) {
	t.Helper()
	got := apply1(t, "recode_fnuz", nil, q)
	wantShape(t, "recode_fnuz", got, ir.F8E4M3FNUZ, q.Shape...)
	if got.Quant == nil || *got.Quant != *q.Quant {
		t.Fatalf("recode_fnuz of %s gives %s", q.Type(), got.Type())
	}
	double := func(s byte) float64 {
		if s == 254 {
			return math.NaN()
		}
		return 2 * codeValue(ir.E8M0, s)
	}
	for i, s := range got.Scales {
		if g, w := codeValue(ir.E8M0, s), double(q.Scales[i]); g != w && !(g != g && w != w) {
			t.Fatalf("scale %d: byte %d becomes %d", i, q.Scales[i], s)
		}
	}
	for i, c := range got.Codes {
		w := codeValue(ir.F8E4M3, q.Codes[i])/2 + 0 // -0 + 0 is +0
		if g := codeValue(ir.F8E4M3FNUZ, c); math.Float64bits(g) != math.Float64bits(w) && !(g != g && w != w) {
			t.Fatalf("element %d: code %#02x becomes %#02x: %v, want %v", i, q.Codes[i], c, g, w)
		}
	}
}

func recodeFNUZProp(t *rapid.T) {
	shape := drawShape(t, 2, 4)
	b0, b1 := rapid.IntRange(1, 4).Draw(t, "block0"), rapid.IntRange(1, 5).Draw(t, "block1")
	r := drawRand(t)
	q := randScaled(r, ir.F8E4M3, b0, b1, 9, 9, shape...)
	if rapid.Bool().Draw(t, "wild") { // every code and scale, NaN included
		for i := range q.Codes {
			q.Codes[i] = byte(r.Uint32())
		}
		for i := range q.Scales {
			q.Scales[i] = byte(r.Uint32())
		}
	}
	wantRecoded(t, q)
}

// everyCode is a tensor with every code under every scale.
func everyCode() *Tensor {
	q := must(New(ir.Scaled(ir.F8E4M3, 1, 256, ir.Int(256), ir.Int(256))))
	for s := range 256 {
		q.Scales[s] = byte(s)
		for c := range 256 {
			q.Codes[256*s+c] = byte(c)
		}
	}
	return q
}

// Every code under every scale keeps its value as f32, -0 apart. Where the scale
// has no double, all are NaN.
func TestRecodeFNUZExhaustive(t *testing.T) {
	q := everyCode()
	wantRecoded(t, q)
	was, is := apply1(t, "dequantize", nil, q), apply1(t, "dequantize", nil, apply1(t, "recode_fnuz", nil, q))
	for i, w := range was.F {
		if w += 0; i/256 == 254 {
			w = float32(math.NaN())
		}
		if !sameBits(w, is.F[i]) {
			t.Errorf("code %#02x, scale %d: %v, want %v", i%256, i/256, is.F[i], w)
		}
	}
}

// Ops with recoded weights give the bits that they give with the weights as they
// were.
func TestOpsOfRecodedWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 42))
	weight := func(shape ...int) *Tensor {
		w := randScaled(r, ir.F8E4M3, 128, 128, 12, 4, shape...)
		for i := 0; i < len(w.Codes); i += 37 {
			w.Codes[i] = 0x80
		}
		return w
	}
	normal := func(dt ir.DType, shape ...int) *Tensor {
		v := make([]float32, size(shape))
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return must(FromF32(dt, v, shape...))
	}
	ids := must(FromI32([]int32{0, 2, 1, 1, -1, 2}, 3, 2))
	for _, c := range []struct {
		op    string
		attrs ir.Attrs
		args  []*Tensor
	}{
		{"dequantize", ir.A("to", ir.BF16), []*Tensor{weight(130, 200)}},
		{"block_linear", nil, []*Tensor{normal(ir.BF16, 3, 256), weight(131, 256)}},
		{"expert", ir.A("limit", 2.0), []*Tensor{normal(ir.BF16, 3, 128), weight(256, 128), weight(256, 128), weight(128, 256), normal(ir.F32, 3, 1)}},
		{"moe_experts", ir.A("limit", 2.0), []*Tensor{normal(ir.BF16, 3, 128), weight(3, 128, 128), weight(3, 128, 128), weight(3, 128, 128), ids, normal(ir.F32, 3, 2)}},
	} {
		recoded := make([]*Tensor, len(c.args))
		for i, a := range c.args {
			if recoded[i] = a; a.DType == ir.F8E4M3 {
				recoded[i] = apply1(t, "recode_fnuz", nil, a)
			}
		}
		want, got := apply1(t, c.op, c.attrs, c.args...), apply1(t, c.op, c.attrs, recoded...)
		for i, w := range want.F {
			if c.op == "dequantize" {
				w += 0 // the one op that shows the sign of a code's zero
			}
			if !sameBits(w, got.F[i]) {
				t.Errorf("%s: element %d is %v, want %v", c.op, i, got.F[i], w)
				break
			}
		}
	}
}
