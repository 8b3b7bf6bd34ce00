package driver

import (
	"bytes"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// pointer calls a C function that returns a pointer.
func (f *function) pointer(args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(f.address, args...)
	return r
}

// pointerTo turns an address of C's memory into a pointer; the collector has no
// part in it. It stays a call: Go 1.26 fails to compile some copies into which it
// is inlined.
//
//go:noinline
func pointerTo(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// text copies a C string, which may be null.
func text(address uintptr) string {
	if address == 0 {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(pointerTo(address), n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(pointerTo(address)), n))
}

// cut returns the C string at the start of b.
func cut(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// cstring is s with its final 0.
func cstring(s string) *byte { return &append([]byte(s), 0)[0] }

// block is zeroed memory outside of the Go heap, for what C keeps or follows
// pointers in.
type block struct {
	bytes []byte
	used  int
}

func newBlock(n int) (*block, error) {
	b, err := syscall.Mmap(-1, 0, max(n, 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes for the driver: %w", n, err)
	}
	return &block{bytes: b}, nil
}

func (b *block) free() error { return syscall.Munmap(b.bytes) }

// take cuts n bytes off, aligned to 16: enough for every type of C. The block has
// to be large enough: see room.
func (b *block) take(n int) []byte {
	from := b.used
	b.used += room(n)
	return b.bytes[from : from+n : from+n]
}

// room is what n bytes take up in a block.
func room(n int) int { return (n + 15) &^ 15 }

// at is the address of a part of a block, which may be empty.
func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
