package driver

import (
	"fmt"
	"time"
)

// DoWithin is Do for what may never end on the device: after limit it gives up, with
// an error for which errors.Is(err, ErrStuck) holds. The call goes on, on the
// device's thread; Do refuses all others from then on. Zero is no limit.
func (d *Device) DoWithin(limit time.Duration, f func() error) error {
	if limit == 0 || d.current() {
		return d.Do(f)
	}
	if err := d.Answers(); err != nil {
		return err
	}
	return d.send(limit, f)
}

// giveUp ends the use of the device.
func (d *Device) giveUp(limit time.Duration) error {
	d.stuck.Do(func() { close(d.gaveUp) })
	return fmt.Errorf("%s device %d: not done after %s: %w", d.lib.Kind, d.index, limit, ErrStuck)
}

// Answers is an error if the device's thread is not to be waited for.
func (d *Device) Answers() error {
	select {
	case <-d.gaveUp:
		return fmt.Errorf("%s device %d: %w", d.lib.Kind, d.index, ErrStuck)
	default:
		return nil
	}
}
