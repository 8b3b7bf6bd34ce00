package kernels_test

import (
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/warpsim"
)

// onGPU, with tag gpu, loads units on a GPU, or, if that is what it was told, compiles
// and keeps them for one: then there is no model. It is nil where warps are simulated.
var onGPU func(t testing.TB, u *codegen.Unit) *device.Model

// recordOnly reports that onGPU keeps units to be run elsewhere.
var recordOnly = func() bool { return false }

// warpForms are the forms of all code that warps ran.
var warpForms = map[string]bool{}

// buildWarps has a unit for an NVIDIA GPU executed by warpsim, as the IR that it is
// before LLVM, or by a GPU; the caller closes the model.
func buildWarps(t testing.TB, u *codegen.Unit) *device.Model {
	t.Helper()
	for _, k := range u.Module.Kernels {
		warpForms[k.Form] = true
	}
	if onGPU != nil {
		return onGPU(t, u)
	}
	dev := warpsim.Open(u.Target.CPU)
	t.Cleanup(func() { dev.Close() })
	m, err := device.NewModel(dev, []byte(mergedIR(u.Kernels)), u.Module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
