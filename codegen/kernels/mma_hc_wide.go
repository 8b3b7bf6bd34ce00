package kernels

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Some tens of tokens in the first launch, where groups of eight would be several times as
// many as run at a time: there is a group for each processor, which has several tiles of
// tokens, and a warp has all streams of a tile. Every load is under way from the beginning,
// nothing is read twice, and the weights, which the warps of all tiles need, go through
// shared memory. A token has the row of sums that it has alone.

const (
	// wideGroups is how many groups there may be, one for each processor, and wideFrom how
	// many groups of eight tokens there must be more than.
	wideGroups, wideFrom = h200Processors, 3 * h200Processors

	// wideTiles is how many tiles a group has, and wideSides how many warps a tile, side by
	// side.
	wideTiles, wideSides = 4, 2

	// wideMost is the most parts of a tile, of the unit's columns of tokens each.
	wideMost = 2
)

// wideParts is how many parts of a tile groups have that have several tiles, the fewest with
// which all groups run at a time; 0 if there are more tokens, or few.
func (p *hcProduct) wideParts() int {
	if p.c != maxMatrixStreams || p.side() != wideSides || p.unit.waves != wideTiles*wideSides || p.pieces()*ceilDiv(p.t, p.unit.cols) <= wideFrom {
		return 0
	}
	for parts := 1; parts <= wideMost; parts++ {
		if p.pieces()*ceilDiv(p.t, parts*p.unit.cols*wideTiles) <= wideGroups {
			return parts
		}
	}
	return 0
}

// wide is a group that has a piece of several tiles.
func (w *hcWarps) wide() {
	p := w.p
	w.Resident(2) // 128 registers: with more they take longer
	first := w.Add(w.Mul(w.piece, w.Int(p.piece())), w.Mul(w.group, w.Int(matrixRun)))
	elementOf := func(side kernel.V) kernel.V { return w.Add(first, w.Mul(side, w.Int(mmaHCRun))) }
	side := w.URem(w.wave, w.Int(wideSides))
	tile := w.Add(w.Mul(w.tile, w.Int(wideTiles)), w.UDiv(w.wave, w.Int(wideSides)))
	w.own = w.Cmp(kernel.EQ, w.Int(0), w.Int(0))

	w.element = elementOf(side)
	read := make([]hcRead, p.tileParts())
	for part := range read {
		read[part] = w.readAll(tile, part)
	}
	// A warp reads the weights of one stream and side, and multiplies all streams of its own.
	w.streams, w.element = []kernel.V{w.URem(w.wave, w.Int(p.c))}, elementOf(w.UDiv(w.wave, w.Int(p.c)))
	w.readWeights()
	weights := &hcSharedWeights{hcWarps: w, words: w.Shared(ir.I32, p.unit.waves*2*p.rowBlocks()*w.T.Wave*hcWeightWords)}
	weights.store(w.wave, w.weights[0])

	w.streams, w.element = nil, elementOf(side)
	for s := range p.c {
		w.streams = append(w.streams, w.Int(s))
	}
	streams := make([][]kernel.Vec, len(read))
	for part, r := range read {
		streams[part] = w.make(r)
	}
	w.keep(tile, streams)
	w.sums = w.Shared(ir.F32, w.sumWords())
	w.Barrier()
	stored := w.weights[0]
	w.weights = nil
	for s := range p.c {
		w.weights = append(w.weights, weights.load(w.Add(w.Mul(side, w.Int(p.c)), w.Int(s)), stored))
	}
	w.storeSums(w.Int(0), w.products(streams))
	w.Barrier()
	w.addSides(tile, side)
}

// addSides has the warps of a tile add up their sums, each those of some of its tokens.
func (w *hcWarps) addSides(tile, side kernel.V) {
	p, each := w.p, w.p.tileTokens()/wideSides
	column := w.Select(w.Cmp(kernel.LT, w.lane, w.Int(p.rowBlocks()*target.MMACols)), w.lane, w.Int(mmaHCSquares))
	for i := range each {
		own := w.Add(w.Mul(side, w.Int(each)), w.Int(i))
		token := w.Add(w.Mul(tile, w.Int(p.tileTokens())), own)
		w.If(w.Cmp(kernel.LT, token, w.tokens), func() {
			var terms []kernel.V
			for j := range wideSides {
				warp := w.Add(w.Sub(w.wave, side), w.Int(j))
				terms = append(terms, w.sums.Load(w.Add(w.place(w.Int(0), warp, own), column)))
			}
			w.parts.Store(w.Add(p.partsOf(w.K, token, w.piece), w.lane), sumByPairs(w.K, terms))
		})
	}
}

// readAll reads for all streams of a token, or of the last one.
func (w *hcWarps) readAll(tile kernel.V, part int) hcRead {
	p, c := w.p, w.p.c
	token, there := w.token(tile, part)
	token = w.Select(there, token, w.Sub(w.tokens, w.Int(1)))
	r := hcRead{h: p.read(w.K, w.in[w.s.olds], token, w.element)}
	if !w.s.withNew {
		return r
	}
	r.x = w.in[0].LoadVec(w.Add(w.Mul(token, w.Int(p.d)), w.element), matrixRun)
	rows := []kernel.Vec{w.in[2].LoadVec(w.Mul(token, w.Int(c)), c)}
	for s := range c {
		rows = append(rows, w.in[3].LoadVec(w.Add(w.Mul(token, w.Int(c*c)), w.Int(s*c)), c))
	}
	for j := range c {
		var factors []kernel.V
		for _, row := range rows {
			factors = append(factors, w.Bits(w.At(row, j)))
		}
		r.factors = append(r.factors, factors)
	}
	return r
}

// hcWeightWords are a lane's words of a row of fn's high or low halves.
const hcWeightWords = matrixRun / 2

// hcSharedWeights are the weights of all streams and sides in shared memory, by the warp
// that read them, row and lane.
type hcSharedWeights struct {
	*hcWarps
	words *kernel.Buf
}

// each is called with a lane's rows of tiles, and where they lie.
func (s *hcSharedWeights) each(warp kernel.V, tiles []hcTile, body func(x *kernel.Vec, at kernel.V)) {
	blocks := s.p.rowBlocks()
	for t := range tiles {
		for i := range s.p.unit.rows {
			block := t*s.p.unit.rows + i
			if block >= blocks {
				continue // no rows of fn
			}
			for half, x := range []*kernel.Vec{&tiles[t].hi[i], &tiles[t].lo[i]} {
				row := s.Add(s.Mul(warp, s.Int(2*blocks)), s.Int(2*block+half))
				body(x, s.Mul(s.Add(s.Mul(row, s.Int(s.T.Wave)), s.lane), s.Int(hcWeightWords)))
			}
		}
	}
}

func (s *hcSharedWeights) store(warp kernel.V, tiles []hcTile) {
	s.each(warp, tiles, func(x *kernel.Vec, at kernel.V) { s.words.StoreVec(at, *x) })
}

// load is what a warp stored; rows that are not of fn are those of like.
func (s *hcSharedWeights) load(warp kernel.V, like []hcTile) []hcTile {
	tiles := slices.Clone(like)
	for i, t := range tiles {
		tiles[i].hi, tiles[i].lo = slices.Clone(t.hi), slices.Clone(t.lo)
	}
	s.each(warp, tiles, func(x *kernel.Vec, at kernel.V) { *x = s.words.LoadVec(at, hcWeightWords) })
	return tiles
}
