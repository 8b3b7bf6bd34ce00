package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// quantRef quantises one block by section 3 of the model's specification and
// returns the scale's byte and the values that the codes stand for, unscaled.
// A block with NaN or an infinity has scale NaN.
func quantRef(to ir.DType, x []float64, floor float64) (scale byte, codes []float64) {
	a := r32(floor)
	for _, v := range x {
		a = binaryOf["max"](a, math.Abs(v))
	}
	codes = make([]float64, len(x))
	if a != a || math.IsInf(a, 0) {
		return 255, codes
	}
	t := r32(a * r32(1/grids[to].max))
	scale = powerAtLeast(t)
	for i, v := range x {
		codes[i] = roundTo(to, v/codeValue(ir.E8M0, scale))
	}
	return scale, codes
}

func quantizeProp(t *rapid.T) {
	dt := rapid.SampledFrom(floatTypes).Draw(t, "dtype")
	to := rapid.SampledFrom(codeTypes).Draw(t, "to")
	block := rapid.IntRange(1, 6).Draw(t, "block")
	floor := rapid.SampledFrom([]float64{1e-4, 6 * 0x1p-126, 1, 100}).Draw(t, "floor")
	shape := drawShape(t, 2, 3)
	last := len(shape) - 1
	if shape[last] *= block; to == ir.F4E2M1 && shape[last]%2 == 1 {
		shape[last] *= 2
	}
	x := drawTensor(t, dt, shape...)
	wantQuantized(t, x, to, block, floor)
}

func wantQuantized(t rapid.TB, x *Tensor, to ir.DType, block int, floor float64) {
	t.Helper()
	got := apply1(t, "quantize", ir.A("to", to, "block", block, "floor", floor), x)
	wantShape(t, "quantize", got, to, x.Shape...)
	if got.Quant == nil || got.Quant.Block != [2]int{1, block} {
		t.Fatalf("quantize gives %s", got.Type())
	}
	v := floats(x)
	for b := 0; b < len(v)/block; b++ {
		scale, want := quantRef(to, v[b*block:(b+1)*block], floor)
		if got.Scales[b] != scale {
			t.Fatalf("quantize %v to %s: scale %d of block %d, want %d", v[b*block:(b+1)*block], to, got.Scales[b], b, scale)
		}
		for j, w := range want {
			i := b*block + j
			if c := codeValue(to, byte(cell(got, i))); math.Float64bits(c) != math.Float64bits(w) && scale != 255 {
				t.Fatalf("quantize %v to %s: element %d is %v, want %v (scale %d)", v[i], to, i, c, w, scale)
			}
		}
	}
}

// Block maxima at and around max * 2^k, where the scale steps; each block also
// holds values in the middle of two codes.
func TestQuantizeScaleSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, to := range codeTypes {
		var v []float32
		const block = 4
		for k := -24; k <= 100; k++ {
			m := float32(math.Ldexp(grids[to].max, k))
			for _, a := range []float32{m, math.Nextafter32(m, 0), math.Nextafter32(m, float32(math.Inf(1)))} {
				v = append(v, a, -a/16*(1+0x1p-4), a*float32(r.Float64()), a/3)
			}
		}
		wantQuantized(t, f32s(v, 1, len(v)), to, block, 6*0x1p-126)
		wantQuantized(t, f32s(v, 1, len(v)), to, block, 1e-4)
	}
}

func dequantizeProp(t *rapid.T) {
	dt := rapid.SampledFrom(codeTypes).Draw(t, "dtype")
	to := rapid.SampledFrom(floatTypes).Draw(t, "to")
	shape := drawShape(t, 2, 3)
	if dt == ir.F4E2M1 {
		shape[len(shape)-1] *= 2
	}
	b0, b1 := rapid.IntRange(1, 4).Draw(t, "block0"), rapid.IntRange(1, 5).Draw(t, "block1")
	r := drawRand(t)
	q := randScaled(r, dt, b0, b1, 9, 9, shape...)
	if rapid.Bool().Draw(t, "wild") { // every code and scale, NaN included
		for i := range q.Codes {
			q.Codes[i] = byte(r.Uint32())
		}
		for i := range q.Scales {
			q.Scales[i] = byte(r.Uint32())
		}
	}
	want := floats(q)
	for i, v := range want {
		want[i] = roundTo(to, v)
	}
	got := apply1(t, "dequantize", ir.A("to", to), q)
	wantShape(t, "dequantize", got, to, shape...)
	wantFloats(t, "dequantize", got, want)
}

// Every code under every scale, to every dtype: once exact, then rounded once.
func TestDequantizeExhaustive(t *testing.T) {
	for _, dt := range codeTypes {
		n := 256
		if dt == ir.F4E2M1 {
			n = 16
		}
		q := must(New(ir.Scaled(dt, 1, n, ir.Int(256), ir.Int(n))))
		for s := range 256 {
			q.Scales[s] = byte(s)
			for c := range n {
				if i := s*n + c; dt == ir.F4E2M1 {
					q.Codes[i/2] |= byte(c) << (4 * (i % 2))
				} else {
					q.Codes[i] = byte(c)
				}
			}
		}
		exact := floats(q)
		for _, to := range floatTypes {
			want := make([]float64, len(exact))
			for i, v := range exact {
				want[i] = roundTo(to, v)
			}
			wantFloats(t, fmt.Sprintf("dequantize %s", dt), apply1(t, "dequantize", ir.A("to", to), q), want)
		}
	}
}

// f4e2m1 blocks of odd length: scales change inside a byte.
func TestQuantizeOddBlocks(t *testing.T) {
	x := f32s([]float32{6, 3, 1, 0.5, 48, -24, 12, 1.5, 4, -6, 2, 1}, 2, 6)
	wantQuantized(t, x, ir.F4E2M1, 3, 1e-4)
	wantQuantized(t, x, ir.F4E2M1, 1, 1e-4)
	q := apply1(t, "quantize", ir.A("to", ir.F4E2M1, "block", 3, "floor", 1e-4), x)
	// Blocks {6,3,1}, {.5,48,-24}, {12,1.5,4}, {-6,2,1}: scales 1, 8, 2, 1 and
	// values 6 3 1 | 0 6 -3 | 6 0.5(0.75 -> 1 by even: codes 1, 2) 2 | -6 2 1.
	if want := []byte{127, 130, 128, 127}; string(q.Scales) != string(want) {
		t.Errorf("scales %v, want %v", q.Scales, want)
	}
	wantFloats(t, "dequantize", apply1(t, "dequantize", nil, q), []float64{6, 3, 1, 0, 48, -24, 12, 2, 4, -6, 2, 1})
}
