package metric

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir/num"
)

func TestCodesApart(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negZero := float32(math.Copysign(0, -1))
	const smallest = 0x1p-9 // code 1
	for _, tc := range []struct {
		name           string
		top, want, got float32
		apart          float64
	}{
		{"equal", 256, 1, 1, 0},
		{"zeros of both signs", 256, 0, negZero, 0},
		{"the smallest code and zero", 256, -smallest, negZero, 1},
		{"zero and the smallest code", 256, 0, smallest, 1},
		{"the second code and zero", 256, 2 * smallest, 0, 2},
		{"the smallest codes of both signs", 256, smallest, -smallest, 2},
		{"small neighbours", 256, 18 * smallest, 20 * smallest, 1},
		{"small ones that are no neighbours", 256, 16 * smallest, 20 * smallest, 2},
		{"large neighbours", 256, 240, 256, 1},
		{"large ones that are no neighbours", 256, 240, 288, 2},
		{"no code", 256, 1, 1 + 0x1p-4, math.Inf(1)},
		{"half of the smallest code", 256, 0, smallest / 2, math.Inf(1)},
		{"beyond the codes", 448, 448, 480, math.Inf(1)},
		{"NaN for a number", 256, 1, nan, math.Inf(1)},
		{"infinity for a number", 256, 1, inf, math.Inf(1)},
		{"a number for NaN", 256, nan, 1, math.Inf(1)},
		{"NaN on both sides", 256, nan, nan, 0},
		{"infinity and NaN", 256, inf, nan, math.Inf(1)},
		// The scale of a block whose largest code is 224 is taken to be half.
		{"the smallest code under 224", 224, smallest, 0, 2},
	} {
		for _, scale := range []float32{1, 0x1p-6, 0x1p-20, 0x1p100} {
			// The scale is of the element's own block, not of those beside it.
			want := []float32{448 * 8 * scale, 0, tc.top * scale, tc.want * scale, scale / 8, 0}
			got := append([]float32(nil), want...)
			got[3] = tc.got * scale
			for i, d := range CodesApart(want, got, 2) {
				if i == 3 && d != tc.apart || i != 3 && d != 0 {
					t.Errorf("%s, scale %g: element %d is %g codes apart, want %g", tc.name, scale, i, d, tc.apart)
				}
			}
		}
	}
}

// Below the floor of a block's maximum scales are no smaller.
func TestCodesApartFloor(t *testing.T) {
	const step = 0x1p-22 * 0x1p-9
	if d := CodesApart([]float32{0, step}, []float32{0, 0}, 2); d[1] != 1 {
		t.Errorf("the smallest number is %g codes from 0", d[1])
	}
}

// Numbers that quantisation makes of others, and of others one bf16 step away, are at
// most one code apart where the scale is the same and not taken to be half of it.
func TestCodesApartOfNeighbours(t *testing.T) {
	quantised := func(x []float32) (y []float32, scale byte) {
		codes := make([]byte, len(x))
		scale = num.QuantizeBlock(codes, x, num.FmtE4M3, num.FloorE4M3)
		for _, c := range codes {
			y = append(y, num.FromE4M3(c)*num.FromE8M0(scale))
		}
		return y, scale
	}
	rapid.Check(t, func(t *rapid.T) {
		x := []float32{num.RoundBF16(rapid.Float32Range(233, 439).Draw(t, "top"))}
		near := append([]float32(nil), x...)
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			v := num.BF16Bits(rapid.Float32Range(-230, 230).Draw(t, "x") * float32(math.Ldexp(1, -rapid.IntRange(0, 20).Draw(t, "e"))))
			x, near = append(x, num.FromBF16(v)), append(near, num.FromBF16(v^1))
		}
		want, s0 := quantised(x)
		got, s1 := quantised(near)
		if s0 != s1 {
			t.Fatalf("scales %d and %d", s0, s1)
		}
		for i, d := range CodesApart(want, got, len(want)) {
			if d > 1 || (d == 0) != (want[i] == got[i]) {
				t.Fatalf("%g and %g of %g and %g: %g codes apart", want[i], got[i], x[i], near[i], d)
			}
		}
	})
}
