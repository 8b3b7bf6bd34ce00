package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// TestGreedyMatrix: of the greedy matrix what is small, and one row of 32,000 columns,
// which are 16 shards. The long tests run more of it.
func TestGreedyMatrix(t *testing.T) { greedyMatrix(t, 32_000, 300) }

func greedyMatrix(t *testing.T, most, fused int) {
	t.Helper()
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		t.Run(chip, func(t *testing.T) {
			n := devicetest.GreedyMatrix{Most: most, MostFused: fused}.Run(t, c, opener(chip, emu.Options{}))
			t.Logf("ARGMAX MATRIX: %d cases", n)
		})
	}
}
