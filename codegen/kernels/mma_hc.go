package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The first launch of hyper-connections on NVIDIA's matrix units. A lane has two rows
// of fn, and registers for one stream of them: each warp has a stream, and warps with
// the same stream lie side by side. Of many tokens a group goes through several tiles
// with the weights that it has, and copies what it reads ahead (mma_hc_ring.go).

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

// warpStream is how a lane of a warp gets matrixRun elements of one stream of a token.
type warpStream struct {
	// read reads what of makes the elements from. Every vector has a shape of its own.
	read func(k *kernel.K, in []*kernel.Buf, token, element, stream kernel.V) []kernel.Vec
	// streams is the operand with the old streams, and withNew whether those before and
	// behind it make new ones of them.
	streams int
	withNew bool
	of      func(k *kernel.K, read []kernel.Vec) kernel.Vec
	// keep, if not nil, stores them.
	keep func(k *kernel.K, out []*kernel.Buf, token, element, stream kernel.V, x kernel.Vec)
}

// launchWarps emits the first launch. Operands in are those of the stream, and fn; out
// are what it keeps.
func (p *hcProduct) launchWarps(l Lowering, name string, work int64, in []Ref, fn Ref, out []Ref, s warpStream) {
	tiles, macs, spec := ceilDiv(p.t, p.unit.cols), p.work(p.t), fmt.Sprintf("c%d d%d", p.c, p.d)
	beside := tiles // groups with the same piece
	if most := max(1, mmaHCGroups/p.pieces()); tiles > most && p.ringed() {
		beside = most
		spec += " ring"
	}
	l.Launch(Launch{
		Name: name, Spec: spec, Grid: p.pieces() * beside, Work: work + macs, Flops: 2 * macs,
		In: append(append([]Ref{}, in...), fn), Out: append(append([]Ref{}, out...), p.parts), Ints: []int{p.t, beside, ceilDiv(tiles, beside)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			w := &hcWarps{K: k, p: p, s: s, in: b[:len(in)], fn: b[len(in)], out: b[len(in)+1 : len(b)-1], parts: b[len(b)-1], tokens: ints[0], beside: ints[1]}
			w.run(beside < tiles, ints[2])
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
	sums    *kernel.Buf // of a tile or of two, by warp, token and column

	tokens, beside         kernel.V
	lane, wave, sub, group kernel.V
	piece, stream, side    kernel.V
	element                kernel.V
	own                    kernel.V // the warp is no copy of another
	hi, lo                 [][]kernel.Vec
}

func (w *hcWarps) warps() int { return w.p.c * w.p.side() }

// sumWords is the room for a tile's sums.
func (w *hcWarps) sumWords() int { return w.p.unit.waves * w.p.unit.cols * mmaHCStride }

func (w *hcWarps) run(ring bool, each kernel.V) {
	p, u := w.p, w.p.unit
	w.lane, w.wave = w.WaveLane(), w.Wave()
	w.sub, w.group = u.place(w.K, w.lane)
	// Dividing by a number that is known takes few instructions.
	w.piece = w.URem(w.Group(), w.Int(p.pieces()))
	first := w.UDiv(w.Group(), w.Int(p.pieces()))
	warp := w.wave
	w.own = w.Cmp(kernel.LT, w.wave, w.Int(w.warps()))
	if w.warps() < u.waves {
		warp = w.URem(w.wave, w.Int(w.warps()))
	}
	w.stream, w.side = w.URem(warp, w.Int(p.c)), w.UDiv(warp, w.Int(p.c))
	w.element = w.Add(w.Mul(w.piece, w.Int(p.piece())), w.Add(w.Mul(w.side, w.Int(mmaHCRun)), w.Mul(w.group, w.Int(matrixRun))))
	if ring {
		w.tiles(first, each)
		return
	}
	w.sums = w.Shared(ir.F32, w.sumWords())
	token, there := w.token(first)
	// A branch around loads would have them wait for it: lanes without a token read the last.
	read := w.s.read(w.K, w.in, w.Select(there, token, w.Sub(w.tokens, w.Int(1))), w.element, w.stream)
	w.weights()
	w.multiply(first, w.Int(0), read)
	w.Barrier()
	w.addUp(first, w.Int(0))
}

// token is the lane's token of a tile, and whether there is one.
func (w *hcWarps) token(tile kernel.V) (token, there kernel.V) {
	token = w.Add(w.Mul(tile, w.Int(w.p.unit.cols)), w.sub)
	return token, w.Cmp(kernel.LT, token, w.tokens)
}

// weights reads the lane's elements of its rows of fn, by tile of 16 rows, as two bf16
// numbers. Rows behind the last are zeros.
func (w *hcWarps) weights() {
	p := w.p
	var rows [][]kernel.Vec
	for t := range p.fnTiles() {
		var tile []kernel.Vec
		for i := range p.unit.rows {
			first := t*target.MatrixTile + i*target.MMACols
			if first >= p.mixes() {
				tile = append(tile, w.ZeroVec(kernel.I32, matrixRun))
				continue
			}
			row := w.Add(w.sub, w.Int(first))
			if first+target.MMACols > p.mixes() {
				row = w.Min(row, w.Int(p.mixes()-1))
			}
			at := w.Add(w.Mul(w.Add(w.Mul(row, w.Int(p.c)), w.stream), w.Int(p.d)), w.element)
			tile = append(tile, w.Join(w.fn.LoadVec(at, 4), w.fn.LoadVec(w.Add(at, w.Int(4)), 4)))
		}
		rows = append(rows, tile)
	}
	for _, tile := range rows {
		var hi, lo []kernel.Vec
		for _, row := range tile {
			h, l := twoBF16(w.K, row)
			hi, lo = append(hi, h), append(lo, l)
		}
		w.hi, w.lo = append(w.hi, hi), append(w.lo, lo)
	}
}

// place is where the sums of a warp for a token of the tile begin, in the room from at on.
func (w *hcWarps) place(at, warp, token kernel.V) kernel.V {
	return w.Add(at, w.Mul(w.Add(w.Mul(warp, w.Int(w.p.unit.cols)), token), w.Int(mmaHCStride)))
}

// multiply leaves the sums of the warp's stream of a tile in the room from at on.
func (w *hcWarps) multiply(tile, at kernel.V, read []kernel.Vec) {
	p, u := w.p, w.p.unit
	token, there := w.token(tile)
	x := w.s.of(w.K, read)
	if w.s.keep != nil {
		w.If(w.And(there, w.own), func() { w.s.keep(w.K, w.out, token, w.element, w.stream, x) })
	}
	for t := range w.hi {
		zero := w.ZeroVec(kernel.F32, target.ResultRun)
		hi, lo := u.multiply(w.K, w.hi[t], x, zero), u.multiply(w.K, w.lo[t], x, zero)
		for e := range target.ResultRun {
			row := t*target.MatrixTile + e/2*target.MMACols
			if row >= p.mixes() {
				continue
			}
			of := w.Add(w.Mul(w.group, w.Int(2)), w.Int(e%2))
			w.sums.Store(w.Add(w.place(at, w.wave, of), w.Add(w.sub, w.Int(row))), w.Add(w.At(hi, e), w.At(lo, e)))
		}
	}
	var squares []kernel.V
	for i := range x.Len() {
		v := unpackBF16(w.K, w.At(x, i))
		squares = append(squares, w.FMA(v[1], v[1], w.Mul(v[0], v[0])))
	}
	square := sumByPairs(w.K, squares)
	for _, mask := range []int{1, 2} { // the lanes of the token
		square = w.Add(square, w.LaneXor(square, mask))
	}
	w.If(w.Cmp(kernel.EQ, w.group, w.Int(0)), func() { w.sums.Store(w.Add(w.place(at, w.wave, w.sub), w.Int(mmaHCSquares)), square) })
}

// addUp has each warp add up the sums of a token of the tile, a lane those of its column.
func (w *hcWarps) addUp(tile, at kernel.V) {
	p := w.p
	token := w.Add(w.Mul(tile, w.Int(p.unit.cols)), w.wave)
	w.If(w.Cmp(kernel.LT, token, w.tokens), func() {
		stored := ceilDiv(p.mixes(), target.MMACols) * target.MMACols
		column := w.Select(w.Cmp(kernel.LT, w.lane, w.Int(stored)), w.lane, w.Int(mmaHCSquares))
		var terms []kernel.V
		for i := range w.warps() {
			terms = append(terms, w.sums.Load(w.Add(w.place(at, w.Int(i), w.wave), column)))
		}
		w.parts.Store(w.Add(p.partsOf(w.K, token, w.piece), w.lane), sumByPairs(w.K, terms))
	})
}

// partsOf is where the sums of a token's piece begin.
func (p *hcProduct) partsOf(k *kernel.K, token, piece kernel.V) kernel.V {
	return k.Mul(k.Add(k.Mul(token, k.Int(p.pieces())), piece), k.Int(mmaHCWidth))
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

// givenStream is the stream of the operand.
func (p *hcProduct) givenStream() warpStream {
	return warpStream{
		read: func(k *kernel.K, in []*kernel.Buf, token, element, stream kernel.V) []kernel.Vec {
			return []kernel.Vec{in[0].LoadVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(p.c)), stream), k.Int(p.d)), element), matrixRun)}
		},
		of: func(_ *kernel.K, read []kernel.Vec) kernel.Vec { return read[0] },
	}
}

// newStream is hc_post's, of its operands.
func (p *hcProduct) newStream() warpStream {
	c := p.c
	return warpStream{
		streams: 1, withNew: true,
		read: func(k *kernel.K, in []*kernel.Buf, token, element, stream kernel.V) []kernel.Vec {
			read := []kernel.Vec{in[0].LoadVec(k.Add(k.Mul(token, k.Int(p.d)), element), matrixRun)}
			read = append(read, p.read(k, in[1], token, element)...)
			// Of post and comb what the stream takes.
			factors := []kernel.V{in[2].Load(k.Add(k.Mul(token, k.Int(c)), stream))}
			for s := range c {
				factors = append(factors, in[3].Load(k.Add(k.Add(k.Mul(token, k.Int(c*c)), stream), k.Int(s*c))))
			}
			return append(read, k.MakeVec(factors...))
		},
		of: func(k *kernel.K, read []kernel.Vec) kernel.Vec {
			x, h, factors := read[0], read[1:1+c], read[1+c]
			// In the places of stream 0.
			post, comb := make([]kernel.V, c), make([]kernel.V, c*c)
			post[0] = k.At(factors, 0)
			for s := range c {
				comb[s*c] = k.At(factors, 1+s)
			}
			var words []kernel.V
			for i := range x.Len() {
				v := unpackBF16(k, k.At(x, i))
				pairs := make([][2]kernel.V, c)
				for s := range h {
					pairs[s] = unpackBF16(k, k.At(h[s], i))
				}
				var new [2]kernel.V
				for half := range new {
					new[half] = hcPostElement(k, v[half], func(s int) kernel.V { return pairs[s][half] }, post, comb, 0)
				}
				words = append(words, k.PackBF16(new[0], new[1]))
			}
			return k.MakeVec(words...)
		},
		keep: func(k *kernel.K, out []*kernel.Buf, token, element, stream kernel.V, x kernel.Vec) {
			out[0].StoreVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(c)), stream), k.Int(p.d)), element), x)
		},
	}
}
