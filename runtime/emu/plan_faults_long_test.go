//go:build long

package emu_test

import "testing"

// TestFaultsFull has every launch and every allocation.
func TestFaultsFull(t *testing.T) { faults(t, true) }
