package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// TestExpertsTogether: experts' products by four warps together, with as many rows of x as
// either tile has, give a token the bits that it has alone, by one warp.
func TestExpertsTogether(t *testing.T) {
	const d, inner, choices = 1024, 1024, 2
	for _, s := range []struct{ experts, tokens int }{{3, 18}, {1, 34}} {
		if s.experts == 1 && onGPU == nil && !long { // simulated warps are slow
			continue
		}
		t.Run(fmt.Sprint(s.tokens), func(t *testing.T) {
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 9))}
			x, w1, w3, w2 := c.bf16(1, s.tokens, d), c.w4(s.experts, inner, d), c.w4(s.experts, inner, d), c.w4(s.experts, d, inner)
			ids := blank(t, ir.T(ir.I32, ir.Int(s.tokens), ir.Int(choices)))
			for i := range ids.I {
				ids.I[i] = int64(c.r.IntN(s.experts+1)) - 1 // some none, some twice
			}
			weights := c.f32(1, s.tokens, choices)
			add := func(x, ids, weights *eval.Tensor) {
				c.batch.op("moe_experts", ir.A("limit", 10.0, "act_block", 128), exact, x, w1, w3, w2, ids, weights)
			}
			add(x, ids, weights)
			alone := []int{0, 5, s.tokens - 1}
			for _, i := range alone {
				own := blank(t, ir.T(ir.I32, ir.Int(1), ir.Int(choices)))
				copy(own.I, ids.I[i*choices:])
				add(row(t, x, i), own, row(t, weights, i))
			}
			if recordOnly() {
				load(t, "sm_90a", c.graph())
				return
			}
			out := c.outputs("sm_90a")
			for n, i := range alone {
				if d := exact.compare(row(t, out["y0"], i), out[fmt.Sprintf("y%d", n+1)]); d != "" {
					t.Errorf("token %d: %s", i, d)
				}
			}
		})
	}
}

// Prefills of experts with e2m1 weights have warps together where the target does.
func TestExpertsTogetherChosen(t *testing.T) {
	for chip, want := range map[string]bool{"sm_90": false, "sm_90a": true} {
		for _, tokens := range []int{128, 2048} {
			m := newMatrixOps(t, chip)
			m.experts(tokens, 4096, 2048, 0, m.w4)
			found := false
			for _, k := range m.unit().Module.Kernels {
				found = found || strings.Contains(k.Spec, "twoWavestrue")
			}
			if found != want {
				t.Errorf("%s, %d tokens: warps together: %v", chip, tokens, found)
			}
		}
	}
}
