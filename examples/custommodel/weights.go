package main

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Random is a source of made-up weights, the same for the same seed. The runtime
// asks an eval.WeightSource for every weight that a graph declares, by name and
// type; one that reads a checkpoint would look the name up in its files.
type Random uint64

// Weight implements eval.WeightSource. Each name has numbers of its own, whatever
// the order in which weights are asked for.
func (seed Random) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	x, err := eval.New(t) // for its shape, and to refuse extents that are not integers
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(uint64(seed), h.Sum64()))

	// A matrix keeps the size of what it multiplies: variance 1/k. The vectors are
	// factors of norms, near 1.
	mean, spread := 1.0, 0.2
	if rank := len(x.Shape); rank > 1 {
		mean, spread = 0, math.Sqrt(3/float64(x.Shape[rank-1]))
	}
	v := make([]float32, x.Len())
	for i := range v {
		v[i] = float32(mean + spread*(2*r.Float64()-1))
	}
	return eval.FromF32(t.DType, v, x.Shape...)
}
