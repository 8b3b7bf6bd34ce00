//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package weights

import (
	"fmt"
	"math"
	"syscall"
)

// mapping is the read-only content of a file.
type mapping []byte

// mapFile maps a regular file into memory. The mapping
// outlives the descriptor and the file's name.
func mapFile(path string) (mapping, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size == 0 {
		return nil, nil // the system maps no empty ranges; the parser refuses the file
	}
	if uint64(size) > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes do not fit the address space", path, size)
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return m, nil
}

func (m mapping) unmap() error {
	if m == nil {
		return nil
	}
	return syscall.Munmap(m)
}
