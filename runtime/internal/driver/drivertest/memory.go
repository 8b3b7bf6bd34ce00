package drivertest

import (
	"encoding/binary"
	"slices"
	"syscall"
	"unsafe"

	"github.com/kiln-project/kiln/runtime/internal/driver"
)

func (f *Fake) setDevice(device int) { f.current[driver.ThreadID()] = device }

// used is how many bytes of a device are allocated.
func (f *Fake) used(device int) int64 {
	n := int64(0)
	for _, b := range f.blocks {
		if b.device == device {
			n += int64(len(b.bytes))
		}
	}
	return n
}

// allocate maps n bytes; device is -1 for memory of the host.
func (f *Fake) allocate(to, n uintptr, device int) int32 {
	if code := f.forbidden(codeCaptureUnsupported); code != 0 {
		return code
	}
	if n == 0 {
		return codeInvalidValue
	}
	if device >= 0 && int64(n) > f.options.Devices[device].Memory-f.used(device) {
		return codeOutOfMemory
	}
	// Memory of a device is none of the process's: shared pages do not count as its
	// anonymous memory, which tests measure.
	how := syscall.MAP_PRIVATE
	if device >= 0 {
		how = syscall.MAP_SHARED
	}
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, how|syscall.MAP_ANON)
	if err != nil {
		return codeOutOfMemory
	}
	address := uintptr(unsafe.Pointer(&b[0]))
	f.blocks[address] = &memoryBlock{b, device}
	*wordAt(to) = address
	return 0
}

func (f *Fake) free(call string, address uintptr, host bool) int32 {
	if code := f.forbidden(codeCaptureUnsupported); code != 0 {
		return code
	}
	b := f.blocks[address]
	if b == nil || (b.device < 0) != host {
		f.problem("%s: 0x%x is no allocation of this kind", call, address)
		return codeInvalidValue
	}
	f.arrive() // freeing waits
	delete(f.blocks, address)
	if err := syscall.Munmap(b.bytes); err != nil {
		return codeInvalidValue
	}
	return 0
}

func (c *callbacks) HipMemGetInfo(free, total uintptr) int32 {
	device := c.fake.device()
	*wordAt(total) = uintptr(c.fake.options.Devices[device].Memory)
	*wordAt(free) = *wordAt(total) - uintptr(c.fake.used(device))
	return 0
}

func (c *callbacks) HipMalloc(to, n uintptr) int32 { return c.fake.allocate(to, n, c.fake.device()) }
func (c *callbacks) HipFree(p uintptr) int32       { return c.fake.free("hipFree", p, false) }
func (c *callbacks) HipHostFree(p uintptr) int32   { return c.fake.free("hipHostFree", p, true) }

func (c *callbacks) HipHostMalloc(to, n, flags uintptr) int32 {
	return c.fake.allocate(to, n, -1)
}

func (c *callbacks) HipHostGetDevicePointer(to, host, flags uintptr) int32 {
	if c.fake.memory(host, 1) == nil || flags != 0 {
		return codeInvalidValue
	}
	*wordAt(to) = host
	return 0
}

// copyNow copies without a stream. The side that is not the device's is memory of
// the process that the fake knows nothing of.
func (c *callbacks) copyNow(device, n uintptr, do func(device []byte)) int32 {
	if code := c.fake.forbidden(codeCaptureImplicit); code != 0 {
		return code
	}
	b := c.fake.memory(device, n)
	if b == nil {
		return codeInvalidValue
	}
	c.fake.arrive()
	do(b)
	return 0
}

// arrive ends what is on its way in the default stream.
func (f *Fake) arrive() {
	if f.pending != nil {
		f.pending()
		f.pending = nil
	}
}

// HipMemcpyHtoD returns when it has the bytes. They arrive when somebody waits for the
// default stream, and no other stream does.
func (c *callbacks) HipMemcpyHtoD(to, from, n uintptr) int32 {
	return c.copyNow(to, n, func(b []byte) {
		p := slices.Clone(bytesAt(from, int(n)))
		c.fake.pending = func() { copy(b, p) }
	})
}

func (c *callbacks) HipMemcpyDtoH(to, from, n uintptr) int32 {
	return c.copyNow(from, n, func(b []byte) { copy(bytesAt(to, int(n)), b) })
}

// enqueueCopy copies between places that are both known to the fake.
func (c *callbacks) enqueueCopy(call string, to, from, n, stream uintptr) int32 {
	dst, src := c.fake.memory(to, n), c.fake.memory(from, n)
	if dst == nil || src == nil {
		return codeInvalidValue
	}
	do := func() { copy(dst, src) }
	if c.fake.options.Forgets {
		do = func() {}
	}
	return c.fake.submit(call, stream, &node{do: do})
}

func (c *callbacks) HipMemcpyHtoDAsync(to, from, n, stream uintptr) int32 {
	return c.enqueueCopy("hipMemcpyHtoDAsync", to, from, n, stream)
}

func (c *callbacks) HipMemcpyDtoHAsync(to, from, n, stream uintptr) int32 {
	return c.enqueueCopy("hipMemcpyDtoHAsync", to, from, n, stream)
}

func (c *callbacks) HipMemcpyDtoDAsync(to, from, n, stream uintptr) int32 {
	return c.enqueueCopy("hipMemcpyDtoDAsync", to, from, n, stream)
}

func (c *callbacks) HipMemsetD8Async(to, value, n, stream uintptr) int32 {
	b := c.fake.memory(to, n)
	if b == nil {
		return codeInvalidValue
	}
	return c.fake.submit("hipMemsetD8Async", stream, &node{do: func() {
		for i := range b {
			b[i] = byte(value)
		}
	}})
}

func (c *callbacks) HipMemsetD32Async(to, value, n, stream uintptr) int32 {
	b := c.fake.memory(to, 4*n)
	if b == nil {
		return codeInvalidValue
	}
	return c.fake.submit("hipMemsetD32Async", stream, &node{do: func() {
		for i := 0; i < len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], uint32(value))
		}
	}})
}
