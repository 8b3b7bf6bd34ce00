package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/host"
)

func openDevice() (device.Device, error) { return host.Open() }

// TestSoak: requests beside each other give what each gives alone, and leave nothing.
func TestSoak(t *testing.T) { soak(t, 200) }

func soak(t *testing.T, requests int) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.Soak(t, best, openDevice, requests)
}

// TestServedFaults: a fault while requests run ends those that it must.
func TestServedFaults(t *testing.T) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.ServedFaults(t, best, openDevice)
}
