//go:build !unix

package cli

// peakBytes is not known: the system has no getrusage.
func peakBytes() *int64 { return nil }
