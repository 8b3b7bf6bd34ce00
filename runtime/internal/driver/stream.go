package driver

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// Stream is a queue of work. What is put in is done in order; errors of the work
// itself appear at Sync, or at any later call.
type Stream struct {
	resource
	handle uintptr
}

// streamNonBlocking: the stream does not wait for the default stream
// (hipStreamNonBlocking, CU_STREAM_NON_BLOCKING).
const streamNonBlocking = 1

// defaultStream is the handle of the stream in which calls without one work.
const defaultStream = 0

// NewStream makes a stream.
func (d *Device) NewStream() (*Stream, error) {
	s := &Stream{}
	return made(s, d.Do(func() error {
		if err := d.try(&d.lib.fn.StreamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking); err != nil {
			return err
		}
		d.own(&s.resource, "stream", func() error { return d.try(&d.lib.fn.StreamDestroy, s.handle) })
		return nil
	}))
}

// with runs f on the device's thread if the stream and the others are usable.
func (s *Stream) with(f func(d *Device) error, others ...*resource) error {
	d := s.device
	return d.Do(func() error {
		if err := errors.Join(d.usable(&s.resource), d.usable(others...)); err != nil {
			return err
		}
		return f(d)
	})
}

// Run launches the kernels of a list, one after the other. The error is a
// *LaunchError; the launches before it are in the queue.
func (s *Stream) Run(q *Sequence) error {
	return s.with(func(d *Device) error {
		for i := range q.launches {
			if err := d.enqueue(i, &q.launches[i], s.handle); err != nil {
				return err
			}
		}
		return nil
	}, &q.resource)
}

// RunOne launches one kernel of a list.
func (s *Stream) RunOne(q *Sequence, index int) error {
	return s.with(func(d *Device) error { return d.enqueue(index, &q.launches[index], s.handle) }, &q.resource)
}

// Replay launches a graph.
func (s *Stream) Replay(e *Exec) error {
	return s.with(func(d *Device) error { return d.try(&d.lib.fn.GraphLaunch, e.handle, s.handle) }, &e.resource)
}

// ReplayInDo and SyncInDo are Replay and Sync for what is done at every step. They
// are to be called in Do, do not look which thread they are on, and allocate nothing.
func (s *Stream) ReplayInDo(e *Exec) error {
	d := s.device
	if err := d.inDo(); err != nil {
		return err
	}
	if err := d.usable(&s.resource, &e.resource); err != nil {
		return err
	}
	d.args[0], d.args[1] = e.handle, s.handle
	return d.try(&d.lib.fn.GraphLaunch, d.args[:2]...)
}

// SyncInDo is Sync: see ReplayInDo.
func (s *Stream) SyncInDo() error {
	d := s.device
	if err := d.inDo(); err != nil {
		return err
	}
	if err := d.usable(&s.resource); err != nil {
		return err
	}
	d.args[0] = s.handle
	return d.try(&d.lib.fn.StreamSync, d.args[:1]...)
}

// inDo is an error if the device's thread has no job, so that the caller is not on it.
func (d *Device) inDo() error {
	if !d.running.Load() {
		return fmt.Errorf("%s device %d: called outside of Do", d.lib.Kind, d.index)
	}
	return nil
}

// Sync waits until the queue is empty.
func (s *Stream) Sync() error {
	return s.with(func(d *Device) error { return d.try(&d.lib.fn.StreamSync, s.handle) })
}

// Upload enqueues a copy of n bytes to the device. The pinned memory must not
// change until it is done.
func (s *Stream) Upload(to *Buffer, toOffset int64, from *Pinned, fromOffset, n int64) error {
	return s.with(func(d *Device) error {
		err := errors.Join(within(to.what, toOffset, n, to.size), within(from.what, fromOffset, n, int64(len(from.bytes))))
		if err != nil || n == 0 {
			return err
		}
		return d.try(&d.lib.fn.EnqueueToDevice, uintptr(to.address)+uintptr(toOffset), at(from.bytes[fromOffset:]), uintptr(n), s.handle)
	}, &to.resource, &from.resource)
}

// Download enqueues a copy of n bytes from the device.
func (s *Stream) Download(to *Pinned, toOffset int64, from *Buffer, fromOffset, n int64) error {
	return s.with(func(d *Device) error {
		err := errors.Join(within(to.what, toOffset, n, int64(len(to.bytes))), within(from.what, fromOffset, n, from.size))
		if err != nil || n == 0 {
			return err
		}
		return d.try(&d.lib.fn.EnqueueToHost, at(to.bytes[toOffset:]), uintptr(from.address)+uintptr(fromOffset), uintptr(n), s.handle)
	}, &to.resource, &from.resource)
}

// Copy enqueues a copy of n bytes within the device.
func (s *Stream) Copy(to *Buffer, toOffset int64, from *Buffer, fromOffset, n int64) error {
	return s.with(func(d *Device) error {
		err := errors.Join(within(to.what, toOffset, n, to.size), within(from.what, fromOffset, n, from.size))
		if err != nil || n == 0 {
			return err
		}
		return d.try(&d.lib.fn.EnqueueCopy, uintptr(to.address)+uintptr(toOffset), uintptr(from.address)+uintptr(fromOffset), uintptr(n), s.handle)
	}, &to.resource, &from.resource)
}

// Fill enqueues setting n bytes to a value.
func (s *Stream) Fill(b *Buffer, offset, n int64, value byte) error {
	return s.with(func(d *Device) error {
		if err := within(b.what, offset, n, b.size); err != nil || n == 0 {
			return err
		}
		return d.try(&d.lib.fn.EnqueueFill8, uintptr(b.address)+uintptr(offset), uintptr(value), uintptr(n), s.handle)
	}, &b.resource)
}

// Fill32 enqueues setting n words of 32 bits; the offset is in bytes, a multiple
// of 4.
func (s *Stream) Fill32(b *Buffer, offset, n int64, value uint32) error {
	return s.with(func(d *Device) error {
		if offset%4 != 0 || n > b.size/4 {
			return fmt.Errorf("%d words at offset %d do not fit into the %s, aligned to 4", n, offset, b.what)
		}
		if err := within(b.what, offset, 4*n, b.size); err != nil || n == 0 {
			return err
		}
		return d.try(&d.lib.fn.EnqueueFill32, uintptr(b.address)+uintptr(offset), uintptr(value), uintptr(n), s.handle)
	}, &b.resource)
}

// Event is a point in a stream's work.
type Event struct {
	resource
	handle uintptr
}

// NewEvent makes an event that takes times.
func (d *Device) NewEvent() (*Event, error) {
	e := &Event{}
	return made(e, d.Do(func() error {
		if err := d.try(&d.lib.fn.EventCreate, uintptr(unsafe.Pointer(&e.handle)), 0); err != nil {
			return err
		}
		d.own(&e.resource, "event", func() error { return d.try(&d.lib.fn.EventDestroy, e.handle) })
		return nil
	}))
}

// Record puts the event behind what is in the queue.
func (s *Stream) Record(e *Event) error {
	return s.with(func(d *Device) error { return d.try(&d.lib.fn.EventRecord, e.handle, s.handle) }, &e.resource)
}

// Wait lets what is enqueued from now on wait for the event.
func (s *Stream) Wait(e *Event) error {
	return s.with(func(d *Device) error { return d.try(&d.lib.fn.StreamWait, s.handle, e.handle, 0) }, &e.resource)
}

// Sync waits for the event.
func (e *Event) Sync() error {
	d := e.device
	return d.Do(func() error {
		if err := d.usable(&e.resource); err != nil {
			return err
		}
		return d.try(&d.lib.fn.EventSync, e.handle)
	})
}

// Since is the device's time between two recorded events that have happened.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	var ms float32
	d := e.device
	err := d.Do(func() error {
		if err := d.usable(&e.resource, &earlier.resource); err != nil {
			return err
		}
		return d.try(&d.lib.fn.EventElapsed, uintptr(unsafe.Pointer(&ms)), earlier.handle, e.handle)
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}
