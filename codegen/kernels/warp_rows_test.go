package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// rowWarps are ops without products, whose forms for all targets have code of their own
// for GPUs, or for NVIDIA's.
var rowWarps = []string{"topk_rows", "entry_rows", "rope_row", "rms_norm_rope", "head_rms_norm_rope", "rms_norm_quant", "compress", "history_rows"}

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
			composites[op](c)
			c.run("sm_90")
		})
	}
}
