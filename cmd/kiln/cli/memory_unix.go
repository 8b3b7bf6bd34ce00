//go:build unix && !linux

package cli

import (
	"fmt"
	"runtime"
	"syscall"
)

// peakMemory is the largest resident size of this process so far.
func peakMemory() string {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return "unknown"
	}
	bytes := int64(u.Maxrss) * 1024 // the BSDs count in KiB
	if runtime.GOOS == "darwin" {
		bytes = int64(u.Maxrss)
	}
	return fmt.Sprintf("%d MB", bytes/1_000_000)
}
