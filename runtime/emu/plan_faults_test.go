package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// TestFaults: after a fault the device works on, or closes with nothing left.
func TestFaults(t *testing.T) { faults(t, false) }

func faults(t *testing.T, full bool) {
	c := devicetest.Compiler(t)
	devicetest.CPUFaults(t, "gfx942", func() (device.Device, error) {
		return emu.Open(t.Context(), "gfx942", emu.Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version, Store: c.Cache}, emu.Options{})
	}, full)
}
