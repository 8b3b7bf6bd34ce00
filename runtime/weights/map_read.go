//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package weights

import (
	"fmt"
	"io"
)

// mapping is the content of a file, read whole where syscall has no Mmap.
type mapping []byte

func mapFile(path string) (mapping, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

func (m mapping) unmap() error { return nil }
