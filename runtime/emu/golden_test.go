package emu_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) { devicetest.Main(m) }

// opener opens emulated devices of a chip.
func opener(chip string, o emu.Options) devicetest.Opener {
	return func(c *codegen.Compiler) (device.Device, error) {
		l := emu.Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version, Store: c.Cache}
		return emu.Open(context.Background(), chip, l, o)
	}
}

// brief are the checks that do not take long: all of operators, and of the case with
// a prompt of one token.
func brief(check string) bool {
	return strings.HasPrefix(check, "op/") || strings.HasPrefix(check, "exact/") || strings.Contains(check, "/one/")
}

// TestGolden runs the part of the golden suite that is brief; the long tests run all
// of it.
func TestGolden(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		t.Run(chip, func(t *testing.T) {
			devicetest.RunGolden(t, c, opener(chip, emu.Options{}), devicetest.Variant{Numerics: dsv4.Production, Only: brief})
		})
	}
}

// TestGreedy: the first tokens of case short are the reference's, and the host's, as
// long as the reference's two largest logits are apart.
func TestGreedy(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, chip := range emu.Chips {
		t.Run(chip, func(t *testing.T) { greedy(t, c, opener(chip, emu.Options{})) })
	}
	t.Run("host", func(t *testing.T) {
		if _, err := host.Target(); err != nil {
			t.Skip(err)
		}
		greedy(t, c, func(*codegen.Compiler) (device.Device, error) { return host.Open() })
	})
}

func greedy(t *testing.T, c *codegen.Compiler, open devicetest.Opener) {
	t.Helper()
	const tokens, apart = 12, 0.5
	g, err := devicetest.Suite(t, c, open, devicetest.Variant{Numerics: dsv4.Production}).Greedy("short", tokens)
	if err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(g.Margins, func(m float32) bool { return m < apart })
	if n < 0 {
		n = tokens
	}
	if n < 2 {
		t.Fatalf("margins %v compare %d tokens only", g.Margins, n)
	}
	if d := cmp.Diff(g.Want[:n], g.Got[:n]); d != "" {
		t.Errorf("-reference +device:\n%s", d)
	}
}
