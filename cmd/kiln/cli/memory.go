package cli

import "fmt"

// peakMemory is peakBytes for people.
func peakMemory() string {
	n := peakBytes()
	if n == nil {
		return "unknown"
	}
	return fmt.Sprintf("%d MB", *n/1_000_000)
}
