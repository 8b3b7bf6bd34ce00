package hip

import (
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// TestPlanFaults: after a fault the device works on, or closes with nothing left. The
// prologue and the epilogue are the machine code that a GPU would run.
func TestPlanFaults(t *testing.T) { planFaults(t, false) }

func planFaults(t *testing.T, full bool) {
	c := devicetest.Compiler(t)
	x := &emulated{loader: emu.Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version, Store: c.Cache}, programs: map[*object.CodeObject]*emu.Program{}}
	devicetest.GPUFaults(t, devicetest.GPU{
		Kind: driver.HIP, Arch: chip + ":sramecc+:xnack-", Chip: chip, Execute: x.execute,
		Open: func(library string, o PlanOptions) (device.Device, error) {
			l, err := Open(Options{Library: library})
			if err != nil {
				return nil, err
			}
			d, err := l.OpenDevice(0)
			if err != nil {
				return nil, err
			}
			return OpenForPlans(d, Assessment{}, o)
		},
	}, full)
	if x.err != nil {
		t.Error(x.err)
	}
}
