//go:build long

package host_test

import "testing"

// TestSoakLong is the soak of 10,000 requests, 2,000 of them by speculative steps.
func TestSoakLong(t *testing.T) { soak(t, 8_000, 2_000) }

func TestServedSpeculatesLong(t *testing.T) { servedSpeculates(t, 400) }
