package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// topkRowsCases are those about each way of choosing: as many passes as places,
// a threshold in shared memory, and one in memory; on GPUs, one group of a row and
// several, whose rows can be read as vectors and cannot, and levels of them.
func topkRowsCases(c *cases) {
	for _, s := range []struct{ rows, n, k int }{
		{1, 1, 1}, {3, 7, 1}, {3, 8, 3}, {2, 9, 9}, {2, 5, 16}, {3, 300, 16}, {2, 8, 17}, {3, 300, 40}, {2, 64, 64}, {1, 1000, 1024}, {2, 10007, 9000},
		{1, 4104, 20}, {2, 4099, 17}, {1, 2049, 500}, {3, 9008, 512}, {1, 40000, 700},
	} {
		rows := c.rows(1000, s.rows, s.n)
		for _, scores := range hardScores(c, s.rows, s.n) {
			c.add(ir.A("k", s.k), scores, rows)
		}
	}
	c.add(ir.A("k", 5), c.f32(1, 77), c.rows(1000, 77))
	c.add(ir.A("k", 2), c.bf16(1, 2, 3, 1, 11), c.rows(math.MaxInt32, 2, 3, 1, 11))
}

// hardScores are ordinary ones, equal ones, and such that are never chosen.
func hardScores(c *cases, rows, n int) []*eval.Tensor {
	ties, few, none, zeros := c.f32(1, rows, n), c.f32(1, rows, n), c.f32(1, rows, n), c.f32(1, rows, n)
	for i := range ties.F {
		ties.F[i] = float32(c.r.IntN(3))
		none.F[i] = []float32{float32(math.NaN()), float32(math.Inf(-1))}[c.r.IntN(2)]
		zeros.F[i] = float32(math.Copysign(0, c.r.Float64()-0.5))
		if c.r.IntN(n) > 2 {
			few.F[i] = float32(math.Inf(-1))
		}
	}
	return []*eval.Tensor{c.f32(1, rows, n), c.bf16(1, rows, n), ties, few, none, zeros, random(c.t, c.r, patterns, ir.F32, rows, n)}
}

// On the host, topk_rows has the bits of the forms of topk and take_along.
func TestTopKRowsIsTwoOps(t *testing.T) {
	def, err := ir.Lookup("topk_rows")
	if err != nil {
		t.Fatal(err)
	}
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 9)), def: def}
	topkRowsCases(c)
	g := c.graph()
	fused, steps := c.without(g), c.without(g, "topk_rows")
	for i, what := range c.what {
		if y := fmt.Sprintf("y%d", i); !slices.Equal(fused[y].I, steps[y].I) {
			t.Errorf("%s: %v, by two ops %v", what, fused[y].I, steps[y].I)
		}
	}
}
