package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Many tokens in the first launch: a group goes through tiles of them and has copies of
// the next ones under way. What a warp needs of the old streams is what the other warps
// need, so that it is read once.

const (
	// ringTiles is how many tiles have room: one is multiplied, the others come.
	ringTiles = 4

	// ringRow is the elements of a token's piece of a stream, and ringChunk those that a
	// lane copies at once.
	ringRow, ringChunk = 2 * mmaHCRun, 8

	// ringFactors is comb and then post of a token: 20 words, so that the lanes that read
	// one of them use different banks.
	ringFactors = maxMatrixStreams*maxMatrixStreams + maxMatrixStreams
)

// ringed reports whether a group can go through tiles: with the streams of the models.
func (p *hcProduct) ringed() bool { return p.c == maxMatrixStreams && p.piece() == ringRow }

// hcRing is the room for the copies.
type hcRing struct {
	*hcWarps
	rows    *kernel.Buf // bf16 by tile, stream, the sublayer's output behind them, token and element
	factors *kernel.Buf // f32 by tile and token
}

// tiles goes through tile number first and those beside groups further on, at most each.
func (w *hcWarps) tiles(first, each kernel.V) {
	cols := w.p.unit.cols
	w.sums = w.Shared(ir.F32, 2*w.sumWords())
	r := &hcRing{hcWarps: w, rows: w.Shared(ir.BF16, ringTiles*(w.p.c+1)*cols*ringRow), factors: w.Shared(ir.F32, ringTiles*cols*ringFactors)}
	end := w.UDiv(w.Add(w.tokens, w.Int(cols-1)), w.Int(cols))
	tile := func(i kernel.V) kernel.V { return w.Add(first, w.Mul(i, w.beside)) }
	last := w.Sub(each, w.Int(1)) // a group has this many tiles, or one more
	count := w.Select(w.Cmp(kernel.LT, tile(last), end), each, last)
	fetch := func(i kernel.V) {
		w.If(w.Cmp(kernel.LT, i, count), func() { r.copy(tile(i), r.slot(i)) })
		w.CommitCopies()
	}
	for i := range ringTiles - 1 {
		fetch(w.Int(i))
	}
	w.weights()
	room := func(i kernel.V) kernel.V { return w.Mul(w.And(i, w.Int(1)), w.Int(w.sumWords())) }
	w.For(w.Int(0), count, 1, func(i kernel.V) {
		w.WaitCopies(ringTiles - 2)
		w.Barrier() // tile i is there, the one before is multiplied
		fetch(w.Add(i, w.Int(ringTiles-1)))
		before := w.Sub(i, w.Int(1))
		w.If(w.Cmp(kernel.GE, before, w.Int(0)), func() { w.addUp(tile(before), room(before)) })
		w.multiply(tile(i), room(i), r.read(r.slot(i)))
	})
	w.Barrier()
	last = w.Sub(count, w.Int(1))
	w.addUp(tile(last), room(last))
}

// slot is where a tile of the group lies: as many of a ring's are a power of two.
func (r *hcRing) slot(i kernel.V) kernel.V { return r.And(i, r.Int(ringTiles-1)) }

// row is where a token's piece of a stream begins.
func (r *hcRing) row(slot, stream, token kernel.V) kernel.V {
	row := r.Add(r.Mul(r.Add(r.Mul(slot, r.Int(r.p.c+1)), stream), r.Int(r.p.unit.cols)), token)
	return r.Mul(row, r.Int(ringRow))
}

// chunk is where a chunk of a token's row lies in it: the lanes that read the same chunks
// of an even and of an odd token at once use different banks.
func (r *hcRing) chunk(token, chunk kernel.V) kernel.V {
	half := r.Mul(r.And(token, r.Int(1)), r.Int(lanesPerRow))
	return r.Mul(r.Xor(chunk, half), r.Int(ringChunk))
}

// copy starts the copies of a tile: a warp has the streams of a token.
func (r *hcRing) copy(tile, slot kernel.V) {
	p, s := r.p, r.s
	const chunks = ringRow / ringChunk
	global := func(token kernel.V) kernel.V {
		return r.Min(r.Add(r.Mul(tile, r.Int(p.unit.cols)), token), r.Sub(r.tokens, r.Int(1)))
	}
	start := r.Mul(r.piece, r.Int(ringRow))
	chunk := r.And(r.lane, r.Int(chunks-1))
	{
		stream, of := r.LShr(r.lane, r.Int(3)), r.Mul(global(r.wave), r.Int(p.c*p.d))
		from := r.Add(r.Add(of, r.Mul(stream, r.Int(p.d))), r.Add(start, r.Mul(chunk, r.Int(ringChunk))))
		r.rows.CopyAsync(r.Add(r.row(slot, stream, r.wave), r.chunk(r.wave, chunk)), r.in[s.streams], from)
	}
	if !s.withNew {
		return
	}
	lane, cols := r.Lane(), p.unit.cols
	of := func(first, n int, body func(i kernel.V)) {
		r.If(r.And(r.Cmp(kernel.GE, lane, r.Int(first)), r.Cmp(kernel.LT, lane, r.Int(first+n))), func() { body(r.Sub(lane, r.Int(first))) })
	}
	of(0, cols*chunks, func(i kernel.V) {
		token := r.LShr(i, r.Int(3))
		from := r.Add(r.Mul(global(token), r.Int(p.d)), r.Add(start, r.Mul(chunk, r.Int(ringChunk))))
		r.rows.CopyAsync(r.Add(r.row(slot, r.Int(p.c), token), r.chunk(token, chunk)), r.in[0], from)
	})
	factors := func(token kernel.V) kernel.V {
		return r.Mul(r.Add(r.Mul(slot, r.Int(cols)), token), r.Int(ringFactors))
	}
	of(64, cols, func(token kernel.V) {
		r.factors.CopyAsync(r.Add(factors(token), r.Int(p.c*p.c)), r.in[2], r.Mul(global(token), r.Int(p.c)))
	})
	of(96, cols*p.c, func(i kernel.V) {
		token, row := r.LShr(i, r.Int(2)), r.Mul(r.And(i, r.Int(3)), r.Int(p.c))
		r.factors.CopyAsync(r.Add(factors(token), row), r.in[3], r.Add(r.Mul(global(token), r.Int(p.c*p.c)), row))
	})
}

// read is what the stream's read gives, from the copies.
func (r *hcRing) read(slot kernel.V) []kernel.Vec {
	p := r.p
	chunk := r.chunk(r.sub, r.Add(r.Mul(r.side, r.Int(lanesPerRow)), r.group))
	load := func(stream kernel.V) kernel.Vec {
		return r.rows.LoadVec(r.Add(r.row(slot, stream, r.sub), chunk), matrixRun)
	}
	if !r.s.withNew {
		return []kernel.Vec{load(r.stream)}
	}
	read := []kernel.Vec{load(r.Int(p.c))}
	for s := range p.c {
		read = append(read, load(r.Int(s)))
	}
	at := r.Mul(r.Add(r.Mul(slot, r.Int(p.unit.cols)), r.sub), r.Int(ringFactors))
	factors := []kernel.V{r.factors.Load(r.Add(at, r.Add(r.stream, r.Int(p.c*p.c))))}
	for s := range p.c {
		factors = append(factors, r.factors.Load(r.Add(at, r.Add(r.stream, r.Int(s*p.c)))))
	}
	return append(read, r.MakeVec(factors...))
}
