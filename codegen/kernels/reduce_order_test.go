package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// TestReduceOrder: on AMD's chips, lanes of a wave are added in a butterfly, its widest
// step first, whichever instructions exchange them; waves one after the other.
func TestReduceOrder(t *testing.T) {
	const rows, lanes, wave = 8, 256, 64
	r := rand.New(rand.NewPCG(3, 9))
	x := blank(t, ir.T(ir.F32, ir.Int(rows), ir.Int(lanes)))
	for row := range rows { // f64 keeps a small number only where large ones cancelled before it came
		for i, lane := range r.Perm(lanes) {
			x.F[row*lanes+lane] = []float32{0x1p70, -0x1p70, float32(r.IntN(100)), float32(r.IntN(100))}[i%4]
		}
	}
	want := blank(t, ir.T(ir.F32, ir.Int(rows), ir.Int(1)))
	other := blank(t, want.Type())
	for row := range rows {
		sums := make([]float64, lanes)
		for i := range sums {
			sums[i] = float64(x.F[row*lanes+i])
			other.F[row] = float32(float64(other.F[row]) + sums[i])
		}
		for step := wave / 2; step > 0; step /= 2 {
			next := make([]float64, lanes)
			for i := range next {
				next[i] = sums[i] + sums[i^step]
			}
			sums = next
		}
		want.F[row] = float32(sums[0] + sums[wave] + sums[2*wave] + sums[3*wave])
	}
	if exact.compare(want, other) == "" {
		t.Fatal("the order makes no difference: the test shows nothing")
	}
	c := newBatch(t)
	c.op("reduce_sum", ir.A("axis", 1, "to", ir.F32), exact, x)
	for _, chip := range bothChips {
		if d := exact.compare(want, c.outputs(chip)["y0"]); d != "" {
			t.Errorf("%s: %s", chip, d)
		}
	}
}

// TestElementwiseVectors: lanes of GPUs that take several elements at once give what the
// evaluator gives, for each format and mixtures, also where the elements are too few, or
// no multiple.
func TestElementwiseVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 8))
	c := newBatch(t)
	types := []ir.DType{ir.F32, ir.BF16, ir.I32}
	for _, n := range []int{4, 6, 4096, 5000} {
		for _, from := range types {
			x := random(t, r, patterns, from, n)
			if from == ir.I32 {
				for i := range x.I {
					x.I[i] %= 1 << 24
				}
			}
			for _, to := range types {
				if to == ir.I32 && from != ir.I32 {
					x = random(t, r, ordinary, from, n)
				}
				c.op("cast", ir.A("to", to), exact, x)
			}
			c.op("add", nil, exact, random(t, r, ordinary, from, n), random(t, r, ordinary, from, n))
			c.op("sub", nil, exact, random(t, r, ordinary, from, n), random(t, r, ordinary, from, 1))
			one := []*eval.Tensor{random(t, r, patterns, ir.Bool, 1), random(t, r, patterns, from, n), random(t, r, patterns, from, n)}
			c.op("select", nil, exact, one...)
			c.op("le", nil, exact, one[1], one[2]) // bool is not in words
		}
	}
	c.run(append([]string{"sm_90"}, bothChips...)...)
}
