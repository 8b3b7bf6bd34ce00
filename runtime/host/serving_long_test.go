//go:build long

package host_test

import "testing"

// TestSoakLong is the soak of 10,000 requests.
func TestSoakLong(t *testing.T) { soak(t, 10_000) }
