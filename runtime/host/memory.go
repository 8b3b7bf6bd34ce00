package host

import (
	"fmt"
	"syscall"
	"unsafe"
)

// memory is a block outside the Go heap: kernels keep its address while they
// run, and nothing moves or collects it.
type memory struct{ bytes []byte }

func allocate(n int64) (memory, error) {
	n = max(n, 1)
	b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return memory{}, fmt.Errorf("allocating %d bytes: %w", n, err)
	}
	return memory{b}, nil
}

func (m memory) free() {
	if m.bytes != nil {
		syscall.Munmap(m.bytes)
	}
}

func (m memory) address() uintptr { return uintptr(unsafe.Pointer(&m.bytes[0])) }

// words views the block as 64-bit integers.
func (m memory) words() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&m.bytes[0])), len(m.bytes)/8)
}
