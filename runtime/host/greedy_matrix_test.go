package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// greedyMost is how many logits a case of the greedy matrix has: one row of the largest
// vocabulary. The long tests run all of it.
const greedyMost = 130_000

func TestGreedyMatrix(t *testing.T) { greedyMatrix(t, greedyMost) }

func greedyMatrix(t *testing.T, most int) {
	t.Helper()
	n := devicetest.GreedyMatrix{Most: most, MostFused: greedyMost}.Run(t, devicetest.Compiler(t), openHost)
	t.Logf("ARGMAX MATRIX: %d cases", n)
}

// Mixed batches over the vocabularies of the greedy matrix.
func TestSampleMatrix(t *testing.T) {
	n := devicetest.SampleMatrix{}.Run(t, devicetest.Compiler(t), openHost, 1)
	t.Logf("SAMPLE MATRIX: %d rows", n)
}

func BenchmarkSample(b *testing.B) {
	devicetest.BenchSample(b, devicetest.Compiler(b), openHost, nil, 1, 8)
}
