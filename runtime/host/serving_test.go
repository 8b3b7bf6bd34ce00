package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/host"
)

func openDevice() (device.Device, error) { return host.Open() }

// TestSoak: 500 requests beside each other, 100 of them by speculative steps, give what
// each gives alone, and leave nothing.
func TestSoak(t *testing.T) { soak(t, 400, 100) }

func soak(t *testing.T, plain, speculative int) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.Soak(t, best, openDevice, plain, speculative)
}

// TestServedFaults: a fault while requests run ends those that it must.
func TestServedFaults(t *testing.T) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.ServedFaults(t, best, openDevice)
}

// TestServedSpeculates: requests that speculate beside each other give the tokens of plain
// steps, whatever is beside them.
func TestServedSpeculates(t *testing.T) { servedSpeculates(t, 30) }

func servedSpeculates(t *testing.T, requests int) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	devicetest.ServedSpeculates(t, best, openDevice, requests)
}
