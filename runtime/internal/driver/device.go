package driver

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Device is an open GPU. All its calls, and those of everything it makes, happen
// on its own operating system thread; the methods may be called from any
// goroutine.
type Device struct {
	lib   *Library
	index int
	info  Info

	thread  int // the operating system's number
	hop     *hop
	running atomic.Bool   // the thread has a job
	done    chan struct{} // closed when the thread has ended
	closed  atomic.Bool   // the thread may serve others again
	stuck   sync.Once     // DoWithin gave up
	gaveUp  chan struct{} // closed then

	// Of the thread only.
	handle  int32 // CUdevice, hipDevice_t
	context uintptr
	live    []*resource // in the order of creation
	lost    error       // the call that found out
	args    [11]uintptr // of what is called often, a kernel launch has the most
}

// OpenDevice starts the thread of a device and makes the device current on it.
func (l *Library) OpenDevice(index int) (*Device, error) {
	n, err := l.DeviceCount()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("%s device %d does not exist: there are %d, numbered from 0", l.Kind, index, n)
	}
	d := &Device{lib: l, index: index, hop: newHop(), done: make(chan struct{}), gaveUp: make(chan struct{})}
	started := make(chan struct{})
	go d.serve(started)
	<-started
	if err := d.Do(d.open); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) open() error {
	if err := d.try(&d.lib.fn.DeviceGet, uintptr(unsafe.Pointer(&d.handle)), uintptr(d.index)); err != nil {
		return err
	}
	switch d.lib.Kind {
	case HIP:
		if err := d.try(&d.lib.fn.SetDevice, uintptr(d.handle)); err != nil {
			return err
		}
	case CUDA:
		var context uintptr
		if err := d.try(&d.lib.fn.ContextRetain, uintptr(unsafe.Pointer(&context)), uintptr(d.handle)); err != nil {
			return err
		}
		d.context = context
		if err := d.try(&d.lib.fn.ContextSet, context); err != nil {
			return err
		}
	}
	return d.examine()
}

// serve is the thread of the device.
func (d *Device) serve(started chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(d.done)
	defer d.closed.Store(true) // also if a job ends the goroutine
	d.thread = ThreadID()
	close(started)
	for !d.closed.Load() {
		f := d.hop.next()
		d.running.Store(true)
		err := f()
		d.running.Store(false)
		d.hop.done(err)
	}
}

// current tells whether the caller is on the device's thread.
func (d *Device) current() bool {
	return d.running.Load() && ThreadID() == d.thread && !d.closed.Load()
}

// Do runs f on the device's thread: several calls in a row, without a change of
// threads between them. Methods of the device and its objects may be called in f;
// Close of the device may not.
func (d *Device) Do(f func() error) error {
	if d.current() {
		return f()
	}
	if err := d.Answers(); err != nil {
		return err
	}
	return d.send(0, f)
}

// Close closes the device. What it made and is still open is closed too, latest
// first, and is a *LeakError.
func (d *Device) Close() error {
	if d.current() {
		return fmt.Errorf("%s device %d: Close called on its own thread, in Do", d.lib.Kind, d.index)
	}
	err := d.Do(func() error {
		defer d.closed.Store(true)
		var errs []error
		leak := &LeakError{Device: d.index}
		for _, r := range d.live {
			leak.Open = append(leak.Open, r.what)
		}
		for _, r := range slices.Backward(slices.Clone(d.live)) {
			errs = append(errs, r.release())
		}
		if leak.Open != nil {
			errs = append(errs, leak)
		}
		if d.context != 0 && d.lost == nil {
			errs = append(errs, d.try(&d.lib.fn.ContextSet, 0), d.try(&d.lib.fn.ContextRelease, uintptr(d.handle)))
		}
		return errors.Join(errs...)
	})
	if d.closed.Load() { // else it could not be closed
		<-d.done
	}
	return err
}

// Open lists what the device made and is not closed, in the order of creation.
func (d *Device) Open() ([]string, error) {
	var list []string
	err := d.Do(func() error {
		for _, r := range d.live {
			list = append(list, r.what)
		}
		return nil
	})
	return list, err
}

// Info describes the device as it was when it was opened.
func (d *Device) Info() Info { return d.info }

// Library is the library that drives the device.
func (d *Device) Library() *Library { return d.lib }

// try calls a C function on the device's thread and makes an error of a result
// that is not 0. After a fault that ends the device's context nothing is called
// any more.
//
//go:uintptrescapes
func (d *Device) try(f *function, args ...uintptr) error {
	if d.lost != nil {
		return fmt.Errorf("%s: %s device %d was lost before: %w", f.name, d.lib.Kind, d.index, d.lost)
	}
	return d.check(f, f.call(args...))
}

func (d *Device) check(f *function, code int) error {
	if code == 0 {
		return nil
	}
	err := d.lib.failure(f, code)
	if errors.Is(err, ErrDeviceLost) {
		d.lost = err
	}
	return err
}

// Memory asks for the free and total bytes of the device.
func (d *Device) Memory() (free, total uint64, err error) {
	err = d.Do(func() error {
		return d.try(&d.lib.fn.MemoryInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	return free, total, err
}
