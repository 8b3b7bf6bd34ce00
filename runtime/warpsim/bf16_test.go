package warpsim

import (
	"math"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir/num"
)

// Pairs of bf16 numbers: NaN is skipped by maxima, reaches nothing, and stays NaN where
// negative numbers become 0.
func TestBF16Pairs(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{-inf, -3, -0x1p-130, 0, 0x1p-130, 1, 1.00390625, 1.01171875, 7, inf, nan}
	n := len(x)
	in := make([]float32, n*n*2) // all pairs
	for i := range n * n {
		in[2*i], in[2*i+1] = x[i/n], x[i%n]
	}
	got, err := launch(t, [][]float32{in}, 7*n*n, func(k *kernel.K, b []*kernel.Buf) {
		k.Lanes(k.Int(n*n), func(i kernel.V) {
			lo, hi := b[0].Load(k.Mul(i, k.Int(2))), b[0].Load(k.Add(k.Mul(i, k.Int(2)), k.Int(1)))
			pair := k.PackBF16(lo, hi)
			swapped := k.PackBF16(hi, k.Float(-1))
			number := k.Select(k.Cmp(kernel.EQ, hi, hi), swapped, k.PackBF16(k.Float(-1), k.Float(-1))) // MaxNumBF16's second operand has no NaN
			most := k.MaxNumBF16(pair, number)
			least := k.AtLeastBF16(pair, swapped)
			mask := k.AtLeastMaskBF16(pair, swapped)
			relu := k.ReluBF16(lo, hi)
			out := []kernel.V{
				k.Bits(k.Shl(most, k.Int32(16))), k.Convert(least[0], kernel.F32), k.Convert(least[1], kernel.F32),
				k.Bits(k.Shl(relu, k.Int32(16))), k.Bits(k.And(relu, k.Int32(-1<<16))),
				k.Convert(k.And(mask, k.Int32(0xFFFF)), kernel.F32), k.Convert(k.LShr(mask, k.Int32(16)), kernel.F32),
			}
			for j, v := range out {
				b[1].Store(k.Add(k.Mul(i, k.Int(len(out))), k.Int(j)), v)
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	truth := func(b bool) float32 {
		if b {
			return 1
		}
		return 0
	}
	for i := range n * n {
		lo, hi := num.RoundBF16(in[2*i]), num.RoundBF16(in[2*i+1])
		most := hi
		if hi != hi {
			most = -1
		}
		if lo > most {
			most = lo
		}
		relu := func(x float32) float32 {
			if x < 0 {
				return 0
			}
			return x
		}
		for j, want := range []float32{most, truth(lo >= hi), truth(hi >= -1), relu(lo), relu(hi), 0xFFFF * truth(lo >= hi), 0xFFFF * truth(hi >= -1)} {
			if y := got[7*i+j]; y != want && (y == y || want == want) {
				t.Errorf("%v, %v: result %d is %v, want %v", lo, hi, j, y, want)
			}
		}
	}
}
