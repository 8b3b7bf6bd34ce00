package driver

import (
	"fmt"
	"slices"
	"strings"
)

// resource is what a device made and somebody has to close. Its fields are used
// on the device's thread only.
type resource struct {
	device  *Device
	what    string      // "buffer of 4096 bytes"
	needs   []*resource // what has to stay open while this is
	destroy func() error
	closed  bool
}

// own registers a resource; destroy gives back what it holds, on the device's
// thread.
func (d *Device) own(r *resource, what string, destroy func() error, needs ...*resource) {
	*r = resource{device: d, what: what, needs: needs, destroy: destroy}
	d.live = append(d.live, r)
}

// Close gives the object back to the driver. An object that another one still
// needs is not closed, and the
// error names that one. Closing again does nothing.
func (r *resource) Close() error {
	return r.device.Do(func() error {
		if r.closed {
			return nil
		}
		for _, other := range r.device.live {
			if slices.Contains(other.needs, r) {
				return fmt.Errorf("device %d: %s is in use by %s: close that first", r.device.index, r.what, other.what)
			}
		}
		return r.release()
	})
}

// release closes in any case: whatever the driver says, the handle is not used
// again.
func (r *resource) release() error {
	r.closed = true
	d := r.device
	d.live = slices.DeleteFunc(d.live, func(other *resource) bool { return other == r })
	if d.lost != nil {
		return nil // gone with the device; a call could wait for ever
	}
	return r.destroy()
}

// usable is an error if one of the resources was closed or belongs to another
// device: drivers read freed memory when they are given a stale handle.
func (d *Device) usable(list ...*resource) error {
	for _, r := range list {
		switch {
		case r.device != d:
			return fmt.Errorf("%s of device %d used on device %d", r.what, r.device.index, d.index)
		case r.closed:
			return fmt.Errorf("device %d: %s: %w", d.index, r.what, ErrClosed)
		}
	}
	return nil
}

// made is an object, or nil with the error that prevented it.
func made[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// LeakError lists what was still open when a device was closed. It was closed
// with the device.
type LeakError struct {
	Device int
	Open   []string // in the order of creation
}

func (e *LeakError) Error() string {
	return fmt.Sprintf("device %d closed with %d objects open: %s", e.Device, len(e.Open), strings.Join(e.Open, ", "))
}
