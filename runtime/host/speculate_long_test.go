//go:build long

package host_test

import "testing"

func TestSpeculateIsGreedyLong(t *testing.T) {
	var cases []speculativeCase
	for _, batch := range []int{1, 3, 8} {
		for _, k := range []int{1, 2, 3} {
			cases = append(cases, speculativeCase{batch, k, 256})
		}
	}
	speculateMatrix(t, cases)
}
