package cli

import (
	"os"
	"strconv"
	"strings"
)

// peakBytes is the largest resident size of this process so far; nil if it is not
// known. It is that of the address space: getrusage counts the parent's, too, from
// before the exec.
func peakBytes() *int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return ptrTo(kib * 1024)
			}
		}
	}
	return nil
}
