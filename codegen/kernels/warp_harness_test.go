package kernels_test

import (
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/warpsim"
	"github.com/kiln-project/kiln/runtime/device"
)

// buildWarps has a unit for an NVIDIA GPU executed by warpsim, as the IR that it is
// before LLVM; the caller closes the model.
func buildWarps(t testing.TB, u *codegen.Unit) *device.Model {
	t.Helper()
	dev := warpsim.Open(u.Target.CPU)
	t.Cleanup(func() { dev.Close() })
	m, err := device.NewModel(dev, []byte(mergedIR(u.Kernels)), u.Module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
