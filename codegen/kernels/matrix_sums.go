package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
)

// The sums of a product of few rows: each warp's in shared memory, and added there.

// combine adds the warps' sums in their order and has done finish the tiles of 16, each
// in one warp. The barrier of the next tile's first step tells that they have been read.
func (s *streamer) combine(done func(row, col kernel.V, sums []kernel.Vec)) {
	tiles, waves := s.rows*s.cols, s.unit.waves
	words := s.slotWords() / waves / s.products
	at := func(wave, slot kernel.V, product int) kernel.V {
		i := s.Add(s.Mul(s.Add(s.Mul(wave, s.Int(s.slots)), slot), s.Int(s.products)), s.Int(product))
		return s.Mul(i, s.Int(words))
	}
	for first := 0; first < tiles; first += s.slots {
		if first > 0 {
			s.Barrier() // what lies there has been read
		}
		n := min(s.slots, tiles-first)
		for slot := range n {
			for p := range s.products {
				s.storeSum(at(s.wave, s.Int(slot), p), s.sum(0, p, (first+slot)/s.cols, (first+slot)%s.cols).Get())
			}
		}
		s.Barrier()
		finish := func() {
			var sums []kernel.Vec
			for p := range s.products {
				sum := s.loadSum(at(s.Int(0), s.wave, p))
				for w := 1; w < waves; w++ {
					sum = s.MapVec(func(v ...kernel.V) kernel.V { return s.Add(v[0], v[1]) }, sum, s.loadSum(at(s.Int(w), s.wave, p)))
				}
				sums = append(sums, sum)
			}
			tile := s.Add(s.wave, s.Int(first))
			row, col := s.UDiv(tile, s.Int(s.cols)), s.Mul(s.URem(tile, s.Int(s.cols)), s.Int(target.MatrixTile))
			if s.few > 0 {
				done(s.fewRow(), s.Add(col, s.And(s.lane, s.Int(target.MatrixTile-1))), sums)
				return
			}
			row = s.Add(s.Mul(row, s.Int(s.unit.cols)), s.sub)
			done(row, s.Add(col, s.Mul(s.group, s.Int(target.ResultRun))), sums)
		}
		own := s.Cmp(kernel.LT, s.wave, s.Int(n))
		if s.few > 0 {
			own = s.And(own, s.Cmp(kernel.LT, s.fewRow(), s.Int(s.few)))
		}
		if n < waves {
			s.If(own, finish)
		} else {
			finish()
		}
	}
}

// mostFew is for how many rows of x a warp has a lane for each sum of a tile of 16.
const mostFew = 2

// fewRow is the row of x whose sums a lane finishes where few count.
func (s *streamer) fewRow() kernel.V { return s.LShr(s.lane, s.Int(4)) }

// storeSum writes what the lane has of a tile's sums; of few rows their columns alone,
// 16 sums each.
func (s *streamer) storeSum(at kernel.V, sum kernel.Vec) {
	if s.few == 0 {
		s.unit.storeSum(s.K, s.sums, at, s.lane, sum)
		return
	}
	s.If(s.Cmp(kernel.EQ, s.group, s.Int(0)), func() { // these lanes have columns 0 and 1, each of two rows
		for i := range s.unit.rows {
			for row := range s.few {
				to := s.Add(s.sub, s.Int(row*target.MatrixTile+i*target.MatrixTile/s.unit.rows))
				s.sums.Store(s.Add(at, to), s.At(sum, i*sum.Len()/s.unit.rows+row))
			}
		}
	})
}

// loadSum is what storeSum wrote, of the lane's row of x and rows of w.
func (s *streamer) loadSum(at kernel.V) kernel.Vec {
	if s.few == 0 {
		return s.unit.loadSum(s.K, s.sums, at, s.lane)
	}
	return s.MakeVec(s.sums.Load(s.Add(at, s.lane)))
}
