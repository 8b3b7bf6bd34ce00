package weights

import (
	"fmt"
	"os"
)

// openRegular opens a regular file and returns its size. The kind is checked
// first, because opening a pipe would wait for a writer.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open checkpoint: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open checkpoint: %w", err)
	}
	// The size comes from the open file: the name may point elsewhere by now.
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open checkpoint: %w", err)
	}
	return f, info.Size(), nil
}
