package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) { devicetest.Main(m) }

// openHost is a devicetest.Opener.
func openHost(*codegen.Compiler) (device.Device, error) { return host.Open() }

// runGolden runs the whole golden suite on the host.
func runGolden(t *testing.T, c *codegen.Compiler, v devicetest.Variant) {
	t.Helper()
	devicetest.RunGolden(t, c, openHost, v)
}

// The default passes and kernels.
func TestGolden(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		t.Run(string(n), func(t *testing.T) { runGolden(t, c, devicetest.Variant{Numerics: n}) })
	}
}
