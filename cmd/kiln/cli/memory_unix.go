//go:build unix && !linux

package cli

import (
	"runtime"
	"syscall"
)

// peakBytes is the largest resident size of this process so far; nil if it is not
// known.
func peakBytes() *int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return nil
	}
	bytes := int64(u.Maxrss) * 1024 // the BSDs count in KiB
	if runtime.GOOS == "darwin" {
		bytes = int64(u.Maxrss)
	}
	return &bytes
}
