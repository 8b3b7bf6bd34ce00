package driver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// A call that does not end is given up; the device refuses all others, at once, also
// when it has ended after all.
func TestDoWithin(t *testing.T) {
	d := openDevice(t, newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}}))
	if err := d.DoWithin(time.Hour, func() error { return driver.ErrClosed }); err != driver.ErrClosed {
		t.Errorf("a call that ends: %v", err)
	}
	ended, came := make(chan struct{}), make(chan struct{})
	if err := d.DoWithin(time.Millisecond, func() error { <-ended; close(came); return nil }); !errors.Is(err, driver.ErrStuck) {
		t.Fatalf("a call that does not end: %v", err)
	}
	for range 2 {
		if _, err := d.Allocate(1); !errors.Is(err, driver.ErrStuck) {
			t.Errorf("a call after it: %v", err)
		}
		if err := d.Close(); !errors.Is(err, driver.ErrStuck) {
			t.Errorf("closing: %v", err)
		}
		if ended != nil {
			close(ended)
			<-came
			ended = nil
		}
	}
}
