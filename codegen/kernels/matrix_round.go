package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Rows of x in a group's shared memory, for products of few rows. The group may round
// them in blocks there: a launch that does takes longer than few rows do in every group.

// maxStaged is how many blocks of x a warp has to write there, at most.
const maxStaged = 20

// fewBlocks reports whether a group of a product that reads so many rows of x may have
// them in shared memory.
func (p *matrixProduct) fewBlocks(rows int) bool {
	whole, rest := p.steps()
	return rows*(whole+min(rest, 1)) <= maxStaged
}

// roundsFew reports whether groups of a product round the rows that each of them reads,
// in blocks of so many elements.
func (p *matrixProduct) roundsFew(rows, block int) bool {
	return unitOf(p.t).mma != nil && rows <= maxSkinny && block == matrixChunk && p.depth%matrixChunk == 0 && p.fewBlocks(rows)
}

// stageStride is how many elements apart blocks of x lie in shared memory. The rows that
// the lanes of a warp read at once use different banks.
func (p *matrixProduct) stageStride() int {
	if p.apart || p.stage == 1 {
		return matrixChunk
	}
	return matrixChunk + lanesPerRow*matrixRun
}

// loadX loads what stageX writes of the whole chunks.
func (s *streamer) loadX() (chunks [][]kernel.Vec) {
	if s.stage == 0 {
		return nil
	}
	for c := range s.whole {
		chunks = append(chunks, s.loadChunk(c))
	}
	return chunks
}

// stageX writes rows of x to shared memory, each warp the chunks that it multiplies.
func (s *streamer) stageX(loaded [][]kernel.Vec) {
	if s.stage == 0 {
		return
	}
	for c, rows := range loaded {
		s.stageChunk(c, rows)
	}
	if s.rest > 0 {
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.rest)), func() { s.stageChunk(s.whole, s.loadChunk(s.whole)) })
	}
	if s.keeps {
		s.Barrier()
	}
}

// loadChunk loads a chunk of all rows: a block's numbers are in the warp's lanes,
// laneQuant in each.
func (s *streamer) loadChunk(chunk int) (rows []kernel.Vec) {
	each := laneQuant(s.T)
	from := s.Mul(s.WaveLane(), s.Int(each))
	for _, row := range s.x.stage {
		at := s.Add(s.Mul(row, s.Int(s.depth)), s.Mul(s.chunk(chunk), s.Int(matrixChunk)))
		rows = append(rows, s.x.x.LoadVec(s.Add(at, from), each))
	}
	return rows
}

// stageChunk writes what was loaded of a chunk.
func (s *streamer) stageChunk(chunk int, rows []kernel.Vec) {
	k := s.chunk(chunk)
	from := s.Mul(s.WaveLane(), s.Int(laneQuant(s.T)))
	// Lanes read vectors as they do from memory, those of the lanes of a row side by side.
	run := s.Int(s.run())
	within := s.URem(from, run)
	vector := s.Add(s.Mul(s.UDiv(from, s.Int(s.run()*lanesPerRow)), s.Int(s.run()/matrixRun)), s.UDiv(within, s.Int(matrixRun)))
	to := s.Add(s.Mul(vector, s.Int(lanesPerRow)), s.URem(s.UDiv(from, run), s.Int(lanesPerRow)))
	to = s.Add(s.Mul(to, s.Int(matrixRun)), s.URem(from, s.Int(matrixRun)))
	write := func(r int, words kernel.Vec) {
		at := s.Add(s.Mul(s.Add(s.Mul(k, s.Int(s.stage)), s.Int(r)), s.Int(s.stageStride())), to)
		lo, hi := s.At(words, 0), s.At(words, 1)
		if s.rounds {
			lo, hi = s.roundBlock(words)
		}
		if s.apartByHalves() {
			lo, hi = s.halvesApart(lo, hi)
		}
		s.staged.StoreVec(at, s.MakeVec(lo, hi))
	}
	for r, words := range rows {
		if r == 0 || s.x.there == nil {
			write(r, words)
		} else {
			s.If(s.x.there[r], func() { write(r, words) })
		}
	}
}

// halvesApart is the part of kernel.K.BF16Apart of two lanes' eight numbers that a lane
// has: the first words in the lane of the first four.
func (s *streamer) halvesApart(lo, hi kernel.V) (a, b kernel.V) {
	first := s.Cmp(kernel.EQ, s.And(s.WaveLane(), s.Int(1)), s.Int(0))
	other := s.LaneXor(s.Select(first, hi, lo), 1)
	lower, upper := s.Select(first, lo, other), s.Select(first, other, hi)
	return s.LowerHalves(lower, upper), s.UpperHalves(lower, upper)
}

// roundBlock rounds four numbers of a block, two words of bf16, as quantBlock does.
func (s *streamer) roundBlock(words kernel.Vec) (lo, hi kernel.V) {
	f, _ := codeFormatOf(ir.F8E4M3, s.t)
	abs := func(i int) kernel.V { return s.And(s.At(words, i), s.Int32(0x7FFF7FFF)) }
	both := s.MaxBF16(abs(0), abs(1))
	// The bits of numbers that are not negative have their order, NaN last.
	top := s.Max(s.Max(s.Shl(both, s.Int32(16)), s.And(both, s.Int32(-1<<16))), s.Bits(s.Float(f.floor)))
	largest := s.Bits(s.WaveMaxUnsigned(top))
	scale, exp := s.Pow2Ceil(s.Mul(largest, s.Float(float64(float32(1/f.max)))))
	inverse := s.Shl(s.Sub(s.Int32(254), exp), s.Int32(23))
	scale = s.Bits(s.Select(s.Cmp(kernel.LE, largest, s.Float(math.MaxFloat32)), scale, s.Float(math.NaN())))
	twice := func(x kernel.V) kernel.V { return s.UpperHalves(x, x) }
	factor, back := twice(inverse), twice(scale)
	round := func(i int) kernel.V { return s.MulBF16(s.roundE4M3(s.MulBF16(s.At(words, i), factor)), back) }
	return round(0), round(1)
}

// roundE4M3 is the two numbers of e4m3 nearest to those of a word, which are no larger
// than the format's largest, ties to even: in a sum with a number 2^4 times the power of
// two below it, but for e4m3's least exponent, the last bit of a bf16 is e4m3's. -0
// becomes +0.
func (s *streamer) roundE4M3(x kernel.V) kernel.V {
	const least, more = (127 - 6) << 7, 4<<7 | 1<<6 // half as much again, so that x of either sign does not change its exponent
	power := s.MaxNumBF16(s.And(x, s.Int32(0x7F807F80)), s.Int32(least<<16|least))
	large := s.Add(power, s.Int32(more<<16|more))
	return s.SubBF16(s.AddBF16(x, large), large)
}
