//go:build long

package host_test

import "testing"

// TestFaultsFull has every launch and every allocation.
func TestFaultsFull(t *testing.T) { faults(t, true) }
