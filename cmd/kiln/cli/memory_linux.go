package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakMemory is the largest resident size of this process so far. It is that of
// the address space: getrusage counts the parent's, too, from before the exec.
func peakMemory() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return fmt.Sprintf("%d MB", kib*1024/1_000_000)
			}
		}
	}
	return "unknown"
}
