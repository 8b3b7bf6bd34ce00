package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
)

// Copies to the ring of a product of few rows.

// places is how many places a tile fills.
func (s *streamer) places() int { return s.whole * s.split }

// placeOf is where the place of filling i of the first tile begins.
func (s *streamer) placeOf(i int) kernel.V { return s.Int(i % s.ring * s.placeBytes()) }

// turns reports whether places follow each other in every tile as in the first: else
// where they begin is counted as the group goes on.
func (s *streamer) turns() bool { return s.strip == 1 || s.places()%s.ring == 0 }

// takePlace is where the place of filling i of a tile begins, which is multiplied next,
// and the one that is free then, to be filled again.
func (s *streamer) takePlace(i int) (at, free kernel.V) {
	if s.turns() {
		return s.placeOf(i), s.placeOf(i + s.ring - 1)
	}
	here, was := s.next.Get(), s.before.Get()
	after := s.Add(here, s.Int32(s.placeBytes()))
	s.next.Set(s.Select(s.Cmp(kernel.EQ, after, s.Int32(s.ring*s.placeBytes())), s.Int32(0), after))
	s.before.Set(here)
	return s.Convert(here, kernel.I64), s.Convert(was, kernel.I64)
}

// ringSources are where a lane copies from and to, but for the tile, the part and the
// step: what follows from those is added to all lanes'.
type ringSources struct {
	w, scales       []kernel.V // in bytes: of w by product, of scales by the parts of a place
	scalesOf        []*kernel.Buf
	wTo, scalesTo   kernel.V // in a place
	of, at          kernel.V // the first row of a part that the lane copies, and which of its units
	scaleRow, scale kernel.V // of the scales
}

// even reports whether all tiles have all their rows.
func (p *matrixProduct) even() bool { return p.n%p.tileCols() == 0 }

func (s *streamer) sources() (out ringSources) {
	units := s.stepBytes() / unit // of a row
	out.at, out.of = s.URem(s.Lane(), s.Int(units)), s.UDiv(s.Lane(), s.Int(units))
	out.wTo = s.Mul(s.Add(s.Mul(out.of, s.Int(units)), wUnit(s.K, out.at, out.of)), s.Int(unit))
	if s.even() {
		for _, w := range s.ws {
			row := s.Add(s.Add(s.Mul(w.index, s.Int(s.n)), s.n0), out.of)
			out.w = append(out.w, s.Add(s.Mul(row, s.Int(int(s.w.Bytes(s.depth)))), s.Mul(out.at, s.Int(unit))))
		}
	}
	if !s.copiesScales() {
		return out
	}
	units = s.scaleBytes() / unit
	out.scaleRow, out.scale = s.UDiv(s.lane, s.Int(units)), s.Mul(s.URem(s.lane, s.Int(units)), s.Int(unit))
	out.scalesTo = s.Add(s.Mul(s.wave, s.Int(target.MatrixTile*s.scaleBytes())), s.Mul(s.lane, s.Int(unit)))
	for first := 0; first < s.parts(); first += s.partsAtOnce() {
		var from *kernel.Buf
		var row kernel.V
		for i := range s.partsAtOnce() {
			product, col := s.part(first + i)
			of := s.ws[product].scales.Bytes()
			at := s.Add(s.Mul(s.ws[product].index, s.Int(s.n)), s.Int(col*target.MatrixTile))
			if i == 0 {
				from, row = of, at
				continue
			}
			own := s.Cmp(kernel.EQ, s.wave, s.Int(i))
			if s.ws[product].scales != s.ws[0].scales {
				from = s.Either(own, of, from)
			}
			row = s.Select(own, at, row)
		}
		row = s.Add(s.Add(row, s.n0), out.scaleRow)
		out.scales = append(out.scales, s.Add(s.Mul(row, s.Int(s.scaleCols())), out.scale))
		out.scalesOf = append(out.scalesOf, from)
	}
	return out
}

// fill starts the copies of filling i of a tile, or of the next, if there is such, to
// the place that begins at to. It makes a group of them in any case, so that as many
// groups follow a filling.
func (s *streamer) fill(tile kernel.V, i int, to kernel.V) {
	n := max(1, s.places())
	ahead, i := i/n, i%n
	step, first := i/s.split, i%s.split*s.partsAtOnce()
	copies := func() {
		for j := range s.partsAtOnce() {
			s.copyW(s.Add(to, s.Int(j*s.partBytes())), first+j, step, tile, ahead)
		}
		at := s.partsAtOnce() * s.partBytes()
		if s.copiesScales() {
			s.copyScales(s.Add(to, s.Int(at)), first, step, tile, ahead)
			at += s.partsAtOnce() * target.MatrixTile * s.scaleBytes()
		}
		if s.copiesX() {
			s.copyX(s.Add(to, s.Int(at)), step)
		}
	}
	if s.whole > 0 {
		s.If(s.Cmp(kernel.LE, s.Add(tile, s.Int(ahead)), s.last), copies)
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

// copyW copies a part of all warps, of a tile or one of those behind it: all lanes take
// turns with its units.
func (s *streamer) copyW(to kernel.V, part, step int, tile kernel.V, ahead int) {
	product, col := s.part(part)
	rows := s.t.Lanes / (s.stepBytes() / unit) // at a time, an even number
	rowBytes := int(s.w.Bytes(s.depth))
	for i := 0; i < target.MatrixTile; i += rows {
		var from kernel.V
		if s.even() {
			from = s.Add(s.from.w[product], s.Mul(tile, s.Int(s.tileCols()*rowBytes)))
			from = s.Add(from, s.Int((ahead*s.tileCols()+col*target.MatrixTile+i)*rowBytes+step*s.stepBytes()))
		} else {
			row := s.rowOfW(part, s.rowOf(s.Add(tile, s.Int(ahead))), s.Add(s.from.of, s.Int(i)))
			from = s.Add(s.Mul(row, s.Int(rowBytes)), s.Add(s.Mul(s.from.at, s.Int(unit)), s.Int(step*s.stepBytes())))
		}
		s.pool.CopyAsync(s.Add(s.Add(to, s.from.wTo), s.Int(i*s.stepBytes())), s.ws[product].rows.Bytes(), from)
	}
}

// wUnit is where a unit of a row of w is in the row's place, so that the lanes that read
// at once, four units of two rows, use different banks.
func wUnit(k *kernel.K, i, row kernel.V) kernel.V {
	return k.Xor(i, k.Shl(k.And(row, k.Int(1)), k.Int(2)))
}

// copyScales copies the scales of a step, each warp those of a part.
func (s *streamer) copyScales(to kernel.V, first, step int, tile kernel.V, ahead int) {
	to = s.Add(to, s.from.scalesTo)
	if s.even() {
		place := first / s.partsAtOnce()
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.partsAtOnce())), func() {
			from := s.Add(s.from.scales[place], s.Mul(tile, s.Int(s.tileCols()*s.scaleCols())))
			s.pool.CopyAsync(to, s.from.scalesOf[place], s.Add(from, s.Int(ahead*s.tileCols()*s.scaleCols()+step*s.scaleBytes())))
		})
		return
	}
	n0 := s.rowOf(s.Add(tile, s.Int(ahead)))
	for part := range s.partsAtOnce() {
		product, _ := s.part(first + part)
		s.If(s.Cmp(kernel.EQ, s.wave, s.Int(part)), func() {
			from := s.Add(s.Mul(s.rowOfW(first+part, n0, s.from.scaleRow), s.Int(s.scaleCols())), s.Add(s.from.scale, s.Int(step*s.scaleBytes())))
			s.pool.CopyAsync(to, s.ws[product].scales.Bytes(), from)
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
