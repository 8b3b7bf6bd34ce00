//go:build !unix

package cli

// peakMemory is not known: the system has no getrusage.
func peakMemory() string { return "unknown" }
