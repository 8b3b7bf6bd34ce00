package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Sorting in registers: a bitonic network. Lanes that are near each other compare without
// memory.

// laneSort is numbers, i32 or i64, of which every lane of the group has as many, a power of
// two; those of a lane follow each other.
type laneSort struct {
	*kernel.K
	x      []kernel.V
	shared *kernel.Buf
}

// sortLanes sorts them, the greatest first. What shared memory it takes holds all of them.
func sortLanes(k *kernel.K, x []kernel.V, shared *kernel.Buf) []kernel.V {
	s := &laneSort{K: k, x: x, shared: shared}
	each := len(x)
	for size := 2; size <= each*k.T.Lanes; size *= 2 { // runs of so many
		for stride := size / 2; stride > 0; stride /= 2 {
			if stride < each {
				s.within(stride, size)
			} else {
				s.apart(stride/each, size/each)
			}
		}
	}
	return s.x
}

// even reports whether the lane has none of some bits, one or two, or two of two.
func (s *laneSort) even(bits ...int) kernel.V {
	x := s.Convert(s.Lane(), kernel.I32)
	out := s.Cmp(kernel.EQ, s.And(x, s.Int32(bits[0])), s.Int32(0))
	for _, b := range bits[1:] {
		out = s.Cmp(kernel.EQ, out, s.Cmp(kernel.EQ, s.And(x, s.Int32(b)), s.Int32(0)))
	}
	return out
}

// within compares what a lane has itself, so far apart; runs of a size have the greatest
// first or last by turns.
func (s *laneSort) within(stride, size int) {
	each := len(s.x)
	for j := range each {
		if j&stride > 0 {
			continue
		}
		a, b := s.x[j], s.x[j+stride]
		greater := s.Cmp(kernel.GT, a, b)
		switch {
		case size >= each:
			greater = s.Cmp(kernel.EQ, greater, s.even(size/each))
		case j&size > 0:
			greater = s.Not(greater)
		}
		s.x[j], s.x[j+stride] = s.Select(greater, a, b), s.Select(greater, b, a)
	}
}

// apart compares with a lane so many lanes away, where runs have so many lanes.
func (s *laneSort) apart(lanes, size int) {
	others := s.inWave
	if lanes >= s.T.Wave {
		others = s.inMemory
	}
	keep := s.even(lanes, size) // the greater one
	next := make([]kernel.V, len(s.x))
	for j, other := range others(lanes) {
		next[j] = s.Select(s.Cmp(kernel.EQ, s.Cmp(kernel.GT, s.x[j], other), keep), s.x[j], other)
	}
	s.x = next
}

// inWave are the numbers of a lane of this wave.
func (s *laneSort) inWave(apart int) []kernel.V {
	out := make([]kernel.V, len(s.x))
	for j, x := range s.x {
		out[j] = s.LaneXor(x, apart)
	}
	return out
}

// inMemory are the numbers of a lane of another wave.
func (s *laneSort) inMemory(apart int) []kernel.V {
	n, step := len(s.x), 1 // how many lie in a vector
	if s.shared.Format() == ir.I32 {
		step = min(4, n)
	}
	// Vectors of lanes beside each other lie beside each other: in banks of their own.
	at := func(lane kernel.V, j int) kernel.V { return s.Add(s.Mul(lane, s.Int(step)), s.Int(j*s.T.Lanes)) }
	s.Barrier() // the last readers are done
	for j := 0; j < n; j += step {
		if step == 1 {
			s.shared.Store(at(s.Lane(), j), s.x[j])
		} else {
			s.shared.StoreVec(at(s.Lane(), j), s.MakeVec(s.x[j:j+step]...))
		}
	}
	s.Barrier()
	lane := s.Xor(s.Lane(), s.Int(apart))
	var out []kernel.V
	for j := 0; j < n; j += step {
		if step == 1 {
			out = append(out, s.shared.Load(at(lane, j)))
			continue
		}
		v := s.shared.LoadVec(at(lane, j), step)
		for i := range step {
			out = append(out, s.At(v, i))
		}
	}
	return out
}
