package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/host"
)

// TestFaults: after a fault the device works on, or closes with nothing left.
func TestFaults(t *testing.T) { faults(t, false) }

func faults(t *testing.T, full bool) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.CPUFaults(t, best, func() (device.Device, error) { return host.Open() }, full)
}
