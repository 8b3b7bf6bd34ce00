package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of few rows on NVIDIA's warps. They are bound by reading w, so a warp always
// has some of it under way: a ring of places in shared memory, of which each is filled
// again as soon as its part of w was multiplied, with the part that comes so many later,
// be it of the group's next tile. A lane copies what it reads itself and so waits for
// nobody. A group multiplies several tiles, one after the other, with the same x.

// matrixStream says how such a product runs. No result depends on it.
type matrixStream struct {
	strip    int // tiles of a group, one after the other
	ring     int // parts of w that a warp has under way
	resident int // groups that run on a processor at a time

	// Where x is: in registers, if keeps, else in shared memory, if stage, or copied along
	// with w. stage is the number of rows that a group has there, rounded in blocks if
	// rounds.
	keeps, rounds bool
	stage         int
}

// streams reports whether a product runs so.
func (p *matrixProduct) streams() bool { return unitOf(p.t).mma != nil && p.skinny() }

// chunksOf are the chunks that each of the warps has, and those left, which some have one
// more of: K's end, if that is no whole chunk, is among them.
func (p *matrixProduct) chunksOf() (whole, rest int) {
	n := unitOf(p.t).waves
	whole = p.depth / matrixChunk / n
	return whole, ceilDiv(p.depth, matrixChunk) - whole*n
}

// perChunk is the number of parts of a chunk. A part is what a warp multiplies at once: a
// tile of 16 rows of one of the weights, in one of the warp's chunks.
func (p *matrixProduct) perChunk() int { return p.products * p.cols }

// vectors is how many times 16 bytes a lane has of a row of w in a chunk, and xVectors of
// a row of x.
func (p *matrixProduct) vectors() int { return perLane / p.run() }

const (
	xVectors   = perLane / matrixRun
	vectorSize = 16 * 32 // a warp's vectors in bytes
)

// streamer is the state of stream.
type streamer struct {
	*matrixEmitter
	lane, wave, sub, group kernel.V
	whole, rest            int
	copies                 *kernel.Buf        // the ring, as bytes
	scales                 []*kernel.Var      // of 8-bit weights, by part: the bytes
	next                   []*kernel.Var      // of the next tile
	kept                   [][]*kernel.VecVar // x, by chunk and row: xVectors each
	staged                 *kernel.Buf
	sums                   *kernel.Buf
	slots                  int  // tiles of 16 whose sums are in sums at a time
	turns                  bool // sums of a tile, and of the next beside them
}

// stream is multiply for few rows, of as many tiles from row n0 on as strip says and
// there are.
func (p *matrixProduct) stream(k *kernel.K, x matrixRows, ws []matrixWeight, n0, strip kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	s := &streamer{matrixEmitter: &matrixEmitter{matrixProduct: p, K: k, unit: unitOf(p.t), x: x, ws: ws}, lane: k.WaveLane(), wave: k.Wave()}
	s.sub, s.group = s.unit.place(k, s.lane)
	s.whole, s.rest = p.chunksOf()
	if p.resident > 1 {
		k.Resident(p.resident)
	}
	s.allocate()
	first := s.ring
	if p.copiesX() { // the last place is filled behind the first barrier
		first -= p.perChunk()
	}
	for i := range first {
		s.copy(i, n0)
	}
	s.loadScales(s.scales, n0)
	s.stageX()
	for i, row := range s.kept {
		s.keepX(row, i/p.rowsOfX(), i%p.rowsOfX())
	}
	k.Barrier() // keeps loads that are to be under way by now before it, too
	tile := func(i kernel.V, last bool) {
		at := k.Add(n0, k.Mul(i, k.Int(p.tileCols())))
		s.tile(at, last)
		s.combine(i, func(row, col kernel.V, sums []kernel.Vec) { done(row, k.Add(at, col), sums) })
	}
	if p.strip == 1 {
		tile(k.Int(0), true)
		return
	}
	left := k.UDiv(k.Sub(k.Int(p.n+p.tileCols()-1), n0), k.Int(p.tileCols()))
	last := k.Sub(k.Select(k.Cmp(kernel.LT, left, strip), left, strip), k.Int(1))
	k.For(k.Int(0), last, 1, func(i kernel.V) { tile(i, false) })
	tile(last, true)
}

// parts is the number of parts of a tile, but for those left.
func (s *streamer) parts() int { return s.whole * s.perChunk() }

// part is which chunk of the warp's, weight and column a part is of.
func (s *streamer) part(i int) (chunk, product, col int) {
	n := s.perChunk()
	return i / n, i % n / s.cols, i % n % s.cols
}

// copiesX reports whether x comes along with w.
func (p *matrixProduct) copiesX() bool { return !p.keeps && p.stage == 0 }

// placeBytes is a warp's place in the ring for a part of w, and the scales of e2m1.
func (p *matrixProduct) placeBytes() int {
	n := unitOf(p.t).rows * p.vectors() * vectorSize
	if p.w == ir.F4E2M1 {
		n += unitOf(p.t).rows * vectorSize / 4
	}
	return n
}

// xBytes is a warp's place for a chunk of x.
func (p *matrixProduct) xBytes() int { return p.rowsOfX() * unitOf(p.t).cols * matrixChunk * 2 }

// shared is what a group has of shared memory, in bytes: the ring, x and the sums.
func (p *matrixProduct) shared() (ring, x, sums int) {
	waves := unitOf(p.t).waves
	ring, sums = waves*p.ring*p.placeBytes(), 4*p.sumSlots()*p.slotWords()
	if p.sumTurns() {
		sums *= 2
	}
	switch {
	case p.stage > 0:
		x = ceilDiv(p.depth, matrixChunk) * p.stage * p.stageStride() * 2
	case p.copiesX():
		x = waves * p.ring / p.perChunk() * p.xBytes()
	}
	return ring, x, sums
}

// slotWords is the room for all warps' sums of one tile of 16, and sumSlots for how many
// there is room.
func (p *matrixProduct) slotWords() int {
	words := unitOf(p.t).sumWords()
	if p.oneRow {
		words = target.MatrixTile // of the one row of x that counts
	}
	return unitOf(p.t).waves * p.products * words
}

func (p *matrixProduct) sumSlots() int {
	return min(p.rows*p.cols, unitOf(p.t).waves, max(1, maxSumWords/p.slotWords()))
}

// sumTurns reports whether the sums of a tile have room beside those of the last.
func (p *matrixProduct) sumTurns() bool {
	return p.strip > 1 && p.sumSlots() == p.rows*p.cols && 2*p.sumSlots()*p.slotWords() <= maxSumWords
}

func (s *streamer) allocate() {
	for range s.products * s.rows * s.cols {
		s.acc = append(s.acc, s.VecVar(s.ZeroVec(kernel.F32, target.ResultRun)))
	}
	if s.w != ir.BF16 && s.w != ir.F4E2M1 {
		for range s.parts() {
			s.scales, s.next = append(s.scales, s.Var(s.Int32(0))), append(s.next, s.Var(s.Int32(0)))
		}
	}
	if s.keeps {
		for range s.whole {
			for range s.rowsOfX() {
				var row []*kernel.VecVar
				for range xVectors {
					row = append(row, s.VecVar(s.ZeroVec(kernel.I32, 4)))
				}
				s.kept = append(s.kept, row)
			}
		}
	}
	ring, x, sums := s.shared()
	s.slots, s.turns = s.sumSlots(), s.sumTurns()
	s.copies = s.SharedPool(ring + x + sums)
	s.staged, s.sums = s.copies.At(s.Int(ring)).As(ir.BF16), s.copies.At(s.Int(ring+x)).As(ir.F32)
}

// place is where this warp's part i is in the ring, and xPlace where x of its chunk is.
func (s *streamer) place(i int) kernel.V {
	size := s.placeBytes()
	at := s.Add(s.Mul(s.wave, s.Int(s.ring*size)), s.Mul(s.lane, s.Int(16)))
	return s.Add(at, s.Int(i%s.ring*size))
}

func (s *streamer) xPlace(chunk int) kernel.V {
	size, n := s.xBytes(), s.ring/s.perChunk()
	return s.Add(s.Mul(s.wave, s.Int(n*size)), s.Int(s.unit.waves*s.ring*s.placeBytes()+chunk%n*size))
}

// wAt is where the lane's vectors of part i of the tile at row n0 are, by row, in bytes,
// and scaleAt where their scales are.
func (s *streamer) wAt(i, r int, n0 kernel.V) (wAt, scaleAt kernel.V) {
	chunk, product, col := s.part(i)
	w, k := s.ws[product], s.chunk(chunk)
	row := s.Add(s.Add(n0, s.sub), s.Int(col*target.MatrixTile+r*target.MatrixTile/s.unit.rows))
	if s.n%s.tileCols() != 0 {
		row = s.clamp(row)
	}
	row = s.Add(s.Mul(w.index, s.Int(s.n)), row)
	wAt = s.Add(s.Mul(row, s.Int(int(s.w.Bytes(s.depth)))), s.Add(s.Mul(s.group, s.Int(16)), s.Mul(k, s.Int(int(s.w.Bytes(matrixChunk))))))
	if s.w == ir.F4E2M1 {
		scaleAt = s.Add(s.Mul(row, s.Int(s.scaleCols())), s.Mul(k, s.Int(matrixChunk/target.ScaleBlock)))
	}
	return wAt, scaleAt
}

// clamp keeps a row within the weight.
func (s *streamer) clamp(row kernel.V) kernel.V {
	return s.Select(s.Cmp(kernel.LT, row, s.Int(s.n)), row, s.Int(s.n-1))
}

// copy starts to copy part i of the tile that begins at row n0.
func (s *streamer) copy(i int, n0 kernel.V) {
	chunk, product, col := s.part(i)
	w, to, n := s.ws[product], s.place(i), s.vectors()
	for r := range s.unit.rows {
		if diag("noload") {
			break
		}
		from, scale := s.wAt(i, r, n0)
		for v := range n {
			s.copies.CopyAsync(s.Add(to, s.Int((r*n+v)*vectorSize)), w.rows.Bytes(), s.Add(from, s.Int(v*16*lanesPerRow)))
		}
		if s.w == ir.F4E2M1 && !diag("noscale") { // of the four lanes of a row, each uses a byte
			s.copies.CopyWordAsync(s.scalePlace(i, r), w.scales.Bytes(), scale)
		}
	}
	if s.copiesX() {
		if product == 0 && col == 0 {
			s.copyX(chunk)
		}
		if i%s.perChunk() != s.perChunk()-1 {
			return
		}
	}
	s.CommitCopies()
}

// copyX starts to copy the rows of x in a chunk: a warp copies what its lanes read, each
// line of memory at once.
func (s *streamer) copyX(chunk int) {
	const units = matrixChunk / matrixRun // of 16 bytes in a row
	at := s.xPlace(chunk)
	for i := 0; i < s.rowsOfX()*s.unit.cols; i += 2 {
		row := s.Add(s.LShr(s.lane, s.Int(4)), s.Int(i))
		unit := s.And(s.lane, s.Int(units-1))
		from := s.Add(s.Mul(s.x.row(row), s.Int(s.depth)), s.Mul(s.chunk(chunk), s.Int(matrixChunk)))
		from = s.Add(from, s.Mul(unit, s.Int(matrixRun)))
		to := s.Add(s.Mul(row, s.Int(units)), s.swizzled(unit, row))
		s.copies.CopyAsync(s.Add(at, s.Mul(to, s.Int(16))), s.x.x, from)
	}
}

// swizzled is where a unit of 16 bytes of a row of x lies in the row's place, so that the
// lanes that read at once use different banks.
func (s *streamer) swizzled(unit, row kernel.V) kernel.V {
	odd := s.And(row, s.Int(1))
	switch s.run() {
	case matrixRun:
		odd = s.Shl(odd, s.Int(2))
	case 4 * matrixRun:
		odd = s.Or(s.Shl(odd, s.Int(1)), s.And(s.LShr(unit, s.Int(3)), s.Int(1)))
	}
	return s.Xor(unit, odd)
}

// scalePlace is where the lane has the scales of a row of a part of e2m1.
func (s *streamer) scalePlace(i, r int) kernel.V {
	at := s.Sub(s.place(i), s.Mul(s.lane, s.Int(12))) // lanes are 4 bytes apart here
	return s.Add(at, s.Int(s.unit.rows*s.vectors()*vectorSize+r*vectorSize/4))
}

// loadScales loads the scales of all parts of a tile of 8-bit weights.
func (s *streamer) loadScales(to []*kernel.Var, n0 kernel.V) {
	for i, x := range to {
		_, product, col := s.part(i)
		x.Set(s.scaleOf8(i, product, col, n0))
	}
}

// scaleOf8 is the scale of part i, which all its rows have.
func (s *streamer) scaleOf8(i, product, col int, n0 kernel.V) kernel.V {
	chunk, _, _ := s.part(i)
	w := s.ws[product]
	rows, block := ceilDiv(s.n, s.block[0]), s.UDiv(s.clamp(s.Add(n0, s.Int(col*target.MatrixTile))), s.Int(s.block[0]))
	at := s.Mul(s.Add(s.Mul(w.index, s.Int(rows)), block), s.Int(s.scaleCols()))
	return w.scales.Bytes().Load(s.Add(at, s.UDiv(s.Mul(s.chunk(chunk), s.Int(matrixChunk)), s.Int(s.block[1]))))
}

// chunk is the number of this warp's chunk i.
func (s *streamer) chunk(i int) kernel.V { return s.Add(s.wave, s.Int(i*s.unit.waves)) }

// tile adds up the products of a tile. Unless it is the last, the next is under way
// then.
func (s *streamer) tile(n0 kernel.V, last bool) {
	for _, a := range s.acc {
		a.Set(s.ZeroVec(kernel.F32, target.ResultRun))
	}
	next := s.Add(n0, s.Int(s.tileCols()))
	if !last {
		s.loadScales(s.next, next)
	}
	refill := func(i int) { // the place of the part before part i + 1 - s.ring
		switch {
		case i < s.parts():
			s.copy(i, n0)
		case !last:
			s.copy(i-s.parts(), next)
		case s.copiesX() && i%s.perChunk() == 0: // so that as many groups follow
			s.CommitCopies()
		}
	}
	var x [][]kernel.Vec
	for i := range s.parts() {
		chunk, product, col := s.part(i)
		switch {
		case !s.copiesX():
			under := s.ring - 1
			if last {
				under = min(under, s.parts()-1-i)
			}
			s.WaitCopies(under)
		case i%s.perChunk() == 0:
			s.WaitCopies(max(0, s.ring/s.perChunk()-2))
			s.Barrier() // of what other lanes copied; and the chunk before has been read
			for j := range s.perChunk() {
				refill(i + s.ring - s.perChunk() + j)
			}
		}
		if col == 0 && (product == 0 || s.apart) {
			x = s.xOf(chunk, product)
		}
		w, scales := s.partAt(i)
		s.multiplyPart(i, w, scales, x)
		if !s.copiesX() {
			refill(i + s.ring)
		}
	}
	if !last {
		for i, x := range s.scales {
			x.Set(s.next[i].Get())
		}
	}
	if s.rest > 0 {
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.rest)), func() {
			for i := s.parts(); i < s.parts()+s.perChunk(); i++ {
				_, product, _ := s.part(i)
				w, scales := s.partInMemory(i, n0)
				s.multiplyPart(i, w, scales, s.xOf(s.whole, product))
			}
		})
	}
}

// partAt is what the lane has of part i, by row, and its scales as bytes.
func (s *streamer) partAt(i int) (w [][]kernel.Vec, scales []kernel.V) {
	n := s.vectors()
	for r := range s.unit.rows {
		var row []kernel.Vec
		for v := range n {
			row = append(row, s.copies.LoadVec(s.Add(s.place(i), s.Int((r*n+v)*vectorSize)), 16))
		}
		w = append(w, row)
		if s.w == ir.F4E2M1 {
			scales = append(scales, s.copies.Load(s.Add(s.scalePlace(i, r), s.group)))
		}
	}
	if len(s.scales) > 0 {
		scales = append(scales, s.scales[i].Get())
	}
	return w, scales
}

// partInMemory is partAt of a part of the chunks left, which are not copied.
func (s *streamer) partInMemory(i int, n0 kernel.V) (w [][]kernel.Vec, scales []kernel.V) {
	chunk, product, col := s.part(i)
	of := s.ws[product]
	for r := range s.unit.rows {
		from, scale := s.wAt(i, r, n0)
		var row []kernel.Vec
		for v := range s.vectors() {
			at := s.Add(from, s.Int(v*16*lanesPerRow))
			if s.depth%matrixChunk == 0 {
				row = append(row, of.rows.Bytes().LoadVec(at, 16))
				continue
			}
			first := s.Add(s.Mul(s.chunk(chunk), s.Int(matrixChunk)), s.Mul(s.Add(s.group, s.Int(v*lanesPerRow)), s.Int(s.run())))
			row = append(row, of.rows.Bytes().LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, 16))
		}
		w = append(w, row)
		if s.w == ir.F4E2M1 {
			scales = append(scales, of.scales.Bytes().Load(s.Add(scale, s.group)))
		}
	}
	if s.w != ir.BF16 && s.w != ir.F4E2M1 {
		scales = append(scales, s.scaleOf8(i, product, col, n0))
	}
	return w, scales
}

// multiplyPart adds a part to the sums.
func (s *streamer) multiplyPart(i int, w [][]kernel.Vec, scales []kernel.V, x [][]kernel.Vec) {
	_, product, col := s.part(i)
	if diag("nocvt") {
		var out [][]kernel.Vec
		for _, row := range w {
			var r []kernel.Vec
			for len(r) < xVectors {
				r = append(r, row...)
			}
			out = append(out, r)
		}
		if s.w != ir.BF16 && s.w != ir.F4E2M1 {
			scales[0] = s.DecodeE8M0(scales[0])
		}
		w = out
	} else if s.w == ir.F4E2M1 {
		var rows []kernel.Vec
		for _, row := range w {
			rows = append(rows, row...)
		}
		w = nil
		for _, row := range s.E2M1RowsApart(rows, scales) {
			w = append(w, s.inVectors(row))
		}
	} else {
		for i, b := range scales {
			scales[i] = s.DecodeE8M0(b)
		}
		w = s.asBF16(w, scales)
	}
	for r := range s.rows {
		s.addTile(s.sum(product, r, col), w, scales, x[s.rowOfX(product, r)], kernel.V{})
	}
}

// inVectors are bf16 numbers in vectors of matrixRun.
func (s *streamer) inVectors(x kernel.Vec) []kernel.Vec {
	var out []kernel.Vec
	for i := 0; i < x.Len(); i += matrixRun / 2 {
		out = append(out, s.Part(x, i, matrixRun/2))
	}
	return out
}

// xOf is x of a chunk by row; where products have rows of their own, of one product.
func (s *streamer) xOf(chunk, product int) [][]kernel.Vec {
	out := make([][]kernel.Vec, s.rowsOfX())
	for r := range out {
		if s.apart && r/s.rows != product {
			continue
		}
		if s.keeps && chunk < s.whole {
			for _, v := range s.kept[chunk*s.rowsOfX()+r] {
				out[r] = append(out[r], v.Get())
			}
			continue
		}
		for v := range xVectors {
			out[r] = append(out[r], s.xVector(chunk, r, v))
		}
		if s.stage == 0 && s.apartByHalves() {
			for v, x := range out[r] {
				out[r][v] = s.BF16Apart(x)
			}
		}
	}
	return out
}

// keepX has registers take row r of x in a chunk.
func (s *streamer) keepX(row []*kernel.VecVar, chunk, r int) {
	for v, x := range row {
		y := s.xVector(chunk, r, v)
		if s.stage == 0 && s.apartByHalves() {
			y = s.BF16Apart(y)
		}
		x.Set(y)
	}
}

// xVector is vector v that the lane has of row r of x in a chunk: of the k that it has of
// w there.
func (s *streamer) xVector(chunk, r, v int) kernel.Vec {
	switch {
	case s.stage > 0:
		at := s.Add(s.Mul(s.chunk(chunk), s.Int(s.stage)), s.x.staged[r])
		at = s.Add(s.Mul(at, s.Int(s.stageStride())), s.Mul(s.group, s.Int(matrixRun)))
		return s.staged.LoadVec(s.Add(at, s.Int(v*lanesPerRow*matrixRun)), matrixRun)
	case s.copiesX() && chunk < s.whole:
		unit := s.Add(s.Mul(s.group, s.Int(s.run()/matrixRun)), s.Int(s.vectorK(v)/matrixRun))
		row := s.Add(s.sub, s.Int(r*s.unit.cols))
		at := s.Add(s.Mul(row, s.Int(matrixChunk/matrixRun)), s.swizzled(unit, row))
		return s.copies.LoadVec(s.Add(s.xPlace(chunk), s.Mul(at, s.Int(16))), 16)
	}
	at, first := s.xAt(chunk, r, v)
	if s.depth%matrixChunk == 0 {
		return s.x.x.LoadVec(at, matrixRun)
	}
	return s.x.x.LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, matrixRun)
}

// vectorK is the first k of vector v of x in a chunk, in the first lane of a row.
func (p *matrixProduct) vectorK(v int) int {
	i, run := v*matrixRun, p.run()
	return i/run*run*lanesPerRow + i%run
}

// xAt is where that vector is in memory, and its first k.
func (s *streamer) xAt(chunk, r, v int) (at, first kernel.V) {
	first = s.Add(s.Mul(s.chunk(chunk), s.Int(matrixChunk)), s.Mul(s.group, s.Int(s.run())))
	first = s.Add(first, s.Int(s.vectorK(v)))
	return s.Add(s.Mul(s.x.at[r], s.Int(s.depth)), first), first
}

// combine adds the warps' sums in their order and has done finish the tiles of 16, each
// in one warp. Of turns, the barrier that a warp passes with the next tile's sums tells
// that those before have been read.
func (s *streamer) combine(step kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	tiles, waves := s.rows*s.cols, s.unit.waves
	words := s.slotWords() / waves / s.products
	at := func(wave, slot kernel.V, product int) kernel.V {
		i := s.Add(s.Mul(s.Add(s.Mul(wave, s.Int(s.slots)), slot), s.Int(s.products)), s.Int(product))
		i = s.Mul(i, s.Int(words))
		if s.turns {
			i = s.Add(i, s.Mul(s.And(step, s.Int(1)), s.Int(s.slots*s.slotWords())))
		}
		return i
	}
	for first := 0; first < tiles; first += s.slots {
		if first > 0 || s.strip > 1 && !s.turns {
			s.Barrier() // what lies there has been read
		}
		n := min(s.slots, tiles-first)
		for slot := range n {
			for p := range s.products {
				s.storeSum(at(s.wave, s.Int(slot), p), s.sum(p, (first+slot)/s.cols, (first+slot)%s.cols).Get())
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
			row, col := s.UDiv(tile, s.Int(s.cols)), s.URem(tile, s.Int(s.cols))
			row = s.Add(s.Mul(row, s.Int(s.unit.cols)), s.sub)
			done(row, s.Add(s.Mul(col, s.Int(target.MatrixTile)), s.Mul(s.group, s.Int(target.ResultRun))), sums)
		}
		if n < waves {
			s.If(s.Cmp(kernel.LT, s.wave, s.Int(n)), finish)
		} else {
			finish()
		}
	}
}

func (s *streamer) storeSum(at kernel.V, sum kernel.Vec) {
	if !s.oneRow {
		s.unit.storeSum(s.K, s.sums, at, s.lane, sum)
		return
	}
	s.If(s.Cmp(kernel.EQ, s.group, s.Int(0)), func() { // of column 0, of two rows
		for i := range s.unit.rows {
			s.sums.Store(s.Add(at, s.Add(s.sub, s.Int(i*target.MatrixTile/s.unit.rows))), s.At(sum, i*sum.Len()/s.unit.rows))
		}
	})
}

func (s *streamer) loadSum(at kernel.V) kernel.Vec {
	if !s.oneRow {
		return s.unit.loadSum(s.K, s.sums, at, s.lane)
	}
	return s.AsF32(s.sums.LoadVec(s.Add(at, s.Mul(s.group, s.Int(target.ResultRun))), target.ResultRun))
}

// spec is what a kernel's code depends on of it.
func (m matrixStream) spec() string {
	if m == (matrixStream{}) {
		return ""
	}
	return fmt.Sprintf(" strips%v ring%d resident%d keeps%v stage%d rounds%v%v%v%v", m.strip > 1, m.ring, m.resident, m.keeps, m.stage, m.rounds, diag("nocvt"), diag("noload"), diag("noscale"))
}
