//go:build long

package emu_test

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/runtime/emu"
)

func TestSpeculateIsGreedyLong(t *testing.T) {
	for _, chip := range emu.Chips {
		for _, batch := range []int{1, 3, 8} {
			for _, k := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s, batch %d, K=%d", chip, batch, k), func(t *testing.T) { speculate(t, chip, batch, k, 32) })
			}
		}
	}
}
