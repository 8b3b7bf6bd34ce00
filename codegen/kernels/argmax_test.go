package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// hardLogits are hardScores and rows with NaN and Inf among numbers.
func hardLogits(c *cases, rows, n int) []*eval.Tensor {
	some, high := c.f32(1, rows, n), c.f32(1, rows, n)
	for i := range some.F {
		if c.r.IntN(3) == 0 {
			some.F[i] = float32(math.NaN())
		}
		if c.r.IntN(n) == 0 {
			high.F[i] = float32(math.Inf(1))
		}
	}
	low, nan := blank(c.t, ir.T(ir.F32, ir.Int(rows), ir.Int(n))), blank(c.t, ir.T(ir.BF16, ir.Int(rows), ir.Int(n)))
	for i := range low.F {
		low.F[i], nan.F[i] = float32(math.Inf(-1)), float32(math.NaN())
	}
	return append(hardScores(c, rows, n), some, high, low, nan)
}

func TestArgmax(t *testing.T) {
	def, err := ir.Lookup("argmax")
	if err != nil {
		t.Fatal(err)
	}
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(3, 5)), def: def}
	for _, s := range [][2]int{{1, 1}, {3, 7}, {3, 8}, {2, 9}, {5, 16}, {3, 300}, {2, 10007}, {1, 129280}} {
		for _, x := range hardLogits(c, s[0], s[1]) {
			c.add(nil, x)
		}
	}
	c.run(bothHosts...)
}

// argmaxWidths are numbers of columns about a tile's, a group's and several
// groups' ends.
func argmaxWidths() []int {
	group := kernels.ArgmaxTiles * kernels.TileN
	return []int{1, kernels.TileN, kernels.TileN + 1, group - 1, group, group + 1, 5*group + 3}
}

func linearArgmaxCases(c *cases) {
	for _, m := range c.around(kernels.TileM) {
		for _, n := range argmaxWidths() {
			c.add(nil, c.bf16(1, m, 72), c.bf16(1, n, 72))
			c.add(nil, c.spoiled(c.bf16(1, m, 40), m), c.bf16(1, n, 40))
			c.add(nil, c.bf16(1, m, 7), c.equalRows(n, 7))
		}
		c.add(nil, c.bf16(1, m, 40), c.spoiled(c.bf16(1, 33, 40), 33))
	}
}

// equalRows is a weight of few different rows, of which the last are zeros: what
// multiplies it has ties everywhere.
func (c *cases) equalRows(n, k int) *eval.Tensor {
	few := c.bf16(1, 3, k)
	w := blank(c.t, ir.T(ir.BF16, ir.Int(n), ir.Int(k)))
	for i := range n - n/4 {
		copy(w.F[i*k:(i+1)*k], few.F[c.r.IntN(3)*k:])
	}
	return w
}

// linear_argmax has the ids and flags of the forms of linear and argmax, whatever
// the last bits of the sums are.
func TestLinearArgmaxIsTwoOps(t *testing.T) {
	def, err := ir.Lookup("linear_argmax")
	if err != nil {
		t.Fatal(err)
	}
	fused := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(3, 8)), def: def}
	linearArgmaxCases(fused)
	// Of a row of equal numbers, a column's order decides on nothing but the last
	// bits of its sum.
	for range 40 {
		const k = 264
		x, w := fused.bf16(1, 3, k), fused.equalRows(150, k)
		for i := range x.F {
			x.F[i] = x.F[i/k*k]
		}
		for i := range 150 {
			row := w.F[i*k : (i+1)*k]
			fused.r.Shuffle(k, func(i, j int) { row[i], row[j] = row[j], row[i] })
		}
		fused.add(nil, x, w)
	}
	g := fused.graph()
	one, two := fused.without(g), fused.without(g, "linear_argmax")
	for i, what := range fused.what {
		y := fmt.Sprintf("y%d", i)
		if d := exact.compare(two[y], one[y]); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}
