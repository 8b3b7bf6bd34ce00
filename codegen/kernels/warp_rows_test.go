package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// rowWarps are ops without products, whose forms for all targets have code of their own
// for GPUs, or for NVIDIA's.
var rowWarps = []string{"topk_rows", "entry_rows", "rope", "rope_row", "rms_norm_rope", "head_rms_norm_rope", "rms_norm_quant", "compress", "compress_row", "history_rows", "argmax", "hc_head", "indexer_scores", "gate"}

// TestRowsWarps runs them on simulated warps.
func TestRowsWarps(t *testing.T) {
	for _, op := range rowWarps {
		t.Run(op, func(t *testing.T) {
			def, err := ir.Lookup(op)
			if err != nil {
				t.Fatal(err)
			}
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def}
			if onGPU == nil && !long { // simulated warps are slow
				c.every, c.most = max(1, emulatedEvery[op]/3), 25000
			}
			fill := composites[op]
			switch op {
			case "argmax":
				fill, c.every, c.most = argmaxVectorCases, 0, 0
			case "indexer_scores":
				fill, c.every, c.most = longScoresCases, 0, 0
			}
			fill(c)
			c.run("sm_90")
		})
	}
}

// argmaxVectorCases are rows that lie in vectors, with batches of one vector of each
// lane and of several, and groups with one batch and several.
func argmaxVectorCases(c *cases) {
	for _, s := range [][2]int{{3, 8}, {2, 2056}, {1, 10000}, {3, 4100}} {
		for _, x := range hardLogits(c, s[0], s[1]) {
			c.add(nil, x)
			if s[1]%8 == 0 {
				c.add(nil, c.rounded(x))
			}
		}
	}
	c.add(nil, c.f32(1, 265, 8196))
	c.add(nil, c.bf16(1, 20, 16384*8+8))
}

// rounded is x in bf16.
func (c *cases) rounded(x *eval.Tensor) *eval.Tensor {
	y := blank(c.t, ir.T(ir.BF16, intDims(x.Shape)...))
	for i, v := range x.F {
		y.F[i] = num.RoundBF16(v)
	}
	return y
}

// longScoresCases are long rows of entries, most of which are not there yet.
func longScoresCases(c *cases) {
	const t, n = 3, 90001
	q, w, keys := c.bf16(1, t, 4, 32), c.bf16(1, t, 4), c.bf16(1, 900, 32)
	rows := none(c.rows(900, t, n))
	for i := range t {
		for j := range 400 * i {
			rows.I[i*n+j] = int64(c.r.IntN(901)) - 1
		}
		rows.I[i*n+n-1] = int64(i)
	}
	c.add(nil, q, w, keys, rows)
}
