package kernels_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// One product with two joined weights gives the bits of two products, NaN and
// zeros included, on every host and as if it had e4m3fnuz.
func TestSplitLinearEqualsTwoProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 21))
	one, two := newBatch(t), newBatch(t)
	hard := hardRows(t, r, 256)
	for _, m := range []int{1, 3, kernels.TileM, kernels.TileM + 1} {
		for _, n := range [][]int{{128, 1}, {128, 33}, {256, 128}} {
			a, b := finiteWeight(t, r, ir.F8E4M3, 128, 128, n[0], 256), finiteWeight(t, r, ir.F8E4M3, 128, 128, n[1], 256)
			for _, x := range []*eval.Tensor{gauss(t, r, ir.BF16, 1, m, 256), hard} {
				one.op("split_linear", ir.A("sizes", n), exact, x, joined(t, a, b))
				two.op("block_linear", nil, exact, x, a)
				two.op("block_linear", nil, exact, x, b)
			}
		}
	}
	sameBits(t, two, one)
}

// joined are the rows of a, then those of b.
func joined(t *testing.T, a, b *eval.Tensor) *eval.Tensor {
	t.Helper()
	n := intExtent(a, 0) + intExtent(b, 0)
	w := blank(t, ir.Scaled(ir.F8E4M3, 128, 128, ir.Int(n), a.Type().Dims[1]))
	w.Codes = bytes.Join([][]byte{a.Codes, b.Codes}, nil)
	w.Scales = bytes.Join([][]byte{a.Scales, b.Scales}, nil)
	return w
}
