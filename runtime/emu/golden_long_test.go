//go:build long

package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// TestGoldenLong runs what TestGolden leaves out: the whole suite in both numerics.
func TestGoldenLong(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
			t.Run(chip+"/"+string(n), func(t *testing.T) {
				rest := func(check string) bool { return n == dsv4.Unrounded || !brief(check) }
				devicetest.RunGolden(t, c, opener(chip, emu.Options{}), devicetest.Variant{Numerics: n, Only: rest})
			})
		}
	}
}
