//go:build gpu

package cuda

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// greedyMatrix is the greedy matrix in full; a product of a head has one row of the
// largest vocabulary at most.
func greedyMatrix(compile devicetest.Compile) devicetest.GreedyMatrix {
	return devicetest.GreedyMatrix{MostFused: 130_000, Compile: compile}
}

// TestArgmaxMatrix runs the greedy matrix with code that TestRecord made.
func TestArgmaxMatrix(t *testing.T) {
	if *record {
		t.Skip("-record")
	}
	n := greedyMatrix(devicetest.Stored(*objects)).Run(t, nil, opener(t, PlanOptions{}))
	fmt.Printf("ARGMAX MATRIX: %d cases, failed %v\n", n, t.Failed())
}

// TestSampleMatrix draws on the device what the evaluator draws, bit by bit, with code
// that TestRecord made.
func TestSampleMatrix(t *testing.T) {
	if *record {
		t.Skip("-record")
	}
	n := devicetest.SampleMatrix{Compile: devicetest.Stored(*objects)}.Run(t, nil, opener(t, PlanOptions{}), 8)
	fmt.Printf("SAMPLE MATRIX: %d rows, failed %v\n", n, t.Failed())
}

// BenchmarkSample runs code that TestRecord made.
func BenchmarkSample(b *testing.B) {
	devicetest.BenchSample(b, nil, opener(b, PlanOptions{}), devicetest.Stored(*objects), 1, 8, 64, 256)
}
