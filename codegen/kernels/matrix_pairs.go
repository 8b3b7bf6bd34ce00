package kernels

import (
	mathbits "math/bits"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products with e2m1 codes on AMD's waves. Of a row of w, a chunk is half a line, and the
// other half is the next wave's chunk. So two waves share what they multiply in another
// way: each takes both chunks, of half of the parts, and keeps the sums of the two apart,
// as if two waves had them. The scales, of which a chunk has four bytes a row, are read
// once by the group, before the first product, into shared memory.

// mostScaleBytes bounds the shared memory of the scales.
const mostScaleBytes = 16 << 10

// paired reports whether waves share chunks so.
func (p *matrixProduct) paired() bool {
	chunks := ceilDiv(p.depth, matrixChunk)
	return p.byLines() && p.w == ir.F4E2M1 && !p.codes && chunks%matrixWaves == 0 && p.products*p.cols%2 == 0 &&
		p.n%p.tileCols() == 0 && p.products*p.tileCols()*p.scaleCols() <= mostScaleBytes
}

// chunksAtOnce is how many chunks that follow each other a wave takes.
func (p *matrixProduct) chunksAtOnce() int {
	if p.paired() {
		return 2
	}
	return 1
}

// ownParts is how many products and columns a wave multiplies: all, or half of either.
func (p *matrixProduct) ownParts() (products, cols int) {
	switch {
	case !p.paired():
		return p.products, p.cols
	case p.cols%2 == 0:
		return p.products, p.cols / 2
	}
	return p.products / 2, p.cols
}

// takeHalf has the emitter multiply the wave's half of the parts: the rows of w begin
// there, or the weights, and rows of x that are theirs, are those.
func (e *matrixEmitter) takeHalf(n0 kernel.V) kernel.V {
	if !e.paired() {
		return n0
	}
	upper := e.Cmp(kernel.GE, e.wave, e.Int(matrixWaves/2))
	products, cols := e.ownParts()
	if products == e.products {
		return e.Select(upper, e.Add(n0, e.Int(cols*target.MatrixTile)), n0)
	}
	either := func(a, b *kernel.Buf) *kernel.Buf {
		if a == b {
			return a
		}
		return e.Either(upper, b, a)
	}
	var ws []matrixWeight
	for i, w := range e.ws[:products] {
		other := e.ws[products+i]
		ws = append(ws, matrixWeight{rows: either(w.rows, other.rows), index: e.Select(upper, other.index, w.index)})
	}
	e.ws = ws
	if !e.apart {
		return n0
	}
	var at []kernel.V
	for i, x := range e.x.at[:products*e.rows] {
		at = append(at, e.Select(upper, e.x.at[products*e.rows+i], x))
	}
	e.x.at = at
	return n0
}

// firstChunk is the first of the chunks of step i that the wave takes.
func (e *matrixEmitter) firstChunk(i kernel.V) kernel.V {
	at := e.Mul(i, e.Int(e.unit.waves))
	if e.paired() {
		return e.Add(at, e.Mul(e.And(e.wave, e.Int(1)), e.Int(2)))
	}
	return e.Add(at, e.wave)
}

// storePaired is storeSums of waves that share chunks.
func (e *matrixEmitter) storePaired(first, n int, store func(wave, slot, product kernel.V, sum *kernel.VecVar)) {
	products, cols := e.ownParts()
	half, odd := e.LShr(e.wave, e.Int(1)), e.And(e.wave, e.Int(1))
	for slot := range n {
		row, col := (first+slot)/e.cols, (first+slot)%e.cols
		if col >= cols { // of the other half, as many columns before it
			continue
		}
		at := e.Int(slot)
		if cols < e.cols {
			at = e.Add(at, e.Mul(half, e.Int(cols)))
		}
		for p := range products {
			product := e.Int(p)
			if products < e.products {
				product = e.Add(product, e.Mul(half, e.Int(products)))
			}
			for chunk := range e.chunksAtOnce() {
				store(e.Add(e.Mul(odd, e.Int(2)), e.Int(chunk)), at, product, e.sum(chunk, p, row, col))
			}
		}
	}
}

// scaleWords is the length of a row of scales, in words: one for each chunk.
func (p *matrixProduct) scaleWords() int { return p.scaleCols() / 4 }

// scalePlace is where a word of a row of scales lies in it: rows a tile's apart, which are
// read at once, use different banks.
func (e *matrixEmitter) scalePlace(row, word kernel.V) kernel.V {
	const banks = 32
	block := min(banks, 1<<mathbits.TrailingZeros(uint(e.scaleWords()))) // words within it change places
	turn := e.UDiv(e.And(row, e.Int(target.MatrixTile-1)), e.Int(banks/block))
	return e.Xor(word, turn)
}

// stageScales reads the scales of all of the group's rows of w, all lanes side by side.
func (e *matrixEmitter) stageScales(ws []matrixWeight, n0 kernel.V) {
	words := e.tileCols() * e.scaleWords() // of a weight
	var stores []func()
	for p, w := range ws {
		from := e.Mul(e.Add(e.Mul(w.index, e.Int(e.n)), n0), e.Int(e.scaleCols()))
		for i := 0; i < words; i += e.t.Lanes {
			at := e.Add(e.Lane(), e.Int(i))
			in := e.Cmp(kernel.LT, at, e.Int(words))
			v := e.At(w.scales.Bytes().LoadVecIf(in, e.Add(from, e.Mul(at, e.Int(4))), 4), 0)
			row, word := e.UDiv(at, e.Int(e.scaleWords())), e.URem(at, e.Int(e.scaleWords()))
			to := e.Add(e.Add(e.Mul(row, e.Int(e.scaleWords())), e.scalePlace(row, word)), e.Int(p*words))
			stores = append(stores, func() { e.If(in, func() { e.scalesIn.StoreBits(to, v) }) })
		}
	}
	for _, store := range stores {
		store()
	}
	e.Barrier()
}

// stagedScale is the scale of the lane's row of one of the wave's parts, in a chunk.
func (e *matrixEmitter) stagedScale(product, col int, chunk kernel.V) kernel.V {
	products, cols := e.ownParts()
	part := e.Int(product*e.cols + col)
	skipped := cols // parts of the other half, before those of this one
	if products < e.products {
		skipped = products * e.cols
	}
	part = e.Add(part, e.Mul(e.LShr(e.wave, e.Int(1)), e.Int(skipped)))
	row := e.Add(e.Mul(part, e.Int(target.MatrixTile)), e.sub)
	word := e.Add(e.Mul(row, e.Int(e.scaleWords())), e.scalePlace(e.sub, chunk))
	at := e.Add(e.Mul(word, e.Int(4)), e.group)
	return e.scalesIn.As(ir.E8M0).Load(at)
}
