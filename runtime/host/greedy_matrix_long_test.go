//go:build long

package host_test

import "testing"

func TestGreedyMatrixInFull(t *testing.T) { greedyMatrix(t, 0) }
