package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// joinedSizes are numbers of rows for n weights: ones that end inside of a tile
// and ones that do not.
func joinedSizes(n int) [][]int {
	return [][]int{
		[]int{1, 1, 1, 1}[:n], []int{kernels.TileN, 2 * kernels.TileN, kernels.TileN, 8}[:n],
		[]int{7, 1, 33, kernels.TileN}[:n], []int{33, 8, 1, 64}[:n],
	}
}

func sumOf(sizes []int) (n int) {
	for _, s := range sizes {
		n += s
	}
	return n
}

func joinedLinearCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, sizes := range joinedSizes(len(c.def.Results)) {
			attrs, n := ir.A("sizes", sizes, "to", ir.BF16), sumOf(sizes)
			c.add(attrs, c.bf16(1, m, 72), c.bf16(1, n, 72))
			c.add(attrs, c.spoiled(c.bf16(1, m, 72), m), c.bf16(1, n, 72))
			c.add(attrs, c.bf16(1, m, 7), c.spoiled(c.bf16(1, n, 7), n))
			c.add(ir.A("sizes", sizes, "to", ir.F32), c.bf16(1, m, 40), c.f32(1, n, 40))
		}
	}
}

// A product with joined weights gives the bits of the products with each, NaN and
// zeros included, on every host.
func TestJoinedLinearEqualsItsProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 21))
	one, each := newBatch(t), newBatch(t)
	hard := hardRows(t, r, 256)
	for n := 2; n <= 4; n++ {
		for _, to := range []ir.DType{ir.BF16, ir.F32} {
			for _, m := range []int{1, 3, kernels.TileM, kernels.TileM + 1} {
				for _, sizes := range joinedSizes(n) {
					var ws [][]float32
					for _, size := range sizes {
						ws = append(ws, gauss(t, r, ir.BF16, 1, size, 256).F)
					}
					w := floatsOf(t, ir.BF16, slices.Concat(ws...), sumOf(sizes), 256)
					for _, x := range []*eval.Tensor{gauss(t, r, ir.BF16, 1, m, 256), hard} {
						one.op(fmt.Sprintf("linear%d", n), ir.A("sizes", sizes, "to", to), exact, x, w)
						for i, size := range sizes {
							each.op("linear", ir.A("to", to), exact, x, floatsOf(t, ir.BF16, ws[i], size, 256))
						}
					}
				}
			}
		}
	}
	sameBits(t, each, one)
}
