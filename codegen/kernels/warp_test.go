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
	"hc_pre", "hc_fused", "hc_fused_quant", "sparse_attention",
}

// matrixFills are the cases of matrixFormCases.
var matrixFills = func() map[string]func(c *cases) {
	out := map[string]func(c *cases){}
	for _, m := range matrixFormCases {
		out[m.op] = m.fill
	}
	return out
}()

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
				if v.fill = matrixFills[op]; v.fill == nil {
					continue
				}
			}
			t.Run(strings.TrimSpace(op+" "+v.what), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def, positive: v.what == "tiles" && tiled[op]}
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
