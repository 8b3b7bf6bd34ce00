package cuda

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// TestPlanFaults: after a fault the device works on, or closes with nothing left. PTX
// cannot be run here: what kernels compute is invented.
func TestPlanFaults(t *testing.T) { planFaults(t, false) }

func planFaults(t *testing.T, full bool) {
	devicetest.GPUFaults(t, devicetest.GPU{
		Kind: driver.CUDA, Arch: "sm_90", Chip: "sm_90", Execute: devicetest.Invent,
		Open: func(library string, o PlanOptions) (device.Device, error) {
			l, err := Open(Options{Library: library})
			if err != nil {
				return nil, err
			}
			d, err := l.OpenDevice(0)
			if err != nil {
				return nil, err
			}
			return OpenForPlans(d, o)
		},
	}, full)
}
