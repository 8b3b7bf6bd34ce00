//go:build long

package cuda

import "testing"

// A checkpoint of 8 GB takes no more than a smaller one.
func TestLoadingPeakLong(t *testing.T) {
	loadingPeak(t, 8_000_000_000, 96<<20+96<<20)
}
