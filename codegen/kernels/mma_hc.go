package kernels

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The first launch of hyper-connections on NVIDIA's matrix units. A lane has two rows
// of fn, and registers for one stream of them: each warp has a stream, and warps with
// the same stream lie side by side. Of many tokens a group has two pieces, a warp two
// streams, and goes through several tiles with the weights that it has (mma_hc_ring.go).
// Either way the same sums are added in the same order.

const (
	// mmaHCRun is the number of elements of a stream that a warp multiplies.
	mmaHCRun = lanesPerRow * matrixRun

	// mmaHCWidth is the number of columns of a token's sums of a piece: a lane of a warp
	// has each. mmaHCSquares is that of the sum of squares, behind all products.
	mmaHCWidth, mmaHCSquares = 32, (2 + maxMatrixStreams) * maxMatrixStreams

	// mmaHCStride has the lanes that store a tile's sums use different banks.
	mmaHCStride = mmaHCWidth + 4
)

// side is how many warps of a group have the same stream: as many as d allows.
func (p *hcProduct) side() int {
	n := p.unit.waves / p.c
	for n > 1 && p.d%(n*mmaHCRun) != 0 {
		n--
	}
	return n
}

// warpStream is how a lane of a warp gets matrixRun elements of streams of a token.
type warpStream struct {
	// olds is the operand with the old streams. withNew is whether new ones are made: of
	// hc_post's operands.
	olds    int
	withNew bool
	// keep, if not nil, stores a stream.
	keep func(k *kernel.K, out []*kernel.Buf, token, element, stream kernel.V, x kernel.Vec)
}

// hcRead is what a lane has read to make matrixRun elements of streams: of the sublayer's
// output x, of all old streams h, and the factors in f32, post and then comb for each old
// stream, of every stream to make. Without new streams h are the streams.
type hcRead struct {
	x       kernel.Vec
	h       []kernel.Vec
	factors [][]kernel.V
}

// launchWarps emits the first launch. Operands in are those of the stream, and fn; out
// are what it keeps.
func (p *hcProduct) launchWarps(l Lowering, name string, work int64, in []Ref, fn Ref, out []Ref, s warpStream) {
	tiles, macs, spec := ceilDiv(p.t, p.tileTokens()), p.work(p.t), fmt.Sprintf("c%d d%d", p.c, p.d)
	pieces, beside := p.pieces(), tiles // groups with the same piece
	atEnd := p.ring && p.mixGrid() <= mixResident*h200Processors
	switch {
	case p.ring:
		spec += " ring"
		pieces /= ringPieces
		beside = min(tiles, max(1, ringGroups/pieces))
		if atEnd {
			spec += " at end"
		}
	case p.wide > 0:
		spec += fmt.Sprintf(" wide%d", p.wide)
		beside = ceilDiv(tiles, wideTiles)
	}
	l.Launch(Launch{
		Name: name, Spec: spec, Grid: pieces * beside, Work: work + macs, Flops: 2 * macs, Pooled: p.ring,
		In: append(append([]Ref{}, in...), fn), Out: append(append([]Ref{}, out...), p.parts), Ints: []int{p.t, beside, ceilDiv(tiles, beside)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			w := &hcWarps{K: k, p: p, s: s, in: b[:len(in)], fn: b[len(in)], out: b[len(in)+1 : len(b)-1], parts: b[len(b)-1], tokens: ints[0]}
			w.lane, w.wave = k.WaveLane(), k.Wave()
			w.sub, w.group = p.unit.place(k, w.lane)
			// Dividing by a number that is known takes few instructions.
			w.piece, w.tile = k.URem(k.Group(), k.Int(pieces)), k.UDiv(k.Group(), k.Int(pieces))
			if !p.ring {
				k.Ahead(func() { p.prefetch(k, w.fn, k.URem(k.Group(), k.Int(pieces))) })
			}
			if atEnd {
				k.NextAtEnd()
			}
			switch {
			case p.ring:
				w.tiles(ints[1], ints[2])
			case p.wide > 0:
				w.wide()
			default:
				w.one()
			}
		},
	})
}

// hcWarps is a lane of that launch.
type hcWarps struct {
	*kernel.K
	p       *hcProduct
	s       warpStream
	in, out []*kernel.Buf
	fn      *kernel.Buf
	parts   *kernel.Buf
	sums    *kernel.Buf // by warp, token and column

	tokens                 kernel.V
	lane, wave, sub, group kernel.V
	piece, tile            kernel.V   // of the group; tile is the first
	streams                []kernel.V // of the warp
	element                kernel.V   // the first of the lane's
	own                    kernel.V   // the warp is no copy of another
	weights                [][]hcTile // by stream and tile
}

// hcTile is what a lane has of a tile of 16 rows of fn: its two rows, as two bf16 numbers
// each. The row of number squares is of a block of rows whose products are the tokens'
// with each other: those of a token with itself are its sum of squares.
type hcTile struct {
	hi, lo  []kernel.Vec
	squares int // -1 if it is in another tile
}

// tileParts is how many times the columns of the unit a tile has, and tileTokens how many
// tokens.
func (p *hcProduct) tileParts() int {
	switch {
	case p.ring:
		return ringParts
	case p.wide > 0:
		return p.wide
	}
	return 1
}

func (p *hcProduct) tileTokens() int { return p.tileParts() * p.unit.cols }

// sumWords is the room for a tile's sums.
func (w *hcWarps) sumWords() int { return w.p.unit.waves * w.p.tileTokens() * mmaHCStride }

// one is a group that has one tile and a piece.
func (w *hcWarps) one() {
	p, warps := w.p, w.p.c*w.p.side()
	warp := w.wave
	w.own = w.Cmp(kernel.LT, w.wave, w.Int(warps))
	if warps < p.unit.waves {
		warp = w.URem(w.wave, w.Int(warps))
	}
	stream, side := w.URem(warp, w.Int(p.c)), w.UDiv(warp, w.Int(p.c))
	w.streams = []kernel.V{stream}
	w.element = w.Add(w.Mul(w.piece, w.Int(p.piece())), w.Add(w.Mul(side, w.Int(mmaHCRun)), w.Mul(w.group, w.Int(matrixRun))))
	w.sums = w.Shared(ir.F32, w.sumWords())
	read := w.read()
	w.readWeights()
	w.multiply(w.tile, w.Int(0), []hcRead{read})
	w.Barrier()
	w.addUp(w.tile, w.Int(0), warps)
}

// token is the lane's token of a part of a tile, and whether there is one.
func (w *hcWarps) token(tile kernel.V, part int) (token, there kernel.V) {
	token = w.Add(w.Mul(tile, w.Int(w.p.tileTokens())), w.Add(w.sub, w.Int(part*w.p.unit.cols)))
	return token, w.Cmp(kernel.LT, token, w.tokens)
}

// read reads for the lane's token, or for the last one: a branch around loads would
// have them wait for it.
func (w *hcWarps) read() hcRead {
	p, c, stream := w.p, w.p.c, w.streams[0]
	token, there := w.token(w.tile, 0)
	token = w.Select(there, token, w.Sub(w.tokens, w.Int(1)))
	old := w.in[w.s.olds]
	if !w.s.withNew {
		return hcRead{h: []kernel.Vec{old.LoadVec(w.Add(w.Mul(w.Add(w.Mul(token, w.Int(c)), stream), w.Int(p.d)), w.element), matrixRun)}}
	}
	r := hcRead{x: w.in[0].LoadVec(w.Add(w.Mul(token, w.Int(p.d)), w.element), matrixRun), h: p.read(w.K, old, token, w.element)}
	factors := []kernel.V{w.in[2].Load(w.Add(w.Mul(token, w.Int(c)), stream))}
	for s := range c {
		factors = append(factors, w.in[3].Load(w.Add(w.Add(w.Mul(token, w.Int(c*c)), stream), w.Int(s*c))))
	}
	r.factors = [][]kernel.V{factors}
	return r
}

// make is the warp's streams.
func (w *hcWarps) make(r hcRead) []kernel.Vec {
	if !w.s.withNew {
		return r.h
	}
	c := w.p.c
	words := make([][]kernel.V, len(r.factors))
	for i := range r.x.Len() {
		x, pairs := w.UnpackBF16(w.At(r.x, i)), make([][2]kernel.V, c)
		for s := range pairs {
			pairs[s] = w.UnpackBF16(w.At(r.h[s], i))
		}
		for j, f := range r.factors {
			var new [2]kernel.V
			for half := range new { // hcPostElement's order
				mixed := w.Mul(f[1], pairs[0][half])
				for s := 1; s < c; s++ {
					mixed = w.FMA(f[1+s], pairs[s][half], mixed)
				}
				new[half] = w.Add(w.Mul(f[0], x[half]), mixed)
			}
			words[j] = append(words[j], w.PackBF16(new[0], new[1]))
		}
	}
	out := make([]kernel.Vec, len(words))
	for j := range out {
		out[j] = w.MakeVec(words[j]...)
	}
	return out
}

// rowBlocks is the number of blocks of 8 rows of fn; that of squares is behind them.
func (p *hcProduct) rowBlocks() int { return ceilDiv(p.mixes(), target.MMACols) }

// prefetch has a group's piece of fn on its way to the L2 cache: of each row, a run of
// each stream.
func (p *hcProduct) prefetch(k *kernel.K, fn *kernel.Buf, piece kernel.V) {
	const line = kernel.PrefetchBytes / 4
	lines := ceilDiv(p.piece(), line)
	k.Lanes(k.Int(p.mixes()*p.c*lines), func(i kernel.V) {
		run, part := k.UDiv(i, k.Int(lines)), k.URem(i, k.Int(lines))
		at := k.Add(k.Mul(piece, k.Int(p.piece())), k.Mul(part, k.Int(line)))
		fn.Prefetch(k.Add(k.Mul(run, k.Int(p.d)), at))
	})
}

// readWeights reads the lane's elements of its rows of fn. Rows behind the last are zeros.
func (w *hcWarps) readWeights() {
	p := w.p
	tiles := ceilDiv(p.rowBlocks()+1, p.unit.rows)
	rows := make([][]kernel.Vec, len(w.streams))
	for j, stream := range w.streams {
		for block := range tiles * p.unit.rows {
			if block >= p.rowBlocks() {
				rows[j] = append(rows[j], w.ZeroVec(kernel.I32, matrixRun))
				continue
			}
			row := w.Add(w.sub, w.Int(block*target.MMACols))
			if (block+1)*target.MMACols > p.mixes() {
				row = w.Min(row, w.Int(p.mixes()-1))
			}
			at := w.Add(w.Mul(w.Add(w.Mul(row, w.Int(p.c)), stream), w.Int(p.d)), w.element)
			rows[j] = append(rows[j], w.Join(w.fn.LoadVec(at, 4), w.fn.LoadVec(w.Add(at, w.Int(4)), 4)))
		}
	}
	w.weights = make([][]hcTile, len(w.streams))
	for j := range w.weights {
		for t := range tiles {
			tile := hcTile{squares: -1}
			for i := range p.unit.rows {
				block := t*p.unit.rows + i
				hi, lo := twoBF16(w.K, rows[j][block])
				tile.hi, tile.lo = append(tile.hi, hi), append(tile.lo, lo)
				if block == p.rowBlocks() {
					tile.squares = i
				}
			}
			w.weights[j] = append(w.weights[j], tile)
		}
	}
}

// place is where the sums of a warp for a token of the tile begin, in the room from at on.
func (w *hcWarps) place(at, warp, token kernel.V) kernel.V {
	return w.Add(at, w.Mul(w.Add(w.Mul(warp, w.Int(w.p.tileTokens())), token), w.Int(mmaHCStride)))
}

// multiply leaves the sums of the warp's streams of a tile, by its parts, in the room from
// at on.
func (w *hcWarps) multiply(tile, at kernel.V, read []hcRead) {
	streams := make([][]kernel.Vec, len(read))
	for part, r := range read {
		streams[part] = w.make(r)
	}
	// The products of several parts do not wait for each other; a branch between what they
	// are made of would have them.
	if len(read) == 1 {
		w.keep(tile, streams)
	}
	sums := w.products(streams)
	if len(read) > 1 {
		w.keep(tile, streams)
	}
	w.storeSums(at, sums)
}

// keep stores the streams of a tile, if they are kept.
func (w *hcWarps) keep(tile kernel.V, streams [][]kernel.Vec) {
	if w.s.keep == nil {
		return
	}
	for part, xs := range streams {
		token, there := w.token(tile, part)
		w.If(w.And(there, w.own), func() {
			for j, x := range xs {
				w.s.keep(w.K, w.out, token, w.element, w.streams[j], x)
			}
		})
	}
}

// products are those of streams, by part and tile of fn's rows.
func (w *hcWarps) products(streams [][]kernel.Vec) [][]kernel.Vec {
	sums := make([][]kernel.Vec, len(streams))
	for part, xs := range streams {
		for t := range w.weights[0] {
			sums[part] = append(sums[part], w.product(t, xs))
		}
	}
	return sums
}

// storeSums leaves products in the room from at on.
func (w *hcWarps) storeSums(at kernel.V, sums [][]kernel.Vec) {
	p, u := w.p, w.p.unit
	for part, tiles := range sums {
		for t, sum := range tiles {
			for e := range target.ResultRun {
				block, of := t*u.rows+e/2, w.Add(w.Mul(w.group, w.Int(2)), w.Int(e%2))
				to := w.place(at, w.wave, w.Add(of, w.Int(part*u.cols)))
				switch {
				case block < p.rowBlocks():
					w.sums.Store(w.Add(to, w.Add(w.sub, w.Int(block*target.MMACols))), w.At(sum, e))
				case block == p.rowBlocks():
					w.If(w.Cmp(kernel.EQ, of, w.sub), func() { w.sums.Store(w.Add(to, w.Int(mmaHCSquares)), w.At(sum, e)) })
				}
			}
		}
	}
}

// product is a tile of fn's rows times the warp's streams.
func (w *hcWarps) product(t int, streams []kernel.Vec) kernel.Vec {
	add := func(v ...kernel.V) kernel.V { return w.Add(v[0], v[1]) }
	sums := make([]kernel.Vec, len(streams))
	for j, x := range streams {
		tile, zero := w.weights[j][t], w.ZeroVec(kernel.F32, target.ResultRun)
		rows := slices.Clone(tile.hi)
		if tile.squares >= 0 {
			rows[tile.squares] = x
		}
		sums[j] = w.MapVec(add, w.p.unit.multiply(w.K, rows, x, zero), w.p.unit.multiply(w.K, tile.lo, x, zero))
	}
	for len(sums) > 1 { // by pairs, as the sums of warps with a stream each
		sums = append(sums[2:], w.MapVec(add, sums[0], sums[1]))
	}
	return sums[0]
}

// addUp has each warp add up the sums that the warps have of a token of each part of the
// tile, a lane those of its column.
func (w *hcWarps) addUp(tile, at kernel.V, warps int) {
	p := w.p
	for part := range p.tileParts() {
		own := w.Add(w.wave, w.Int(part*p.unit.cols))
		token := w.Add(w.Mul(tile, w.Int(p.tileTokens())), own)
		w.If(w.Cmp(kernel.LT, token, w.tokens), func() {
			column := w.Select(w.Cmp(kernel.LT, w.lane, w.Int(p.rowBlocks()*target.MMACols)), w.lane, w.Int(mmaHCSquares))
			var terms []kernel.V
			for i := range warps {
				terms = append(terms, w.sums.Load(w.Add(w.place(at, w.Int(i), own), column)))
			}
			w.parts.Store(w.Add(p.partsOf(w.K, token, w.piece), w.lane), sumByPairs(w.K, terms))
		})
	}
}

// partRows is the number of rows of sums that a token has.
func (p *hcProduct) partRows() int {
	if p.ring {
		return p.pieces() / ringPieces
	}
	return p.pieces()
}

// partsOf is where a row of a token's sums begins.
func (p *hcProduct) partsOf(k *kernel.K, token, row kernel.V) kernel.V {
	return k.Mul(k.Add(k.Mul(token, k.Int(p.partRows())), row), k.Int(mmaHCWidth))
}

// sumByPairs adds neighbours, and then their sums: the chain of additions is short.
func sumByPairs(k *kernel.K, terms []kernel.V) kernel.V {
	for len(terms) > 1 {
		var next []kernel.V
		for i := 0; i+1 < len(terms); i += 2 {
			next = append(next, k.Add(terms[i], terms[i+1]))
		}
		if len(terms)%2 == 1 {
			next = append(next, terms[len(terms)-1])
		}
		terms = next
	}
	return terms[0]
}

// newStreams are hc_post's, which are kept.
func (p *hcProduct) newStreams() warpStream {
	return warpStream{olds: 1, withNew: true, keep: func(k *kernel.K, out []*kernel.Buf, token, element, stream kernel.V, x kernel.Vec) {
		out[0].StoreVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(p.c)), stream), k.Int(p.d)), element), x)
	}}
}
