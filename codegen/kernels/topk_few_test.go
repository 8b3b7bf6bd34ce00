package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// topkFewCases are rows of bf16 that lie in vectors: of one vector of each lane and of
// several, of all and of more than a group has, with fewer numbers than places, with more
// equal ones, and with those that are chosen next to each other.
func topkFewCases(c *cases) {
	for _, s := range []struct{ rows, n, k int }{{3, 8, 17}, {2, 2056, 512}, {1, 4104, 20}, {2, 9000, 512}, {1, 32768, 512}, {1, 40000, 700}} {
		rows := c.rows(1000, s.rows, s.n)
		for _, scores := range hardBF16Scores(c, s.rows, s.n) {
			c.add(ir.A("k", s.k), scores, rows)
		}
	}
	c.add(ir.A("k", 2048), c.bf16(1, 1, 8192), c.rows(1000, 1, 8192))
}

// hardBF16Scores are hardScores of bf16, and three more.
func hardBF16Scores(c *cases, rows, n int) []*eval.Tensor {
	make := func(f func(i int) float64) *eval.Tensor {
		x := c.bf16(1, rows, n)
		for i := range x.F {
			if v := f(i % n); v == v || c.r.IntN(2) > 0 {
				x.F[i] = num.RoundBF16(float32(v))
			}
		}
		return x
	}
	inf, ordinary := math.Inf(1), math.NaN() // half of them
	return []*eval.Tensor{
		c.bf16(1, rows, n), random(c.t, c.r, patterns, ir.BF16, rows, n),
		make(func(int) float64 { return float64(c.r.IntN(3)) }),
		make(func(int) float64 { return math.Copysign(0, c.r.Float64()-0.5) }),
		make(func(int) float64 { return []float64{-inf, ordinary}[c.r.IntN(2)] }),
		make(func(i int) float64 { return []float64{-inf, float64(c.r.IntN(64))}[min(1, 1400/(i+1))] }), // a context that ends
		make(func(i int) float64 { return float64(i / 64) }),                                            // the last ones
		make(func(i int) float64 { return []float64{1, ordinary, 2, inf, -3}[c.r.IntN(5)] }),
	}
}

// TestTopKFew runs them on simulated warps and on the emulator of an AMD GPU.
func TestTopKFew(t *testing.T) {
	for _, chip := range []string{"sm_90", "gfx942"} {
		t.Run(chip, func(t *testing.T) {
			c := gpuCases(t, "topk_rows")
			topkFewCases(c)
			c.run(chip)
		})
	}
}

func gpuCases(t *testing.T, op string) *cases {
	t.Helper()
	def, err := ir.Lookup(op)
	if err != nil {
		t.Fatal(err)
	}
	return &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 13)), def: def}
}

// TestScoreTiles: scores are right whatever number of tiles a warp goes through, and
// whoever multiplies.
func TestScoreTiles(t *testing.T) {
	processors := *kernels.Processors
	t.Cleanup(func() { *kernels.Processors = processors })
	for _, chip := range []string{"sm_90", "sm_90a"} {
		for _, *kernels.Processors = range []int{1, 2, 132} {
			t.Run(fmt.Sprintf("%s/%d processors", chip, *kernels.Processors), func(t *testing.T) {
				c := gpuCases(t, "indexer_scores")
				const rows, n = 2, 1000
				for _, s := range []struct{ heads, d int }{{64, 128}, {5, 96}, {5, 64}, {64, 256}} {
					q, w, keys := c.bf16(1, rows, s.heads, s.d), c.bf16(1, rows, s.heads), c.bf16(1, 300, s.d)
					c.add(nil, q, w, keys, c.rows(300, rows, n))
					c.addPacked(nil, indexFormat(s.d), 6*0x1p-126, []int{2}, q, w, keys, c.rows(300, rows, n))
				}
				c.run(chip)
			})
		}
	}
}

// TestScoreBits: scores have the same bits whoever multiplies.
func TestScoreBits(t *testing.T) {
	c := gpuCases(t, "indexer_scores")
	const rows, n = 2, 1000
	for _, heads := range []int{64, 5} {
		q, w, keys := c.bf16(1, rows, heads, 128), c.bf16(1, rows, heads), c.bf16(1, 300, 128)
		c.add(nil, q, w, keys, c.rows(300, rows, n))
		c.addPacked(nil, indexFormat(128), 6*0x1p-126, []int{2}, q, w, keys, c.rows(300, rows, n))
	}
	if recordOnly() {
		for _, chip := range []string{"sm_90", "sm_90a"} {
			load(t, chip, c.graph())
		}
		return
	}
	one, four := c.outputs("sm_90"), c.outputs("sm_90a")
	for i, what := range c.what {
		y := fmt.Sprintf("y%d", i)
		if d := exact.compare(one[y], four[y]); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
}
