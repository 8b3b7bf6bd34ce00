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

// xBlock is a block of a row of x that a warp writes to shared memory: of one of its
// chunks, and of which of the rows. Two are done at once, each by half of the lanes.
type xBlock struct{ step, row int }

// xPair is two such, or one, with what the lane loaded of either.
type xPair struct {
	blocks []xBlock
	words  kernel.Vec
}

// xBlocks are the blocks of some steps, those of rows that there may not be by themselves.
func (s *streamer) xBlocks(from, to int) (lists [][]xBlock) {
	lists = make([][]xBlock, 1)
	for row := range s.x.stage {
		if row > 0 && s.x.there != nil {
			lists = append(lists, nil)
		}
		for step := from; step < to; step++ {
			last := &lists[len(lists)-1]
			*last = append(*last, xBlock{step, row})
		}
	}
	return lists
}

// loadBlocks loads blocks, by lists of pairs.
func (s *streamer) loadBlocks(lists [][]xBlock) (out [][]xPair) {
	for _, list := range lists {
		var pairs []xPair
		for len(list) > 0 {
			p := xPair{blocks: list[:min(2, len(list))]}
			list = list[len(p.blocks):]
			at := s.ofHalf(p.blocks, func(b xBlock) kernel.V {
				return s.Add(s.Mul(s.x.stage[b.row], s.Int(s.depth)), s.Mul(s.chunk(b.step), s.Int(matrixChunk)))
			})
			p.words = s.x.x.LoadVec(s.Add(at, s.Mul(s.halfLane(), s.Int(matrixRun))), matrixRun)
			pairs = append(pairs, p)
		}
		out = append(out, pairs)
	}
	return out
}

// upperHalf reports whether the lane is in the upper half of its warp, and halfLane is
// which lane of its half it is.
func (s *streamer) upperHalf() kernel.V { return s.Cmp(kernel.GE, s.lane, s.Int(halfWarp)) }
func (s *streamer) halfLane() kernel.V  { return s.And(s.lane, s.Int(halfWarp-1)) }

const halfWarp = matrixChunk / matrixRun

// ofHalf is what the block of the lane's half has.
func (s *streamer) ofHalf(blocks []xBlock, what func(b xBlock) kernel.V) kernel.V {
	if len(blocks) == 1 {
		return what(blocks[0])
	}
	return s.Select(s.upperHalf(), what(blocks[1]), what(blocks[0]))
}

// loadX loads what stageX writes of the whole chunks.
func (s *streamer) loadX() [][]xPair {
	if s.stage == 0 {
		return nil
	}
	return s.loadBlocks(s.xBlocks(0, s.whole))
}

// loadEarly has what stage names loaded before it is known which weights are multiplied
// with it.
func (p *matrixProduct) loadEarly(k *kernel.K, x *matrixRows) { x.loaded = p.streamer(k, *x).loadX() }

// stageX writes rows of x to shared memory, each warp the chunks that it multiplies.
func (s *streamer) stageX(loaded [][]xPair) {
	if s.stage == 0 {
		return
	}
	s.writeBlocks(loaded)
	if s.rest > 0 {
		s.If(s.Cmp(kernel.LT, s.wave, s.Int(s.rest)), func() { s.writeBlocks(s.loadBlocks(s.xBlocks(s.whole, s.whole+1))) })
	}
	if s.keeps {
		s.Barrier()
	}
}

// writeBlocks writes what loadBlocks has loaded.
func (s *streamer) writeBlocks(lists [][]xPair) {
	for i, pairs := range lists {
		write := func() {
			for _, p := range pairs {
				s.writePair(p)
			}
		}
		if i == 0 {
			write()
		} else {
			s.If(s.x.there[i], write)
		}
	}
}

func (s *streamer) writePair(p xPair) {
	// Lanes read vectors as they do from memory, those of the lanes of a row side by side.
	from, run := s.Mul(s.halfLane(), s.Int(matrixRun)), s.Int(s.run())
	vector := s.Add(s.Mul(s.UDiv(from, s.Int(s.run()*lanesPerRow)), s.Int(s.run()/matrixRun)), s.UDiv(s.URem(from, run), s.Int(matrixRun)))
	to := s.Add(s.Mul(vector, s.Int(lanesPerRow)), s.URem(s.UDiv(from, run), s.Int(lanesPerRow)))
	at := s.ofHalf(p.blocks, func(b xBlock) kernel.V {
		return s.Mul(s.Add(s.Mul(s.chunk(b.step), s.Int(s.stage)), s.Int(b.row)), s.Int(s.stageStride()))
	})
	words := p.words
	if s.rounds {
		words = s.roundBlocks(words)
	}
	if s.apartByHalves() {
		words = s.BF16Apart(words)
	}
	store := func() { s.staged.StoreVec(s.Add(at, s.Mul(to, s.Int(matrixRun))), words) }
	if len(p.blocks) == 1 {
		s.If(s.Not(s.upperHalf()), store)
	} else {
		store()
	}
}

// roundBlocks rounds a block in each half of a warp, four words of bf16 in a lane, as
// quantBlock does.
func (s *streamer) roundBlocks(words kernel.Vec) kernel.Vec {
	f, _ := codeFormatOf(ir.F8E4M3, s.t)
	var both kernel.V
	for i := range words.Len() {
		abs := s.And(s.At(words, i), s.Int32(0x7FFF7FFF))
		if i > 0 {
			abs = s.MaxBF16(both, abs)
		}
		both = abs
	}
	// The bits of numbers that are not negative have their order, NaN last.
	least := s.Bits(s.Float(f.floor))
	top := s.Max(s.Max(s.Shl(both, s.Int32(16)), s.And(both, s.Int32(-1<<16))), least)
	upper := s.upperHalf()
	ofLower, ofUpper := s.WaveMaxUnsigned(s.Select(upper, least, top)), s.WaveMaxUnsigned(s.Select(upper, top, least))
	largest := s.Bits(s.Select(upper, ofUpper, ofLower))
	scale, exp := s.Pow2Ceil(s.Mul(largest, s.Float(float64(float32(1/f.max)))))
	inverse := s.Shl(s.Sub(s.Int32(254), exp), s.Int32(23))
	scale = s.Bits(s.Select(s.Cmp(kernel.LE, largest, s.Float(math.MaxFloat32)), scale, s.Float(math.NaN())))
	factor, back := s.UpperHalves(inverse, inverse), s.UpperHalves(scale, scale)
	var out []kernel.V
	for i := range words.Len() {
		out = append(out, s.MulBF16(s.roundE4M3(s.MulBF16(s.At(words, i), factor)), back))
	}
	return s.MakeVec(out...)
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
