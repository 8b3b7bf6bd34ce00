package gpu

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

var _ device.Uploader = (*Device)(nil)

// ring is pinned memory in slots. The copies of a slot go into the device's stream,
// and an event behind them tells when they are done.
type ring struct {
	d      *Device
	pinned *driver.Pinned
	done   []*driver.Event // by slot
	bytes  int64
}

// NewRing implements device.Uploader.
func (d *Device) NewRing(slots int, bytes int64) (device.Ring, error) {
	r := &ring{d: d, bytes: bytes}
	var err error
	if r.pinned, err = d.AllocatePinned(int64(slots) * bytes); err != nil {
		return nil, err
	}
	for range slots {
		e, err := d.NewEvent()
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.done = append(r.done, e)
	}
	return r, nil
}

// Slot implements device.Ring.
func (r *ring) Slot(i int) []byte { return r.pinned.Bytes()[int64(i)*r.bytes:][:r.bytes] }

// Send implements device.Ring.
func (r *ring) Send(i int, list []device.Transfer) error {
	return r.d.Do(func() error {
		if err := r.d.flush(); err != nil {
			return err
		}
		for _, t := range list {
			m, ok := t.To.(*memory)
			if !ok || m.d != r.d {
				return fmt.Errorf("a copy to memory of another device (%T)", t.To)
			}
			if err := m.within(t.Offset, int(t.Bytes)); err != nil {
				return err
			}
			if err := r.d.stream.Upload(m.buffer, t.Offset, r.pinned, int64(i)*r.bytes+t.From, t.Bytes); err != nil {
				return err
			}
		}
		return r.d.stream.Record(r.done[i])
	})
}

// Wait implements device.Ring.
func (r *ring) Wait(i int) error { return r.done[i].Sync() }

// Close implements device.Ring.
func (r *ring) Close() error {
	var errs []error
	// Copies may be under way. With a lost device all is gone, and who lost it knows.
	if err := r.d.Sync(); !errors.Is(err, driver.ErrDeviceLost) && !errors.Is(err, driver.ErrStuck) {
		errs = append(errs, err)
	}
	for _, e := range r.done {
		errs = append(errs, e.Close())
	}
	return errors.Join(append(errs, r.pinned.Close())...)
}
