//go:build long

package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/engine"
)

// TestSanitizedModelLong: every entry, in its smallest bucket and in a padded larger
// one.
func TestSanitizedModelLong(t *testing.T) {
	sanitized(t, []step{
		{entry: "prefill", tokens: []int{1}, shape: engine.Shape{T: 1, B: 1, O: 1, P: 1}, draft: true},
		{entry: "prefill", tokens: []int{18, 9, 2}, shape: engine.Shape{T: 40, B: 4, O: 5, P: 2}, draft: true},
		{entry: "decode", tokens: []int{1}, shape: engine.Shape{T: 1, B: 1, O: 1, P: 1}, draft: true},
		{entry: "decode", tokens: []int{1, 1, 1}, shape: engine.Shape{T: 5, B: 5, O: 5, P: 2}, draft: true},
		{entry: "verify", tokens: []int{2}, shape: engine.Shape{T: 2, B: 1, O: 2, P: 1}, draft: true},
		{entry: "verify", tokens: []int{3, 3, 3}, shape: engine.Shape{T: 15, B: 5, O: 15, P: 2}},
	})
}

// The whole model on emulated chips, as on the host.
func TestInvariance(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		open := func(t *testing.T) *devicetest.Tiny { return openTiny(t, c, chip, 0) }
		t.Run(chip+"/chunks and batches", func(t *testing.T) { devicetest.ChunksAndBatches(t, open(t), 7, 32) })
		t.Run(chip+"/padding", func(t *testing.T) { devicetest.PaddingWritesNothing(t, open(t)) })
		t.Run(chip+"/verify", func(t *testing.T) { devicetest.VerifyEqualsDecode(t, open(t)) })
	}
}

func TestPackedPoolsLong(t *testing.T) { packedPools(t, emu.Chips) }
