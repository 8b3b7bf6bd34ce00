package emu

import (
	"math/bits"
	"math/rand/v2"
)

// shuffled returns a permutation of 0..n-1 that follows from the seed: steps of a
// fixed width around the ring, so that no table is needed. Seed 0 is the identity.
func shuffled(n int64, seed uint64) func(int64) int64 {
	if seed == 0 || n < 2 {
		return func(i int64) int64 { return i }
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	start, stride := uint64(rng.Int64N(n)), int64(0)
	for gcd(stride, n) != 1 {
		stride = 1 + rng.Int64N(n-1)
	}
	return func(i int64) int64 {
		hi, lo := bits.Mul64(uint64(i), uint64(stride))
		lo, carry := bits.Add64(lo, start, 0)
		return int64(bits.Rem64(hi+carry, lo, uint64(n)))
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
