//go:build long

package emu_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// TestGoldenLong runs what TestGolden leaves out: the whole suite in both numerics, with
// the limits of the liberties that kernels take.
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

// TestGoldenWithoutLiberties: with the forms that take liberties disabled, operators,
// parts and single layers are within the limits that hold for all.
func TestGoldenWithoutLiberties(t *testing.T) {
	c := devicetest.Compiler(t)
	var free []string
	for _, op := range kernels.Ops() {
		for _, f := range kernels.For(op) {
			if f.Liberty != "" {
				free = append(free, f.Name)
			}
		}
	}
	for _, chip := range emu.Chips {
		for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
			t.Run(chip+"/"+string(n), func(t *testing.T) {
				devicetest.RunGolden(t, c, opener(chip, emu.Options{}), devicetest.Variant{
					Numerics: n, Disable: free,
					Only: func(check string) bool { return !strings.HasPrefix(check, "e2e/") },
				})
			})
		}
	}
}

// TestGoldenWithoutMatrixForms: with each form for matrix units disabled in turn the
// brief checks hold, with the form that comes after it.
func TestGoldenWithoutMatrixForms(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, op := range kernels.Ops() {
		for _, f := range kernels.For(op) {
			if !strings.HasSuffix(f.Name, "_mfma") {
				continue
			}
			t.Run(f.Name, func(t *testing.T) {
				devicetest.RunGolden(t, c, opener("gfx950", emu.Options{}), devicetest.Variant{
					Numerics: dsv4.Production, Only: brief, Disable: []string{f.Name},
					Lowered: func(m *plan.Module) {
						for _, k := range m.Kernels {
							if k.Form == f.Name {
								t.Errorf("kernel %s has the form", k.Symbol)
							}
						}
					},
				})
			})
		}
	}
}
