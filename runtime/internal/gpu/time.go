package gpu

import (
	"errors"
	"time"

	"github.com/kiln-project/kiln/runtime/device"
)

var (
	_ device.Timer    = (*Device)(nil)
	_ device.Replayer = (*Device)(nil)
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
