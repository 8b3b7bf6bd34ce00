package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(&Form{Name: "hadamard", Op: "hadamard", Match: matchHadamard, Lower: lowerHadamard, Joins: true})
}

// maxShared bounds the shared memory of one group: what gfx942 has, less some
// room for reductions.
const maxShared = 60 << 10

func matchHadamard(o *ir.Op, _ *target.Target) string {
	x := dims(o.Args[0])
	if d := x[len(x)-1]; 4*d > maxShared {
		return fmt.Sprintf("%d elements do not fit shared memory", d)
	}
	return ""
}

// lowerHadamard: one group per vector, a fast Walsh-Hadamard transform in shared
// memory. The sums are f32, in a fixed order.
func lowerHadamard(l Lowering, o *ir.Op) error {
	x := dims(o.Args[0])
	d := x[len(x)-1]
	n := product(x) / d
	scale := hadamardScale(d)
	l.Launch(Launch{
		Name: "hadamard", Spec: fmt.Sprintf("d%d", d), Grid: n, Work: int64(n * d * 16),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(d))
			x, y, s := b[0].At(at), b[1].At(at), k.Shared(ir.F32, d)
			k.Lanes(k.Int(d), func(i kernel.V) { s.Store(i, x.Load(i)) })
			k.Barrier()
			butterflies(k, s, d)
			k.Lanes(k.Int(d), func(i kernel.V) { y.Store(i, k.Mul(k.RoundBF16(s.Load(i)), k.Float(scale))) })
		},
	})
	return nil
}

// butterflies is the fast Walsh-Hadamard transform of d elements of shared memory,
// without its scale. It ends with a barrier.
func butterflies(k *kernel.K, s *kernel.Buf, d int) {
	first := 1
	if k.T.Kind == target.AMDGPU && d%k.T.Wave == 0 {
		first = k.T.Wave
		waveButterflies(k, s, d)
	}
	for h := first; h < d; h *= 2 {
		butterfly := func(i kernel.V) {
			j := k.Add(i, k.Int(h))
			p, q := s.Load(i), s.Load(j)
			s.Store(i, k.Add(p, q))
			s.Store(j, k.Sub(p, q))
		}
		if !k.T.GPU() && h >= k.T.Lanes { // contiguous runs of h
			k.For(k.Int(0), k.Int(d), 2*h, func(from kernel.V) {
				k.Lanes(k.Int(h), func(i kernel.V) { butterfly(k.Add(i, from)) })
			})
		} else {
			k.Lanes(k.Int(d/2), func(p kernel.V) {
				high := k.Mul(k.UDiv(p, k.Int(h)), k.Int(h))
				butterfly(k.Add(p, high))
			})
		}
		k.Barrier()
	}
}

// waveButterflies are the steps within as many elements as a wave has lanes, which have
// one each: no step goes through shared memory, where neighbours would meet in banks.
func waveButterflies(k *kernel.K, s *kernel.Buf, d int) {
	k.Lanes(k.Int(d), func(i kernel.V) {
		v := s.Load(i)
		for h := 1; h < k.T.Wave; h *= 2 {
			other := k.LaneXor(v, h)
			upper := k.Cmp(kernel.NE, k.And(i, k.Int(h)), k.Int(0))
			v = k.Select(upper, k.Sub(other, v), k.Add(v, other))
		}
		s.Store(i, v)
	})
	k.Barrier()
}
