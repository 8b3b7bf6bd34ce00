//go:build long

package cuda

import "testing"

// TestPlanFaultsFull has every launch and every allocation.
func TestPlanFaultsFull(t *testing.T) { planFaults(t, true) }
