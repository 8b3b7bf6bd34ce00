package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
)

// Copies to the ring of a product of few rows.

// places is how many places a tile fills.
func (s *streamer) places() int { return s.whole * s.split }

// place is where the place of filling i of a tile begins.
func (s *streamer) place(tile kernel.V, i int) kernel.V {
	n := s.Add(s.Mul(tile, s.Int(s.places())), s.Int(i))
	return s.Mul(s.URem(n, s.Int(s.ring)), s.Int(s.placeBytes()))
}

// fill starts the copies of filling i of a tile, or of the next, if there is such. It
// makes a group of them in any case, so that as many groups follow a filling.
func (s *streamer) fill(tile kernel.V, i int) {
	to, n := s.place(tile, i), max(1, s.places())
	tile, i = s.Add(tile, s.Int(i/n)), i%n
	step, first := i/s.split, i%s.split*s.partsAtOnce()
	copies := func() {
		n0 := s.rowOf(tile)
		for j := range s.partsAtOnce() {
			s.copyW(s.Add(to, s.Int(j*s.partBytes())), first+j, step, n0)
		}
		to := s.Add(to, s.Int(s.partsAtOnce()*s.partBytes()))
		if s.copiesScales() {
			s.copyScales(to, first, step, n0)
			to = s.Add(to, s.Int(s.partsAtOnce()*target.MatrixTile*s.scaleBytes()))
		}
		if s.copiesX() {
			s.copyX(to, step)
		}
	}
	if s.whole > 0 {
		s.If(s.Cmp(kernel.LE, tile, s.last), copies)
	}
	s.CommitCopies()
}

// part is which weight and column a part of a step is of.
func (s *streamer) part(i int) (product, col int) { return i / s.cols, i % s.cols }

// rowOfW is row number i, counted from the first of a part, of all matrices of a stack.
func (s *streamer) rowOfW(part int, n0, i kernel.V) kernel.V {
	product, col := s.part(part)
	row := s.Add(s.Add(n0, i), s.Int(col*target.MatrixTile))
	if s.n%s.tileCols() != 0 {
		row = s.clamp(row)
	}
	return s.Add(s.Mul(s.ws[product].index, s.Int(s.n)), row)
}

// clamp keeps a row within the weight.
func (s *streamer) clamp(row kernel.V) kernel.V {
	return s.Select(s.Cmp(kernel.LT, row, s.Int(s.n)), row, s.Int(s.n-1))
}

// copyW copies a part of all warps: all lanes take turns with its units.
func (s *streamer) copyW(to kernel.V, part, step int, n0 kernel.V) {
	product, _ := s.part(part)
	units := s.stepBytes() / unit // of a row
	at, of := s.URem(s.Lane(), s.Int(units)), s.UDiv(s.Lane(), s.Int(units))
	rows := s.t.Lanes / units // at a time, an even number
	for i := 0; i < target.MatrixTile; i += rows {
		row := s.rowOfW(part, n0, s.Add(of, s.Int(i)))
		from := s.Add(s.Mul(row, s.Int(int(s.w.Bytes(s.depth)))), s.Add(s.Mul(at, s.Int(unit)), s.Int(step*s.stepBytes())))
		in := s.Add(s.Mul(s.Add(of, s.Int(i)), s.Int(units)), wUnit(s.K, at, of))
		s.pool.CopyAsync(s.Add(to, s.Mul(in, s.Int(unit))), s.ws[product].rows.Bytes(), from)
	}
}

// wUnit is where a unit of a row of w is in the row's place, so that the lanes that read
// at once, four units of two rows, use different banks.
func wUnit(k *kernel.K, i, row kernel.V) kernel.V {
	return k.Xor(i, k.Shl(k.And(row, k.Int(1)), k.Int(2)))
}

// copyScales copies the scales of a step, each warp those of a part.
func (s *streamer) copyScales(to kernel.V, first, step int, n0 kernel.V) {
	units := s.scaleBytes() / unit
	row, at := s.UDiv(s.lane, s.Int(units)), s.Mul(s.URem(s.lane, s.Int(units)), s.Int(unit))
	for part := range s.partsAtOnce() {
		product, _ := s.part(first + part)
		s.If(s.Cmp(kernel.EQ, s.wave, s.Int(part%s.unit.waves)), func() {
			from := s.Add(s.Mul(s.rowOfW(first+part, n0, row), s.Int(s.scaleCols())), s.Add(at, s.Int(step*s.scaleBytes())))
			s.pool.CopyAsync(s.Add(to, s.Add(s.Mul(s.lane, s.Int(unit)), s.Int(part*target.MatrixTile*s.scaleBytes()))), s.ws[product].scales.Bytes(), from)
		})
	}
}

// copyX copies the rows of x of a step.
func (s *streamer) copyX(to kernel.V, step int) {
	units := s.xBytes() / unit
	at, of := s.URem(s.Lane(), s.Int(units)), s.UDiv(s.Lane(), s.Int(units))
	rows := s.t.Lanes / units
	for i := 0; i < s.rowsOfX()*s.unit.cols; i += rows {
		row := s.Add(of, s.Int(i))
		from := s.Add(s.Mul(s.x.row(row), s.Int(s.depth)), s.Add(s.Mul(at, s.Int(matrixRun)), s.Int(step*s.unit.waves*matrixChunk)))
		in := s.Add(s.Mul(row, s.Int(units)), s.xUnit(at, row))
		s.pool.CopyAsync(s.Add(to, s.Mul(in, s.Int(unit))), s.x.x, from)
	}
}

// xUnit is wUnit of x, of which the lanes of a row read units that lie as far apart as
// those of w that hold as many k.
func (s *streamer) xUnit(i, row kernel.V) kernel.V {
	odd := s.And(row, s.Int(1))
	switch s.run() {
	case matrixRun:
		odd = s.Shl(odd, s.Int(2))
	case 4 * matrixRun:
		odd = s.Or(s.Shl(odd, s.Int(1)), s.And(s.LShr(i, s.Int(3)), s.Int(1)))
	}
	return s.Xor(i, odd)
}
