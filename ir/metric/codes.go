package metric

import (
	"math"

	"github.com/kiln-project/kiln/ir/num"
)

// CodesApart is how many f8e4m3 codes each element of got is away from want's. Both are
// what codes stand for, with a power of two as the scale of block elements each, the
// last block of which may be shorter. The scale is that of want: the smallest that its
// largest number can have, and none below that of activations' floor. Infinite is the
// distance of a number that is no code with this scale; NaN is nowhere near a number,
// and two of them are equal, as are zeros.
//
// Where rounding inside of an op moves a number over the border of two codes, this is
// one, however small the number; in units of its last place it is 16, and any number
// near zero.
func CodesApart(want, got []float32, block int) []float64 {
	out := make([]float64, len(want))
	for from := 0; from < len(want); from += block {
		to := min(from+block, len(want))
		scale := blockScale(want[from:to])
		for i := from; i < to; i++ {
			if w, g := want[i], got[i]; w != g && (w == w || g == g) {
				out[i] = math.Abs(codeOf(w, scale) - codeOf(g, scale))
				if out[i] != out[i] { // neither is a code
					out[i] = math.Inf(1)
				}
			}
		}
	}
	return out
}

// blockScale is the scale of numbers that codes stand for. Those whose largest code is
// 224 may also have twice that scale: there a step between the smallest codes counts as
// two.
func blockScale(x []float32) float32 {
	top := num.FloorE4M3
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a <= math.MaxFloat32 {
			top = max(top, a)
		}
	}
	return num.Pow2Ceil(top / num.FmtE4M3.Max())
}

// codeOf is the place of a number in the order of the codes, or infinite.
func codeOf(x, scale float32) float64 {
	c := num.E4M3(x / scale)
	switch n := float64(c &^ 0x80); {
	case num.FromE4M3(c)*scale != x: // NaN too
		return math.Inf(1)
	case c >= 0x80:
		return -n
	default:
		return n
	}
}
