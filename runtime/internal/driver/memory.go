package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Buffer is memory of a device. Its address does not change.
type Buffer struct {
	resource
	address uint64
	size    int64
}

// Address is where the buffer starts, for kernels.
func (b *Buffer) Address() uint64 { return b.address }

// Size is in bytes.
func (b *Buffer) Size() int64 { return b.size }

// Allocate makes a buffer of n bytes, whose contents are undefined.
func (d *Device) Allocate(n int64) (*Buffer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("device %d: buffer of %d bytes", d.index, n)
	}
	b := &Buffer{size: n}
	return made(b, d.Do(func() error {
		var address uintptr
		if err := d.try(&d.lib.fn.Malloc, uintptr(unsafe.Pointer(&address)), uintptr(n)); err != nil {
			return d.allocation(n, err)
		}
		b.address = uint64(address)
		d.own(&b.resource, fmt.Sprintf("buffer of %d bytes", n), func() error { return d.try(&d.lib.fn.Free, address) })
		return nil
	}))
}

// allocation says how much there is, if that is what failed.
func (d *Device) allocation(n int64, err error) error {
	if !errors.Is(err, ErrOutOfMemory) {
		return fmt.Errorf("device %d: allocating %d bytes: %w", d.index, n, err)
	}
	free, total, e := d.Memory()
	if e != nil {
		return fmt.Errorf("device %d: allocating %d bytes: %w", d.index, n, err)
	}
	return fmt.Errorf("device %d: allocating %d bytes, %d of %d are free: %w", d.index, n, free, total, err)
}

// within checks a part of something that has size bytes.
func within(what string, offset, n, size int64) error {
	if offset < 0 || n < 0 || offset > size || n > size-offset {
		return fmt.Errorf("%d bytes at offset %d lie outside the %s", n, offset, what)
	}
	return nil
}

// Write copies p into the buffer and waits until it is there. It does not wait
// for the work of streams.
func (b *Buffer) Write(offset int64, p []byte) error {
	return b.transfer(&b.device.lib.fn.CopyToDevice, offset, p, func(device, host uintptr) (to, from uintptr) { return device, host })
}

// Read copies a part of the buffer into p. It does not wait for the work of
// streams.
func (b *Buffer) Read(offset int64, p []byte) error {
	return b.transfer(&b.device.lib.fn.CopyToHost, offset, p, func(device, host uintptr) (to, from uintptr) { return host, device })
}

func (b *Buffer) transfer(f *function, offset int64, p []byte, order func(device, host uintptr) (to, from uintptr)) error {
	d := b.device
	return d.Do(func() error {
		if err := errors.Join(d.usable(&b.resource), within(b.what, offset, int64(len(p)), b.size)); err != nil || len(p) == 0 {
			return err
		}
		// Heap memory does not move, and p outlives the call.
		to, from := order(uintptr(b.address)+uintptr(offset), at(p))
		if err := d.try(f, to, from, uintptr(len(p))); err != nil || f != &d.lib.fn.CopyToDevice {
			return err
		}
		// From pageable memory the copy returns when the driver has its own copy of the bytes,
		// which may be on their way still (CUDA driver API, "API synchronization behavior"). Streams
		// do not wait for the null stream, so a launch could come before them.
		const nullStream = 0
		return d.try(&d.lib.fn.StreamSync, nullStream)
	})
}

// Pinned is memory of the host that the device reads and writes, by copies or
// directly, coherently.
type Pinned struct {
	resource
	bytes   []byte
	address uint64
}

// Bytes is the memory. It must not be used after Close.
func (p *Pinned) Bytes() []byte { return p.bytes }

// Address is where the memory is for kernels.
func (p *Pinned) Address() uint64 { return p.address }

// pinnedFlags: usable from every context, mapped for the device and, on HIP,
// coherent without a flush (hipHostMallocPortable | Mapped | Coherent,
// CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP).
var pinnedFlags = [...]uintptr{HIP: 1 | 2 | 0x4000_0000, CUDA: 1 | 2}

// AllocatePinned makes n zeroed bytes of pinned memory.
func (d *Device) AllocatePinned(n int64) (*Pinned, error) {
	if n <= 0 {
		return nil, fmt.Errorf("device %d: pinned memory of %d bytes", d.index, n)
	}
	p := &Pinned{}
	return made(p, d.Do(func() error {
		var host, device uintptr
		if err := d.try(&d.lib.fn.HostMalloc, uintptr(unsafe.Pointer(&host)), uintptr(n), pinnedFlags[d.lib.Kind]); err != nil {
			return fmt.Errorf("device %d: allocating %d bytes of pinned host memory: %w", d.index, n, err)
		}
		free := func() error { return d.try(&d.lib.fn.HostFree, host) }
		if err := d.try(&d.lib.fn.HostAddress, uintptr(unsafe.Pointer(&device)), host, 0); err != nil {
			return errors.Join(err, free())
		}
		p.bytes, p.address = unsafe.Slice((*byte)(pointerTo(host)), n), uint64(device)
		clear(p.bytes)
		d.own(&p.resource, fmt.Sprintf("pinned memory of %d bytes", n), free)
		return nil
	}))
}
