package kernels_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// warpOps are the ops with forms for NVIDIA's matrix units.
var warpOps = []string{
	"linear", "linear2", "linear3", "linear4", "grouped_linear", "block_linear", "split_linear", "expert", "moe_experts", "moe_experts_add", "gate", "hash_gate",
	"hc_pre", "hc_fused", "hc_fused_quant", "sparse_attention", "indexer_scores",
}

// TestWarps runs forms for NVIDIA's matrix units, as LLVM gets them, on simulated
// warps: some of the cases of TestComposites, and those about the tiles of matrix units.
func TestWarps(t *testing.T) {
	for _, op := range warpOps {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []struct {
			what string
			fill func(c *cases)
		}{{"", composites[op]}, {"tiles", matrixCases}} {
			if v.what == "tiles" && !tiled[op] {
				continue
			}
			t.Run(strings.TrimSpace(op+" "+v.what), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def, positive: v.what == "tiles"}
				if !long && v.what == "" {
					c.every = 2 * max(1, emulatedEvery[op])
				}
				v.fill(c)
				c.takeLiberty(op + "_mma")
				c.run("sm_90")
			})
		}
	}
}

// TestMatrixFormsWarps is TestMatrixFormsEmulated for NVIDIA's matrix units.
func TestMatrixFormsWarps(t *testing.T) {
	for _, m := range matrixFormCases {
		t.Run(m.op, func(t *testing.T) {
			def, err := ir.Lookup(m.op)
			if err != nil {
				t.Fatal(err)
			}
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def}
			m.fill(c)
			form := m.op + "_mma"
			c.takeLiberty(form)
			c.runEmulated("sm_90", form, m.set)
		})
	}
}
