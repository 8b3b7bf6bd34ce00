//go:build long

package hip

import "testing"

// TestPlanFaultsFull has every launch and every allocation.
func TestPlanFaultsFull(t *testing.T) { planFaults(t, true) }
