package host

import (
	"fmt"
	"syscall"
	"unsafe"
)

// memory is a block outside the Go heap: kernels keep its address while they
// run, and nothing moves or collects it.
type memory struct {
	bytes []byte
	size  int64 // what was asked for: a mapping has a byte at least
	fresh bool  // nobody has had access, so that it is the zeros that it was mapped as
}

func allocate(n int64) (*memory, error) {
	b, err := syscall.Mmap(-1, 0, int(max(n, 1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes: %w", n, err)
	}
	return &memory{b, n, true}, nil
}

// Free implements device.Memory.
func (m *memory) Free() error {
	b := m.bytes
	m.bytes, m.size = nil, 0
	return syscall.Munmap(b)
}

// Address implements device.Memory.
func (m *memory) Address() uint64 {
	m.fresh = false
	return uint64(uintptr(unsafe.Pointer(&m.bytes[0])))
}

// Size implements device.Memory.
func (m *memory) Size() int64 { return m.size }

// Bytes implements device.Memory.
func (m *memory) Bytes() []byte {
	m.fresh = false
	return m.bytes[:m.size]
}

// Write implements device.Memory.
func (m *memory) Write(offset int64, src []byte) error {
	b, err := m.at(offset, len(src))
	copy(b, src)
	return err
}

// Read implements device.Memory.
func (m *memory) Read(offset int64, dst []byte) error {
	b, err := m.at(offset, len(dst))
	copy(dst, b)
	return err
}

// Zero implements device.Memory. Zeros of a fresh mapping need no memory yet.
func (m *memory) Zero() error {
	if !m.fresh {
		clear(m.bytes)
	}
	return nil
}

// at is the view of a range.
func (m *memory) at(offset int64, n int) ([]byte, error) {
	if offset < 0 || offset > m.size-int64(n) {
		return nil, fmt.Errorf("bytes %d..%d of a block of %d", offset, offset+int64(n), m.size)
	}
	return m.Bytes()[offset:][:n], nil
}

// words views the block as 64-bit integers.
func (m *memory) words() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&m.bytes[0])), m.size/8)
}
