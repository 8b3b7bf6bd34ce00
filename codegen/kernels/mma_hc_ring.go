package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Many tokens in the first launch: a group goes through tiles of them and has copies of
// the next ones under way. What a warp needs of the old streams is what the other warps
// need, so that it is read once.

const (
	// ringFrom is how many groups there may be without a ring: about four for each of an
	// H200's processors. With one there are about as many as processors, ringGroups.
	ringFrom, ringGroups = 512, h200Processors

	// ringPieces is how many pieces a group has, and ringStreams how many streams a warp.
	ringPieces, ringStreams = 2, 2

	// ringParts is how many times the unit's columns of tokens a tile has.
	ringParts = 2

	// ringTiles is how many tiles have room: one is multiplied, the others come.
	ringTiles = 4

	// ringRow is the elements of a token's piece of a stream, and ringChunk those that a
	// lane copies at once.
	ringRow, ringChunk = 4 * mmaHCRun, 8

	// ringFactors is post and comb of a token: 20 words, so that the lanes that read one
	// of them use different banks.
	ringFactors = maxMatrixStreams + maxMatrixStreams*maxMatrixStreams
)

// ringed reports whether groups go through tiles: more than all processors have at a time
// when each takes one. It takes the streams of the models, and rows of sums of which the
// second launch adds up pairs before anything else.
func (p *hcProduct) ringed() bool {
	return p.c == maxMatrixStreams && p.pieces()%(ringPieces*p.unit.waves) == 0 && p.pieces()*ceilDiv(p.t, p.unit.cols) > ringFrom
}

// hcRing is the room for the copies.
type hcRing struct {
	*hcWarps
	rows    *kernel.Buf // bf16 by tile, stream, the sublayer's output behind them, token and element
	factors *kernel.Buf // f32 by tile and token
	side    kernel.V
}

// tiles goes through the group's first tile and those beside tiles further on, at most
// each.
func (w *hcWarps) tiles(beside, each kernel.V) {
	p, tokens := w.p, w.p.tileTokens()
	pairs := p.c / ringStreams
	r := &hcRing{hcWarps: w, side: w.UDiv(w.wave, w.Int(pairs))}
	for j := range ringStreams {
		w.streams = append(w.streams, w.Add(w.Mul(w.URem(w.wave, w.Int(pairs)), w.Int(ringStreams)), w.Int(j)))
	}
	w.own = w.Cmp(kernel.EQ, w.Int(0), w.Int(0))
	w.element = w.Add(w.Mul(w.piece, w.Int(ringRow)), w.Add(w.Mul(r.side, w.Int(mmaHCRun)), w.Mul(w.group, w.Int(matrixRun))))

	rows, factors := ringTiles*(p.c+1)*tokens*ringRow*2, ringTiles*tokens*ringFactors*4
	pool := w.SharedPool(rows + factors)
	r.rows, r.factors = pool.As(ir.BF16), pool.At(w.Int(rows)).As(ir.F32)
	w.sums = w.Shared(ir.F32, 2*w.sumWords())

	end := w.UDiv(w.Add(w.tokens, w.Int(tokens-1)), w.Int(tokens))
	tile := func(i kernel.V) kernel.V { return w.Add(w.tile, w.Mul(i, beside)) }
	last := w.Sub(each, w.Int(1)) // a group has this many tiles, or one more
	count := w.Select(w.Cmp(kernel.LT, tile(last), end), each, last)
	fetch := func(i kernel.V) {
		w.If(w.Cmp(kernel.LT, i, count), func() { r.copy(tile(i), r.slot(i)) })
		w.CommitCopies()
	}
	for i := range ringTiles - 1 {
		fetch(w.Int(i))
	}
	w.readWeights()
	room := func(i kernel.V) kernel.V { return w.Mul(w.And(i, w.Int(1)), w.Int(w.sumWords())) }
	addUp := func(i kernel.V) { w.addUp(tile(i), room(i), p.unit.waves) }
	w.For(w.Int(0), count, 1, func(i kernel.V) {
		w.WaitCopies(ringTiles - 2)
		w.Barrier() // tile i is there, the one before is multiplied
		fetch(w.Add(i, w.Int(ringTiles-1)))
		before := w.Sub(i, w.Int(1))
		w.If(w.Cmp(kernel.GE, before, w.Int(0)), func() { addUp(before) })
		var read []hcRead
		for part := range ringParts {
			read = append(read, r.read(r.slot(i), part))
		}
		w.multiply(tile(i), room(i), read)
	})
	w.Barrier()
	addUp(w.Sub(count, w.Int(1)))
}

// slot is where a tile of the group lies: as many of a ring's are a power of two.
func (r *hcRing) slot(i kernel.V) kernel.V { return r.And(i, r.Int(ringTiles-1)) }

// row is where a token's piece of a stream begins.
func (r *hcRing) row(slot, stream, token kernel.V) kernel.V {
	row := r.Add(r.Mul(r.Add(r.Mul(slot, r.Int(r.p.c+1)), stream), r.Int(r.p.tileTokens())), token)
	return r.Mul(row, r.Int(ringRow))
}

// chunk is where a chunk of a token's row lies in it: the lanes that read the same chunks
// of an even and of an odd token at once use different banks.
func (r *hcRing) chunk(token, chunk kernel.V) kernel.V {
	half := r.Mul(r.And(token, r.Int(1)), r.Int(lanesPerRow))
	return r.Mul(r.Xor(chunk, half), r.Int(ringChunk))
}

// factorsOf is where the factors of a token of a tile begin.
func (r *hcRing) factorsOf(slot, token kernel.V) kernel.V {
	return r.Mul(r.Add(r.Mul(slot, r.Int(r.p.tileTokens())), token), r.Int(ringFactors))
}

// copy starts the copies of a tile: a warp has the streams of a token of each part.
func (r *hcRing) copy(tile, slot kernel.V) {
	p, s, tokens := r.p, r.s, r.p.tileTokens()
	const chunks = ringRow / ringChunk
	global := func(token kernel.V) kernel.V {
		return r.Min(r.Add(r.Mul(tile, r.Int(tokens)), token), r.Sub(r.tokens, r.Int(1)))
	}
	chunk := r.And(r.lane, r.Int(chunks-1))
	start := r.Add(r.Mul(r.piece, r.Int(ringRow)), r.Mul(chunk, r.Int(ringChunk)))
	perWarp := r.T.Wave / chunks // streams that a warp copies at once
	for part := range ringParts {
		token := r.Add(r.wave, r.Int(part*p.unit.cols))
		of := r.Add(r.Mul(global(token), r.Int(p.c*p.d)), start)
		for i := 0; i < p.c; i += perWarp {
			stream := r.Add(r.UDiv(r.lane, r.Int(chunks)), r.Int(i))
			r.rows.CopyAsync(r.Add(r.row(slot, stream, token), r.chunk(token, chunk)), r.in[s.olds], r.Add(of, r.Mul(stream, r.Int(p.d))))
		}
	}
	if !s.withNew {
		return
	}
	// Each lane copies a chunk of the sublayer's output, some a row of factors.
	token := r.UDiv(r.Lane(), r.Int(chunks))
	r.rows.CopyAsync(r.Add(r.row(slot, r.Int(p.c), token), r.chunk(token, chunk)), r.in[0], r.Add(r.Mul(global(token), r.Int(p.d)), start))
	some := func(first, n int, body func(i kernel.V)) {
		i := r.Sub(r.Lane(), r.Int(first))
		r.If(r.And(r.Cmp(kernel.GE, i, r.Int(0)), r.Cmp(kernel.LT, i, r.Int(n))), func() { body(i) })
	}
	some(0, tokens*p.c, func(i kernel.V) {
		token, row := r.UDiv(i, r.Int(p.c)), r.Mul(r.URem(i, r.Int(p.c)), r.Int(p.c))
		r.factors.CopyAsync(r.Add(r.factorsOf(slot, token), r.Add(row, r.Int(p.c))), r.in[3], r.Add(r.Mul(global(token), r.Int(p.c*p.c)), row))
	})
	some(tokens*p.c, tokens, func(token kernel.V) {
		r.factors.CopyAsync(r.factorsOf(slot, token), r.in[2], r.Mul(global(token), r.Int(p.c)))
	})
}

// read is what a lane needs for its streams, from the copies.
func (r *hcRing) read(slot kernel.V, part int) hcRead {
	p, token := r.p, r.Add(r.sub, r.Int(part*r.p.unit.cols))
	chunk := r.chunk(token, r.Add(r.Mul(r.side, r.Int(lanesPerRow)), r.group))
	load := func(stream kernel.V) kernel.Vec {
		return r.rows.LoadVec(r.Add(r.row(slot, stream, token), chunk), matrixRun)
	}
	var read hcRead
	if !r.s.withNew {
		for _, s := range r.streams {
			read.h = append(read.h, load(s))
		}
		return read
	}
	read.x = load(r.Int(p.c))
	for s := range p.c {
		read.h = append(read.h, load(r.Int(s)))
	}
	for _, s := range r.streams {
		at, factors := r.Add(r.factorsOf(slot, token), s), []kernel.V{}
		for i := range 1 + p.c {
			factors = append(factors, r.factors.Load(r.Add(at, r.Int(i*p.c))))
		}
		read.factors = append(read.factors, factors)
	}
	return read
}
