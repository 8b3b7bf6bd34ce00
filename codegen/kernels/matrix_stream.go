package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of few rows on NVIDIA's warps. They are bound by reading w, so a warp always
// has some of it under way: a ring of registers, of which each part is loaded again as
// soon as it was multiplied, with what comes so many parts later, of the group's next
// tile too. A group multiplies several tiles, one after the other, with the same x.

// matrixStream says how such a product runs. No result depends on it.
type matrixStream struct {
	strip    int // tiles of a group, one after the other
	ring     int // parts of w that a warp has under way
	ahead    int // chunks of x that a warp has in registers; 0: it reads x when it needs it
	resident int // groups that run on a processor at a time
	stage    int // rows of x that a group rounds in blocks and keeps in shared memory
}

// streams reports whether a product runs so.
func (p *matrixProduct) streams() bool { return unitOf(p.t).mma != nil && p.skinny() }

// streamer is the state of stream. A part is what a warp multiplies at once: a tile of
// 16 rows of one of the weights, in one of the warp's chunks.
type streamer struct {
	*matrixEmitter
	wave, sub, group kernel.V
	whole, rest      int          // chunks that each warp has, and warps that have one more
	ring             []streamPart // by place in the ring
	xs               [][][]*kernel.VecVar
	staged           *kernel.Buf // rows of x, rounded, in the order that lanes read them
	sums             *kernel.Buf
	slots            int  // tiles of 16 whose sums are in sums at a time
	turns            bool // sums of a tile, and of the next beside them
}

// streamPart is what a lane has of a part: vectors of 16 bytes, by which of its rows,
// and the scales' bytes, which nothing waits for before it is multiplied.
type streamPart struct {
	w      [][]*kernel.VecVar
	scales []*kernel.Var
}

// stream is multiply for few rows, of as many tiles from row n0 on as strip says and
// there are.
func (p *matrixProduct) stream(k *kernel.K, x matrixRows, ws []matrixWeight, n0, strip kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	u := unitOf(p.t)
	s := &streamer{matrixEmitter: &matrixEmitter{matrixProduct: p, K: k, unit: u, x: x, ws: ws}, wave: k.Wave()}
	s.sub, s.group = u.place(k, k.WaveLane())
	chunks := ceilDiv(p.depth, matrixChunk)
	s.whole, s.rest = chunks/u.waves, chunks%u.waves
	if p.resident > 1 {
		k.Resident(p.resident)
	}
	s.allocate()
	for i := range min(p.matrixStream.ring, s.parts()) {
		s.load(s.ring[i], i, n0)
	}
	s.round()
	for i := range min(p.ahead, s.whole) {
		s.keepX(i)
	}
	if s.staged != nil && s.keepsX() {
		k.Barrier() // the sums lie where x did
	}
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

// perChunk is the number of parts of a chunk, and parts those of a tile but for chunks
// that some warps alone have.
func (s *streamer) perChunk() int { return s.products * s.cols }
func (s *streamer) parts() int    { return s.whole * s.perChunk() }

// part is which chunk of the warp's, weight and column a part is of.
func (s *streamer) part(i int) (chunk, product, col int) {
	n := s.perChunk()
	return i / n, i % n / s.cols, i % n % s.cols
}

// keepsX reports whether all that a warp needs of x stays in its registers.
func (s *streamer) keepsX() bool { return s.whole > 0 && s.ahead == s.whole && s.rest == 0 }

// xVectors is the number of vectors that a lane has of a row of x in a chunk.
const xVectors = perLane / matrixRun

func (s *streamer) allocate() {
	words := func() *kernel.VecVar { return s.VecVar(s.ZeroVec(kernel.I32, 4)) }
	for range s.products * s.rows * s.cols {
		s.acc = append(s.acc, s.VecVar(s.ZeroVec(kernel.F32, target.ResultRun)))
	}
	for range max(1, min(s.matrixStream.ring, s.parts())) {
		var part streamPart
		for range s.unit.rows {
			var row []*kernel.VecVar
			for range perLane / s.run() {
				row = append(row, words())
			}
			part.w = append(part.w, row)
		}
		for range s.scalesOfPart() {
			part.scales = append(part.scales, s.Var(s.Int32(0)))
		}
		s.ring = append(s.ring, part)
	}
	for range min(s.ahead, s.whole) {
		var rows [][]*kernel.VecVar
		for range s.rowsOfX() {
			var row []*kernel.VecVar
			for range xVectors {
				row = append(row, words())
			}
			rows = append(rows, row)
		}
		s.xs = append(s.xs, rows)
	}
	// Sums, and x where it is rounded; both at once if x is read while there are sums.
	tiles := s.rows * s.cols
	one := s.unit.waves * s.products * s.sumWords()
	s.slots = min(tiles, s.unit.waves, max(1, maxSumWords/one))
	sums, x := one*s.slots, 0
	if s.turns = s.strip > 1 && s.slots == tiles && 2*sums <= maxSumWords; s.turns {
		sums *= 2
	}
	if s.stage > 0 {
		x = ceilDiv(s.depth, matrixChunk) * s.stage * s.stageStride() / 2
	}
	switch {
	case x == 0 || s.keepsX() || s.strip == 1:
		both := s.Shared(ir.F32, max(sums, x))
		s.sums, s.staged = both, both.As(ir.BF16)
	default:
		s.sums, s.staged = s.Shared(ir.F32, sums), s.Shared(ir.F32, x).As(ir.BF16)
	}
	if x == 0 {
		s.staged = nil
	}
}

// scalesOfPart is how many scales a lane has of a part: one for a tile, or one for each
// of its rows, of which a lane's k in a chunk are one block.
func (s *streamer) scalesOfPart() int {
	switch s.w {
	case ir.BF16:
		return 0
	case ir.F4E2M1:
		return s.unit.rows
	}
	return 1
}

// load loads part i of the tile that begins at row n0.
func (s *streamer) load(to streamPart, i int, n0 kernel.V) {
	chunk, product, col := s.part(i)
	w := s.ws[product]
	k := s.chunk(chunk)
	rowBytes, lane := int(s.w.Bytes(s.depth)), s.Add(s.Mul(s.group, s.Int(16)), s.Mul(k, s.Int(int(s.w.Bytes(matrixChunk)))))
	for r, row := range to.w {
		at := s.row(w, n0, col*target.MatrixTile+r*target.MatrixTile/s.unit.rows)
		from := s.Add(s.Mul(at, s.Int(rowBytes)), lane)
		for v, x := range row {
			at := s.Add(from, s.Int(v*16*lanesPerRow))
			if s.depth%matrixChunk == 0 {
				x.Set(w.rows.Bytes().LoadVec(at, 16))
				continue
			}
			first := s.Add(s.Mul(k, s.Int(matrixChunk)), s.Mul(s.Add(s.group, s.Int(v*lanesPerRow)), s.Int(s.run())))
			x.Set(w.rows.Bytes().LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, 16))
		}
		if s.w == ir.F4E2M1 {
			block := s.Add(s.Mul(k, s.Int(matrixChunk/target.ScaleBlock)), s.group)
			to.scales[r].Set(w.scales.Bytes().Load(s.Add(s.Mul(at, s.Int(s.scaleCols())), block)))
		}
	}
	if s.scalesOfPart() == 1 {
		rows, b := ceilDiv(s.n, s.block[0]), s.UDiv(s.clamp(s.Add(n0, s.Int(col*target.MatrixTile))), s.Int(s.block[0]))
		at := s.Mul(s.Add(s.Mul(w.index, s.Int(rows)), b), s.Int(s.scaleCols()))
		to.scales[0].Set(w.scales.Bytes().Load(s.Add(at, s.UDiv(s.Mul(k, s.Int(matrixChunk)), s.Int(s.block[1])))))
	}
}

// chunk is the number of this warp's chunk i.
func (s *streamer) chunk(i int) kernel.V { return s.Add(s.wave, s.Int(i*s.unit.waves)) }

// row is the lane's row of all matrices of a stack, i rows below its first of a tile.
func (s *streamer) row(w matrixWeight, n0 kernel.V, i int) kernel.V {
	row := s.clamp(s.Add(s.Add(n0, s.sub), s.Int(i)))
	return s.Add(s.Mul(w.index, s.Int(s.n)), row)
}

// clamp keeps a row within the weight. Where no tile crosses its end, rows differ by
// constants, which a load has for nothing.
func (s *streamer) clamp(row kernel.V) kernel.V {
	if s.n%s.tileCols() == 0 {
		return row
	}
	return s.Select(s.Cmp(kernel.LT, row, s.Int(s.n)), row, s.Int(s.n-1))
}

// tile adds up the products of a tile. Unless it is the last, the next is under way
// then.
func (s *streamer) tile(n0 kernel.V, last bool) {
	for _, a := range s.acc {
		a.Set(s.ZeroVec(kernel.F32, target.ResultRun))
	}
	next := s.Add(n0, s.Int(s.tileCols()))
	size := len(s.ring)
	for c := range s.whole {
		var x [][]kernel.Vec
		for j := range s.perChunk() {
			i := c*s.perChunk() + j
			if j == 0 || s.apart {
				x = s.xOf(i)
			}
			s.multiplyPart(s.ring[i%size], i, x)
			if i += size; i < s.parts() {
				s.load(s.ring[i%size], i, n0)
			} else if !last {
				s.load(s.ring[i%size], i-s.parts(), next)
			}
		}
		if s.ahead > 0 && !s.keepsX() && (c+s.ahead < s.whole || !last) {
			s.keepX((c + s.ahead) % s.whole)
		}
	}
	if s.rest > 0 {
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.rest)), func() {
			for i := s.parts(); i < s.parts()+s.perChunk(); i++ {
				s.load(s.ring[0], i, n0)
				s.multiplyPart(s.ring[0], i, s.xOf(i))
			}
		})
	}
}

// multiplyPart adds a part to the sums.
func (s *streamer) multiplyPart(part streamPart, i int, x [][]kernel.Vec) {
	_, product, col := s.part(i)
	var w [][]kernel.Vec
	for _, row := range part.w {
		w = append(w, values(row))
	}
	var scales []kernel.V
	for _, b := range part.scales {
		scales = append(scales, s.DecodeE8M0(b.Get()))
	}
	b := s.asBF16(w, scales)
	for r := range s.rows {
		s.addTile(s.sum(product, r, col), b, scales, x[s.rowOfX(product, r)], kernel.V{})
	}
}

func values(vars []*kernel.VecVar) []kernel.Vec {
	var out []kernel.Vec
	for _, v := range vars {
		out = append(out, v.Get())
	}
	return out
}

// xOf is x for part i, by row; of rows that other parts have it is empty.
func (s *streamer) xOf(i int) [][]kernel.Vec {
	chunk, product, _ := s.part(i)
	out := make([][]kernel.Vec, s.rowsOfX())
	for r := range out {
		if s.apart && r/s.rows != product {
			continue
		}
		if s.ahead > 0 && chunk < s.whole {
			out[r] = values(s.xs[chunk%s.ahead][r])
		} else {
			out[r] = s.readX(chunk, r)
		}
		if s.staged == nil && s.apartByHalves() {
			for v, x := range out[r] {
				out[r][v] = s.BF16Apart(x)
			}
		}
	}
	return out
}

// keepX has registers take x of a chunk.
func (s *streamer) keepX(chunk int) {
	for r, row := range s.xs[chunk%s.ahead] {
		for v, x := range s.readX(chunk, r) {
			row[v].Set(x)
		}
	}
}

// readX is the lane's vectors of a row of x in a chunk, those that it has of w there.
func (s *streamer) readX(chunk, row int) []kernel.Vec {
	k := s.chunk(chunk)
	var out []kernel.Vec
	for v := range xVectors {
		if s.staged != nil {
			at := s.Add(s.Mul(k, s.Int(s.stage)), s.x.staged[row])
			at = s.Add(s.Mul(at, s.Int(s.stageStride())), s.Mul(s.group, s.Int(matrixRun)))
			out = append(out, s.staged.LoadVec(s.Add(at, s.Int(v*lanesPerRow*matrixRun)), matrixRun))
			continue
		}
		first := s.Add(s.Mul(k, s.Int(matrixChunk)), s.Mul(s.group, s.Int(s.run())))
		first = s.Add(first, s.Int(v*matrixRun/s.run()*s.run()*lanesPerRow+v*matrixRun%s.run()))
		at := s.Add(s.Mul(s.x.at[row], s.Int(s.depth)), first)
		if s.depth%matrixChunk == 0 {
			out = append(out, s.x.x.LoadVec(at, matrixRun))
		} else {
			out = append(out, s.x.x.LoadVecIf(s.Cmp(kernel.LT, first, s.Int(s.depth)), at, matrixRun))
		}
	}
	return out
}

// sumWords is the room for the sums of a tile of 16: all, or those of the one row of x
// that counts.
func (s *streamer) sumWords() int {
	if s.oneRow {
		return target.MatrixTile
	}
	return s.unit.sumWords()
}

// combine adds the warps' sums in their order and has done finish the tiles of 16, each
// in one warp. Of turns, the barrier that a warp passes with the next tile's sums tells
// that those before have been read.
func (s *streamer) combine(step kernel.V, done func(row, col kernel.V, sums []kernel.Vec)) {
	tiles, waves := s.rows*s.cols, s.unit.waves
	place := func(wave, slot kernel.V, product int) kernel.V {
		at := s.Add(s.Mul(s.Add(s.Mul(wave, s.Int(s.slots)), slot), s.Int(s.products)), s.Int(product))
		at = s.Mul(at, s.Int(s.sumWords()))
		if s.turns {
			at = s.Add(at, s.Mul(s.And(step, s.Int(1)), s.Int(waves*s.slots*s.products*s.sumWords())))
		}
		return at
	}
	for first := 0; first < tiles; first += s.slots {
		if first > 0 || s.strip > 1 && !s.turns || s.staged != nil && !s.keepsX() && s.strip == 1 {
			s.Barrier() // what lies there has been read
		}
		n := min(s.slots, tiles-first)
		for slot := range n {
			for p := range s.products {
				s.storeSum(place(s.wave, s.Int(slot), p), s.sum(p, (first+slot)/s.cols, (first+slot)%s.cols).Get())
			}
		}
		s.Barrier()
		finish := func() {
			var sums []kernel.Vec
			for p := range s.products {
				sum := s.loadSum(place(s.Int(0), s.wave, p))
				for w := 1; w < waves; w++ {
					sum = s.MapVec(func(v ...kernel.V) kernel.V { return s.Add(v[0], v[1]) }, sum, s.loadSum(place(s.Int(w), s.wave, p)))
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
		s.unit.storeSum(s.K, s.sums, at, s.WaveLane(), sum)
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
		return s.unit.loadSum(s.K, s.sums, at, s.WaveLane())
	}
	return s.AsF32(s.sums.LoadVec(s.Add(at, s.Mul(s.group, s.Int(target.ResultRun))), target.ResultRun))
}

// spec is what a kernel's code depends on of it.
func (m matrixStream) spec() string {
	if m == (matrixStream{}) {
		return ""
	}
	return fmt.Sprintf(" strips%v ring%d ahead%d resident%d stage%d", m.strip > 1, m.ring, m.ahead, m.resident, m.stage)
}
