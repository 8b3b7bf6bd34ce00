package kernels

import (
	mathbits "math/bits"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Sorting in registers: a bitonic network. Lanes that are near each other compare without
// memory.

// laneSort is numbers, i32 or i64, of which every lane of the group has as many, a power of
// two; those of a lane follow each other.
type laneSort struct {
	*kernel.K
	x      []*kernel.Var
	shared *kernel.Buf
}

// sortLanes sorts them, the greatest first. What shared memory it takes holds all of them.
func sortLanes(k *kernel.K, x []kernel.V, shared *kernel.Buf) []kernel.V {
	s := &laneSort{K: k, shared: shared}
	for _, v := range x {
		s.x = append(s.x, k.Var(v))
	}
	each := mathbits.Len(uint(len(x))) - 1 // as powers of two
	wave, all := each+mathbits.Len(uint(k.T.Wave))-1, each+mathbits.Len(uint(k.T.Lanes))-1
	for size := 1; size < each; size++ {
		s.within(size, func(j int) kernel.V { return k.Cmp(kernel.EQ, k.Int(j>>size&1), k.Int(0)) })
	}
	k.For(k.Int(max(1, each)), k.Int(all+1), 1, func(size kernel.V) { // runs of 2^size
		down := k.Cmp(kernel.EQ, k.And(k.LShr(k.Lane(), k.Sub(size, k.Int(each))), k.Int(1)), k.Int(0))
		from := k.Sub(size, k.Int(1))
		k.For(k.Int(0), k.Sub(from, k.Int(wave-1)), 1, func(i kernel.V) { s.apart(k.Sub(k.Sub(from, i), k.Int(each)), down, s.inMemory) })
		first := k.Select(k.Cmp(kernel.LT, from, k.Int(wave)), from, k.Int(wave-1))
		k.For(k.Int(0), k.Sub(first, k.Int(each-1)), 1, func(i kernel.V) { s.apart(k.Sub(k.Sub(first, i), k.Int(each)), down, s.inWave) })
		if each > 0 {
			s.within(each, func(int) kernel.V { return down })
		}
	})
	out := make([]kernel.V, len(x))
	for i, v := range s.x {
		out[i] = v.Get()
	}
	return out
}

// within merges the lane's own runs of 2^size, the greatest first where down holds.
func (s *laneSort) within(size int, down func(j int) kernel.V) {
	for stride := 1 << (size - 1); stride > 0; stride /= 2 {
		for j := range s.x {
			if j&stride > 0 {
				continue
			}
			a, b := s.x[j].Get(), s.x[j+stride].Get()
			right := s.Cmp(kernel.EQ, s.Cmp(kernel.GT, a, b), down(j))
			s.x[j].Set(s.Select(right, a, b))
			s.x[j+stride].Set(s.Select(right, b, a))
		}
	}
}

// apart compares with the lane 2^bit away, whose numbers of gives.
func (s *laneSort) apart(bit, down kernel.V, of func(lane kernel.V) []kernel.V) {
	mask := s.Shl(s.Int(1), bit)
	greater := s.Cmp(kernel.EQ, s.Cmp(kernel.EQ, s.And(s.Lane(), mask), s.Int(0)), down) // the lane keeps the greater ones
	for j, other := range of(s.Xor(s.Lane(), mask)) {
		x := s.x[j].Get()
		s.x[j].Set(s.Select(s.Cmp(kernel.EQ, s.Cmp(kernel.GT, x, other), greater), x, other))
	}
}

// inWave are the numbers of a lane of this wave.
func (s *laneSort) inWave(lane kernel.V) []kernel.V {
	out := make([]kernel.V, len(s.x))
	for j, x := range s.x {
		out[j] = s.FromLane(x.Get(), s.And(lane, s.Int(s.T.Wave-1)))
	}
	return out
}

// inMemory are the numbers of a lane of any wave.
func (s *laneSort) inMemory(lane kernel.V) []kernel.V {
	n := len(s.x)
	at := func(lane kernel.V, j int) kernel.V { return s.Add(s.Mul(lane, s.Int(n)), s.Int(j)) }
	step := 1 // how many lie in a vector
	if s.shared.Format() == ir.I32 {
		step = min(4, n)
	}
	s.Barrier() // the last readers are done
	for j := 0; j < n; j += step {
		if step == 1 {
			s.shared.Store(at(s.Lane(), j), s.x[j].Get())
			continue
		}
		var v []kernel.V
		for i := range step {
			v = append(v, s.x[j+i].Get())
		}
		s.shared.StoreVec(at(s.Lane(), j), s.MakeVec(v...))
	}
	s.Barrier()
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
