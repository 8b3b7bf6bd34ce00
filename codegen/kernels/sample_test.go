package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// drawArgs are the operands of op sample behind the logits.
func drawArgs(t testing.TB, draws []eval.Draw) []*eval.Tensor {
	t.Helper()
	b := ir.Int(len(draws))
	args := []*eval.Tensor{blank(t, ir.T(ir.F32, b)), blank(t, ir.T(ir.I32, b)), blank(t, ir.T(ir.F32, b)), blank(t, ir.T(ir.I64, b)), blank(t, ir.T(ir.I32, b))}
	for i, d := range draws {
		args[0].F[i], args[1].I[i], args[2].F[i], args[3].I[i], args[4].I[i] = d.Temperature, int64(d.TopK), d.TopP, int64(d.Seed), int64(d.Pos)
	}
	return args
}

// randomDraws are parameters of so many rows: greedy rows, ordinary ones, extreme ones
// and some outside of their range.
func randomDraws(t testing.TB, r *rand.Rand, rows int) []*eval.Tensor {
	t.Helper()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	draws := make([]eval.Draw, rows)
	for i := range draws {
		draws[i] = eval.Draw{
			Temperature: pickOne[float32](r, 0, 1, 1, 0.7, 30, 0x1p-149, math.MaxFloat32), TopK: pickOne[int32](r, 0, 0, 1, 2, 5, 40, math.MaxInt32),
			TopP: pickOne[float32](r, 0, 0, 1, 0.5, 0.9, 0x1p-149), Seed: r.Uint64(), Pos: int32(r.Uint32()),
		}
		if r.IntN(8) == 0 {
			bad := eval.Draw{Temperature: pickOne(r, -1, inf, nan), TopK: -pickOne[int32](r, 1, math.MaxInt32), TopP: pickOne(r, -0.5, 1.5, nan)}
			switch r.IntN(3) {
			case 0:
				draws[i].Temperature = bad.Temperature
			case 1:
				draws[i].TopK = bad.TopK
			case 2:
				draws[i].TopP = bad.TopP
			}
		}
	}
	return drawArgs(t, draws)
}

// sampleWidths are numbers of columns about those where the search for an index, or
// the number of shards, changes.
func sampleWidths() []int {
	return []int{1, 2, 15, 16, 17, 33, 300, kernels.ShardWidth, 2*kernels.ShardWidth + 1}
}

func sampleCases(c *cases, rows int, widths ...int) {
	for _, n := range widths {
		for _, x := range append(hardLogits(c, rows, n), c.bf16(3, rows, n), c.f32(8, rows, n)) {
			c.add(nil, append([]*eval.Tensor{x}, randomDraws(c.t, c.r, rows)...)...)
			c.add(ir.A("valid", 1+c.r.IntN(n)), append([]*eval.Tensor{x}, randomDraws(c.t, c.r, rows)...)...)
		}
	}
}

func newSampleCases(t *testing.T) *cases {
	def, err := ir.Lookup("sample")
	if err != nil {
		t.Fatal(err)
	}
	return &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(9, 2)), def: def}
}

func TestSample(t *testing.T) {
	c := newSampleCases(t)
	sampleCases(c, 7, sampleWidths()...)
	sampleCases(c, 2, 129280)
	c.run(bothHosts...)
}

// The same on emulated chips, with every sanitizer.
func TestSampleEmulated(t *testing.T) {
	c := newSampleCases(t)
	if !long {
		c.every = 5
	}
	sampleCases(c, 4, sampleWidths()[:7]...)
	sampleCases(c, 2, kernels.ShardWidth+1)
	c.run(bothChips...)
}
