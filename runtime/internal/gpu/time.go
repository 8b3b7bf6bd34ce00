package gpu

import (
	"errors"
	"time"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

var (
	_ device.Timer        = (*Device)(nil)
	_ device.EagerLibrary = (*library)(nil)
)

// Elapsed implements device.Timer, by events of the stream. f runs on the device's
// thread.
func (d *Device) Elapsed(f func() error) (time.Duration, error) {
	var took time.Duration
	err := d.DoWithin(d.opts.Watchdog, func() (err error) {
		before, err := d.NewEvent()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, before.Close()) }()
		after, err := d.NewEvent()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, after.Close()) }()
		if err := d.flush(); err != nil {
			return err
		}
		if err := d.stream.Record(before); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		if err := d.stream.Record(after); err != nil {
			return err
		}
		if err := d.wait(); err != nil {
			return err
		}
		took, err = after.Since(before)
		return err
	})
	return took, err
}

// PrepareEager implements device.EagerLibrary.
func (l *library) PrepareEager(launches []device.Launch) (device.Sequence, error) {
	s := &sequence{d: l.d, launches: launches}
	if len(launches) == 0 {
		return s, nil
	}
	list := make([]driver.Launch, len(launches))
	for i := range launches {
		var err error
		if list[i], err = l.launch(&launches[i]); err != nil {
			return nil, launches[i].Failed(i, err)
		}
	}
	var err error
	s.list, err = l.d.Prepare(list)
	return s, s.named(err)
}
