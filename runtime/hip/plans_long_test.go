//go:build long

package hip

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// TestGolden runs a case of the goldens on HIP, with AMD's machine code.
func TestGolden(t *testing.T) {
	c := devicetest.Compiler(t)
	open := emulatedGPU(t, c)
	devicetest.RunGolden(t, c, func(*codegen.Compiler) (device.Device, error) { return open(PlanOptions{}) }, devicetest.Variant{
		Numerics: dsv4.Production, Only: func(check string) bool {
			return strings.HasPrefix(check, "e2e/one/") && !strings.HasSuffix(check, "greedy")
		},
	})
}

// TestGraphsLong goes on for some steps, and compares batches.
func TestGraphsLong(t *testing.T) {
	graphs(t, func(eager, graph *devicetest.Runner) {
		devicetest.Replays(t, eager, graph, 4)
		devicetest.Batches(t, eager, graph, 4)
	})
}

// TestAlternatesLong has all layers, and steps of 1 to 3 drafts.
func TestAlternatesLong(t *testing.T) { alternates(t, 6, 6, 1, 2, 3) }
