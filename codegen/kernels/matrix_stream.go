package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of few rows on NVIDIA's warps. They are bound by reading w, so a group always
// has some of it under way: a ring of places in shared memory, of which each is filled
// again as soon as all warps have multiplied what was there, be it with w of the group's
// next tile. A place has a step: of each row of the tile, the chunk of each warp, which
// lie together in memory, so that whole lines are copied. A group multiplies several
// tiles, one after the other, with the same x.

// matrixStream says how such a product runs. No result depends on it.
type matrixStream struct {
	strip    int // tiles of a group, one after the other
	ring     int // places
	split    int // places that the parts of a step are spread over
	resident int // groups that run on a processor at a time

	// Where x is: in registers, if keeps, else in shared memory, if stage, or copied along
	// with w. stage is the number of rows that a group has there, rounded in blocks if
	// rounds.
	keeps, rounds bool
	stage         int
}

// streams reports whether a product runs so.
func (p *matrixProduct) streams() bool { return unitOf(p.t).mma != nil && p.skinny() && p.gemm == nil }

// steps is how many chunks each of the warps has, and rest how many chunks are left, of
// which some warps have one more: K's end, if that is no whole chunk, is among them.
func (p *matrixProduct) steps() (whole, rest int) {
	n := unitOf(p.t).waves
	whole = p.depth / matrixChunk / n
	return whole, ceilDiv(p.depth, matrixChunk) - whole*n
}

// parts is the number of parts of a step. A part is what a warp multiplies at once: a
// tile of 16 rows of one of the weights, in one of the warp's chunks.
func (p *matrixProduct) parts() int { return p.products * p.cols }

// partsAtOnce is the number of parts in a place.
func (p *matrixProduct) partsAtOnce() int { return p.parts() / max(1, p.split) }

const (
	unit     = 16 // bytes that a lane copies or reads at once
	xVectors = perLane / matrixRun
)

// aheadBytes is how much of its weights a group asks for before the launches before have
// ended: about what it has under way later.
const aheadBytes = 64 << 10

// prefetch has the first tiles of a group on their way to the L2 cache.
func (p *matrixProduct) prefetch(k *kernel.K, w *kernel.Buf, index, colTile, strip kernel.V) {
	n0 := k.Mul(colTile, k.Mul(strip, k.Int(p.tileCols())))
	left, most := k.Sub(k.Int(p.n), n0), max(1, aheadBytes/p.products/int(p.w.Bytes(p.depth)))
	rows := k.Min(k.Min(left, k.Mul(strip, k.Int(p.tileCols()))), k.Int(most))
	w.PrefetchRange(k.Mul(k.Add(k.Mul(index, k.Int(p.n)), n0), k.Int(p.depth)), k.Mul(rows, k.Int(int(p.w.Bytes(p.depth)))))
}

// streamer is the state of stream.
type streamer struct {
	*matrixEmitter
	whole, rest   int
	n0, last      kernel.V    // the first tile's first row, and the number of the last tile
	pool          *kernel.Buf // the ring, x and the sums, as bytes
	next, before  *kernel.Var // where the place that is multiplied next and the one before begin, i32
	from          ringSources
	scales, ahead []*kernel.Var      // of 8-bit weights, by step and part, and of the next tile: bytes
	kept          [][]*kernel.VecVar // x, by step and row: xVectors each
	staged, sums  *kernel.Buf
	slots         int // tiles of 16 whose sums are in sums at a time
}

func (p *matrixProduct) streamer(k *kernel.K, x matrixRows) *streamer {
	s := &streamer{matrixEmitter: &matrixEmitter{matrixProduct: p, K: k, unit: unitOf(p.t), x: x, lane: k.WaveLane(), wave: k.Wave()}}
	s.sub, s.group = s.unit.place(k, s.lane)
	s.whole, s.rest = p.steps()
	return s
}

// stream is multiply for few rows, of as many tiles from row n0 on as strip says and
// there are.
func (p *matrixProduct) stream(k *kernel.K, x matrixRows, ws []matrixWeight, n0, strip kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	s := p.streamer(k, x)
	s.ws, s.n0 = ws, n0
	if p.resident > 1 {
		k.Resident(p.resident)
	}
	left := k.UDiv(k.Sub(k.Int(p.n+p.tileCols()-1), n0), k.Int(p.tileCols()))
	s.last = k.Sub(k.Select(k.Cmp(kernel.LT, left, strip), left, strip), k.Int(1))
	if p.strip == 1 {
		s.last = k.Int(0)
	}
	s.allocate()
	s.from = s.sources()
	loaded := x.loaded
	if loaded == nil {
		loaded = s.loadX() // first, for it would wait behind all copies
	}
	s.fillPlaces(0, p.filledFirst())
	s.loadScales(s.scales, k.Int(0))
	if x.behind != nil {
		x.behind()
	}
	s.stageX(loaded)
	s.fillPlaces(p.filledFirst(), s.ring-1) // the last place is filled behind the first barrier
	for i, row := range s.kept {
		s.keepX(row, i/p.rowsOfX(), i%p.rowsOfX())
	}
	if s.stage > 0 && !s.keeps && s.whole == 0 { // else the first step has a barrier
		k.Barrier()
	}
	tile := func(i kernel.V) {
		s.tile(i)
		at := s.rowOf(i)
		s.combine(func(row, col kernel.V, sums []kernel.Vec) { done(row, k.Add(at, col), sums) })
	}
	if p.strip == 1 {
		tile(k.Int(0))
		return
	}
	k.For(k.Int(0), k.Add(s.last, k.Int(1)), 1, tile)
}

// filledFirst is how many places are asked for before x is in shared memory: one of 8-bit
// weights whose x only has to be copied there, so that the first step of all groups comes
// before what they need later; all where x comes late, for it is rounded, or is not there.
func (p *matrixProduct) filledFirst() int {
	if p.stage > 0 && !p.rounds && p.w != ir.BF16 && p.w != ir.F4E2M1 {
		return 1
	}
	return p.ring - 1
}

// fillPlaces starts the fillings from one to before another of the first tile.
func (s *streamer) fillPlaces(from, to int) {
	for i := from; i < to; i++ {
		s.fill(s.Int(0), i, s.placeOf(i))
	}
}

// rowOf is the first row of tile i.
func (s *streamer) rowOf(i kernel.V) kernel.V { return s.Add(s.n0, s.Mul(i, s.Int(s.tileCols()))) }

// copiesX reports whether x comes along with w.
func (p *matrixProduct) copiesX() bool { return !p.keeps && p.stage == 0 }

// copiesScales reports whether the scales of w do: those of e2m1, where a step's are
// whole units.
func (p *matrixProduct) copiesScales() bool {
	return p.w == ir.F4E2M1 && p.depth%(unit*target.ScaleBlock) == 0
}

// stepBytes is what a step has of a row of w, partBytes of a part of all warps, scaleBytes
// of the scales of a row, and xBytes of a row of x.
func (p *matrixProduct) stepBytes() int { return unitOf(p.t).waves * int(p.w.Bytes(matrixChunk)) }
func (p *matrixProduct) partBytes() int { return target.MatrixTile * p.stepBytes() }
func (p *matrixProduct) scaleBytes() int {
	return unitOf(p.t).waves * matrixChunk / target.ScaleBlock
}
func (p *matrixProduct) xBytes() int { return unitOf(p.t).waves * matrixChunk * 2 }

// placeBytes is the size of a place: the parts, their scales and x.
func (p *matrixProduct) placeBytes() int {
	n := p.partsAtOnce() * p.partBytes()
	if p.copiesScales() {
		n += p.partsAtOnce() * target.MatrixTile * p.scaleBytes()
	}
	if p.copiesX() {
		n += p.rowsOfX() * unitOf(p.t).cols * p.xBytes()
	}
	return n
}

// shared is what a group has of shared memory, in bytes: the ring, x and the sums.
func (p *matrixProduct) shared() (ring, x, sums int) {
	sums = 4 * p.sumSlots() * p.slotWords()
	if p.stage > 0 {
		x = ceilDiv(p.depth, matrixChunk) * p.stage * p.stageStride() * 2
	}
	return p.ring * p.placeBytes(), x, sums
}

// slotWords is the room for all warps' sums of one tile of 16, and sumSlots for how many
// there is room.
func (p *matrixProduct) slotWords() int {
	words := unitOf(p.t).sumWords()
	if p.few > 0 {
		words = p.few * target.MatrixTile
	}
	return unitOf(p.t).waves * p.products * words
}

func (p *matrixProduct) sumSlots() int {
	return min(p.rows*p.cols, unitOf(p.t).waves, max(1, maxSumWords/p.slotWords()))
}

func (s *streamer) allocate() {
	for range s.products * s.rows * s.cols {
		s.acc = append(s.acc, s.VecVar(s.ZeroVec(kernel.F32, target.ResultRun)))
	}
	if s.w != ir.BF16 && s.w != ir.F4E2M1 {
		for range s.whole * s.parts() {
			s.scales, s.ahead = append(s.scales, s.Var(s.Int32(0))), append(s.ahead, s.Var(s.Int32(0)))
		}
	}
	if s.keeps {
		for range s.whole * s.rowsOfX() {
			var row []*kernel.VecVar
			for range xVectors {
				row = append(row, s.VecVar(s.ZeroVec(kernel.I32, 4)))
			}
			s.kept = append(s.kept, row)
		}
	}
	if !s.turns() {
		s.next, s.before = s.Var(s.Int32(0)), s.Var(s.Int32((s.ring-1)*s.placeBytes()))
	}
	ring, x, sums := s.shared()
	s.slots = s.sumSlots()
	s.pool = s.SharedPool(ring + x + sums)
	s.staged, s.sums = s.pool.At(s.Int(ring)).As(ir.BF16), s.pool.At(s.Int(ring+x)).As(ir.F32)
}

// loadScales loads the scales of all parts of a tile of 8-bit weights.
func (s *streamer) loadScales(to []*kernel.Var, tile kernel.V) {
	for i, x := range to {
		x.Set(s.scaleOf8(i%s.parts(), s.chunk(i/s.parts()), s.rowOf(tile)))
	}
}

// scaleOf8 is the scale of a part in a chunk, which all its rows have.
func (s *streamer) scaleOf8(part int, chunk, n0 kernel.V) kernel.V {
	product, col := s.part(part)
	w := s.ws[product]
	rows, block := ceilDiv(s.n, s.block[0]), s.UDiv(s.clamp(s.Add(n0, s.Int(col*target.MatrixTile))), s.Int(s.block[0]))
	at := s.Mul(s.Add(s.Mul(w.index, s.Int(rows)), block), s.Int(s.scaleCols()))
	return w.scales.Bytes().Load(s.Add(at, s.UDiv(s.Mul(chunk, s.Int(matrixChunk)), s.Int(s.block[1]))))
}

// chunk is the number of this warp's chunk of a step.
func (s *streamer) chunk(step int) kernel.V { return s.Add(s.wave, s.Int(step*s.unit.waves)) }

// tile adds up the products of a tile, while the next is under way.
func (s *streamer) tile(i kernel.V) {
	for _, a := range s.acc {
		a.Set(s.ZeroVec(kernel.F32, target.ResultRun))
	}
	if s.strip > 1 {
		next := s.Add(i, s.Int(1))
		s.loadScales(s.ahead, s.Select(s.Cmp(kernel.LE, next, s.last), next, i))
	}
	for f := range s.places() {
		s.WaitCopies(s.ring - 2)
		s.Barrier() // all lanes' copies are there, and all warps are done with the place before
		at, free := s.takePlace(f)
		s.fill(i, f+s.ring-1, free)
		step, first := f/s.split, f%s.split*s.partsAtOnce()
		var x [][]kernel.Vec
		for j := range s.partsAtOnce() {
			product, col := s.part(first + j)
			if j == 0 || s.apart && col == 0 {
				x = s.xOf(at, step, product)
			}
			w, scales := s.partAt(at, first, j, step, s.rowOf(i))
			s.multiplyPart(first+j, w, scales, x)
		}
	}
	if s.strip > 1 {
		for j, x := range s.scales {
			x.Set(s.ahead[j].Get())
		}
	}
	if s.rest > 0 {
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.rest)), func() {
			for part := range s.parts() {
				product, _ := s.part(part)
				w, scales := s.partInMemory(part, s.rowOf(i))
				s.multiplyPart(part, w, scales, s.xOf(s.Int(0), s.whole, product))
			}
		})
	}
}

// multiplyPart adds a part to the sums.
func (s *streamer) multiplyPart(part int, w [][]kernel.Vec, scales []kernel.V, x [][]kernel.Vec) {
	product, col := s.part(part)
	if s.w == ir.F4E2M1 {
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
		s.addTile(s.sum(0, product, r, col), w, scales, x[s.rowOfX(product, r)], kernel.V{})
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

// stripArg is what a kernel has among its integers so that stripOf finds the strip there,
// as the last.
func (p *matrixProduct) stripArg() []int {
	if !p.streams() {
		return nil
	}
	return []int{p.strip}
}

func (p *matrixProduct) stripOf(k *kernel.K, ints []kernel.V) kernel.V {
	if !p.streams() {
		return k.Int(1)
	}
	return ints[len(ints)-1]
}

// spec is what a kernel's code depends on of it.
func (m matrixStream) spec() string {
	if m == (matrixStream{}) {
		return ""
	}
	return fmt.Sprintf(" strips%v ring%d split%d resident%d keeps%v stage%d rounds%v", m.strip > 1, m.ring, m.split, m.resident, m.keeps, m.stage, m.rounds)
}
