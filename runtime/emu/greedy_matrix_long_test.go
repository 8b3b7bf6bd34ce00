//go:build long

package emu_test

import "testing"

// The whole matrix is for GPUs: here up to 33 rows of the largest vocabulary.
func TestGreedyMatrixUpTo33Rows(t *testing.T) { greedyMatrix(t, 33*129_280, 10_000) }
