package device

import (
	"fmt"
	"syscall"
	"unsafe"
)

// Mapped is a block of this process's memory outside the Go heap: kernels keep its
// address while they run, and nothing moves or collects it. It is the Memory of
// devices on the CPU.
type Mapped struct {
	whole []byte
	size  int64 // what was asked for: a mapping has a byte at least
	fresh bool  // nobody has had access, so that it is the zeros that it was mapped as
}

// Map makes a block of zeros, of n bytes.
func Map(n int64) (*Mapped, error) {
	if n < 0 {
		return nil, fmt.Errorf("allocating %d bytes", n)
	}
	b, err := syscall.Mmap(-1, 0, int(max(n, 1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes: %w", n, err)
	}
	return &Mapped{b, n, true}, nil
}

// Whole is the mapping: the block, or a byte if that has none. Whoever writes to it
// has called another method that gives access.
func (m *Mapped) Whole() []byte { return m.whole }

// Address implements Memory.
func (m *Mapped) Address() uint64 {
	m.fresh = false
	return uint64(uintptr(unsafe.Pointer(&m.whole[0])))
}

// Size implements Memory.
func (m *Mapped) Size() int64 { return m.size }

// Bytes implements Memory.
func (m *Mapped) Bytes() []byte {
	m.fresh = false
	return m.whole[:m.size]
}

// Write implements Memory.
func (m *Mapped) Write(offset int64, src []byte) error {
	b, err := m.At(offset, len(src))
	copy(b, src)
	return err
}

// Read implements Memory.
func (m *Mapped) Read(offset int64, dst []byte) error {
	b, err := m.At(offset, len(dst))
	copy(dst, b)
	return err
}

// Zero implements Memory. Zeros of a fresh mapping need no memory yet.
func (m *Mapped) Zero() error {
	if !m.fresh {
		clear(m.whole)
	}
	return nil
}

// Free implements Memory.
func (m *Mapped) Free() error {
	b := m.whole
	m.whole, m.size = nil, 0
	return syscall.Munmap(b)
}

// At is the view of a range; one outside the block is an error.
func (m *Mapped) At(offset int64, n int) ([]byte, error) {
	if offset < 0 || offset > m.size-int64(n) {
		return nil, fmt.Errorf("bytes %d..%d of a block of %d", offset, offset+int64(n), m.size)
	}
	return m.Bytes()[offset:][:n], nil
}

// Words views the block as 64-bit integers.
func (m *Mapped) Words() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(&m.whole[0])), m.size/8)
}
