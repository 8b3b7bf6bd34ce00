package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The first launch of hyper-connections on NVIDIA's matrix units. A lane has two rows
// of fn, and registers for one stream of them: each warp has a stream, and warps with
// the same stream lie side by side.

// mmaHCRun is the number of elements of a stream that a warp multiplies.
const mmaHCRun = lanesPerRow * matrixRun

// side is how many warps of a group have the same stream: as many as d allows.
func (p *hcProduct) side() int {
	n := p.unit.waves / p.c
	for n > 1 && p.d%(n*mmaHCRun) != 0 {
		n--
	}
	return n
}

// streamOfWarp gives matrixRun elements, from element on, of one stream of a token.
// own is false in lanes that have a token twice.
type streamOfWarp func(k *kernel.K, in, out []*kernel.Buf, token, element, stream, own kernel.V) kernel.Vec

func (p *hcProduct) warpBody(k *kernel.K, fn, parts *kernel.Buf, tokens kernel.V, streamOf func(token, element, stream, own kernel.V) kernel.Vec) {
	u := p.unit
	tiles := k.UDiv(k.Add(tokens, k.Int(u.cols-1)), k.Int(u.cols))
	piece, tile := k.UDiv(k.Group(), tiles), k.URem(k.Group(), tiles) // tiles of a piece follow each other: fn stays cached
	lane, wave := k.WaveLane(), k.Wave()
	sub, group := u.place(k, lane)
	stream, side := k.URem(wave, k.Int(p.c)), k.UDiv(wave, k.Int(p.c))
	element := k.Add(k.Mul(piece, k.Int(p.piece())), k.Add(k.Mul(side, k.Int(mmaHCRun)), k.Mul(group, k.Int(matrixRun))))
	token := k.Add(k.Mul(tile, k.Int(u.cols)), sub)
	own := k.Cmp(kernel.LT, token, tokens)
	firstGroup := k.Cmp(kernel.EQ, group, k.Int(0))
	warps := p.c * p.side()
	sums, squares := k.Shared(ir.F32, warps*p.fnTiles()*u.sumWords()), k.Shared(ir.F32, warps*u.cols)
	place := func(wave, tile kernel.V) kernel.V { return u.sumPlace(k, k.Add(k.Mul(wave, k.Int(p.fnTiles())), tile)) }

	k.If(k.Cmp(kernel.LT, wave, k.Int(warps)), func() {
		weights := p.fnRows(k, fn, sub, element, stream)
		x := streamOf(k.Select(own, token, k.Sub(tokens, k.Int(1))), element, stream, own)
		square := k.Float(0)
		for i := range x.Len() {
			for _, v := range unpackBF16(k, k.At(x, i)) {
				square = k.FMA(v, v, square)
			}
		}
		for _, mask := range []int{1, 2} { // the lanes of the token
			square = k.Add(square, k.LaneXor(square, mask))
		}
		for t, rows := range weights {
			var hi, lo []kernel.Vec
			for _, row := range rows {
				h, l := twoBF16(k, row)
				hi, lo = append(hi, h), append(lo, l)
			}
			sum := u.multiply(k, lo, x, u.multiply(k, hi, x, k.ZeroVec(kernel.F32, target.ResultRun)))
			u.storeSum(k, sums, place(wave, k.Int(t)), lane, sum)
		}
		k.If(firstGroup, func() { squares.Store(k.Add(k.Mul(wave, k.Int(u.cols)), sub), square) })
	})
	k.Barrier()

	at := k.Mul(k.Add(k.Mul(piece, tokens), token), k.Int(p.width()))
	k.If(k.And(own, k.Cmp(kernel.LT, wave, k.Int(p.fnTiles()))), func() {
		var sum kernel.Vec
		for w := range warps {
			v := u.loadSum(k, sums, place(k.Int(w), wave), lane)
			if w > 0 {
				v = k.MapVec(func(v ...kernel.V) kernel.V { return k.Add(v[0], v[1]) }, sum, v)
			}
			sum = v
		}
		mix := k.Add(k.Mul(wave, k.Int(target.MatrixTile)), k.Mul(group, k.Int(target.ResultRun)))
		k.If(k.Cmp(kernel.LT, mix, k.Int(p.squares())), func() { parts.StoreVec(k.Add(at, mix), sum) })
	})
	squaring := k.And(k.Cmp(kernel.EQ, wave, k.Int(u.waves-1)), firstGroup)
	k.If(k.And(own, squaring), func() {
		sum := squares.Load(sub)
		for w := 1; w < warps; w++ {
			sum = k.Add(sum, squares.Load(k.Add(sub, k.Int(w*u.cols))))
		}
		parts.Store(k.Add(at, k.Int(p.squares())), sum)
	})
}

// fnRows reads the lane's elements of its rows of fn, by tile of 16 rows. Rows behind
// the last are zeros.
func (p *hcProduct) fnRows(k *kernel.K, fn *kernel.Buf, sub, element, stream kernel.V) [][]kernel.Vec {
	out := make([][]kernel.Vec, p.fnTiles())
	for t := range out {
		for i := range p.unit.rows {
			first := t*target.MatrixTile + i*target.MMACols
			if first >= p.mixes() {
				out[t] = append(out[t], k.ZeroVec(kernel.I32, matrixRun))
				continue
			}
			row := k.Add(sub, k.Int(first))
			row = k.Select(k.Cmp(kernel.LT, row, k.Int(p.mixes())), row, k.Int(p.mixes()-1))
			at := k.Add(k.Mul(k.Add(k.Mul(row, k.Int(p.c)), stream), k.Int(p.d)), element)
			out[t] = append(out[t], k.Join(fn.LoadVec(at, 4), fn.LoadVec(k.Add(at, k.Int(4)), 4)))
		}
	}
	return out
}

// postStream is hc_post of a lane's elements of one stream: the operands are its.
func (p *hcProduct) postStream(k *kernel.K, in []*kernel.Buf, token, element, stream kernel.V) kernel.Vec {
	c := p.c
	x := in[0].LoadVec(k.Add(k.Mul(token, k.Int(p.d)), element), matrixRun)
	h := p.read(k, in[1], token, element)
	// Of post and comb what the stream takes, in the places of stream 0.
	post, comb := make([]kernel.V, c), make([]kernel.V, c*c)
	post[0] = in[2].Load(k.Add(k.Mul(token, k.Int(c)), stream))
	for s := range c {
		comb[s*c] = in[3].Load(k.Add(k.Mul(token, k.Int(c*c)), k.Add(stream, k.Int(s*c))))
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
}
