package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
)

// The second launch of the fused hyper-connections on NVIDIA's GPUs. A token has two
// groups: what one makes of the streams and what the other makes of the weights between
// them do not depend on each other, and each is a long chain. The first keeps the row in
// registers from the streams to its codes.

// mixBlock is the block of codes that half a warp has in registers.
const mixBlock = 128

// maxMixVectors bounds the runs of matrixRun elements that a lane has.
const maxMixVectors = 4

// warpMixes reports whether warpMix takes a row, with codes of a block, 0 for none.
func (p *hcProduct) warpMixes(l Lowering, block int) bool {
	return p.unit.mma != nil && p.d%mixBlock == 0 && p.mixVectors(l.Target().Lanes) <= maxMixVectors && (block == 0 || block == mixBlock)
}

// mixVectors is the number of runs that a lane has of a row.
func (p *hcProduct) mixVectors(lanes int) int { return ceilDiv(p.d, lanes*matrixRun) }

// warpMix is the body: the buffers are those of hc_mix_norm.
func (p *hcProduct) warpMix(k *kernel.K, b []*kernel.Buf, tokens kernel.V, rmsEps float64, f codeFormat) {
	token, half := k.UDiv(k.Group(), k.Int(2)), k.URem(k.Group(), k.Int(2))
	k.If(k.Cmp(kernel.EQ, half, k.Int(0)), func() { p.warpRow(k, b, token, tokens, rmsEps, f) })
	k.If(k.Cmp(kernel.EQ, half, k.Int(1)), func() {
		m := p.mixesOf(k, b[0], token, tokens)
		at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(token, k.Int(n))) }
		k.If(k.Cmp(kernel.EQ, k.Wave(), k.Int(0)), func() {
			posts := make([]kernel.V, p.c)
			for j := range posts {
				posts[j] = p.postOf(k, m, b[2], b[3], j)
			}
			a := p.matrix(k, m, reciprocally(k), b[2], b[3])
			k.First(func() { storeBetween(k, posts, a, at(6, p.c), at(7, p.c*p.c)) })
		})
	})
}

// warpRow gathers the streams, and norms and rounds what comes of it.
func (p *hcProduct) warpRow(k *kernel.K, b []*kernel.Buf, token, tokens kernel.V, rmsEps float64, f codeFormat) {
	n := p.mixVectors(k.T.Lanes)
	in, at := make([]kernel.V, n), make([]kernel.V, n)
	streams, weights := make([][]kernel.Vec, n), make([]kernel.Vec, n)
	for i := range n { // before the barriers of mixesOf
		at[i] = k.Mul(k.Add(k.Lane(), k.Int(i*k.T.Lanes)), k.Int(matrixRun))
		in[i] = k.Cmp(kernel.LT, at[i], k.Int(p.d))
		for s := range p.c {
			first := k.Mul(k.Add(k.Mul(token, k.Int(p.c)), k.Int(s)), k.Int(p.d))
			streams[i] = append(streams[i], b[1].LoadVecIf(in[i], k.Add(first, at[i]), matrixRun))
		}
		weights[i] = b[4].LoadVecIf(in[i], at[i], matrixRun)
	}
	m, pre := p.mixesOf(k, b[0], token, tokens), make([]kernel.V, p.c)
	for j := range pre {
		pre[j] = p.preOf(k, m, b[2], b[3], j)
	}
	rows := make([][]kernel.V, n)
	square := k.Float(0)
	for i := range n {
		for word := range streams[i][0].Len() {
			pairs := make([][2]kernel.V, p.c)
			for s := range pairs {
				pairs[s] = unpackBF16(k, k.At(streams[i][s], word))
			}
			for j := range 2 {
				sum := k.Mul(pre[0], pairs[0][j])
				for s := 1; s < p.c; s++ {
					sum = k.Add(sum, k.Mul(pre[s], pairs[s][j]))
				}
				v := k.RoundBF16(sum)
				rows[i] = append(rows[i], v)
				// A lane behind the row has zeros, which a NaN of pre would not leave so.
				square = k.Select(in[i], k.FMA(v, v, square), square)
			}
		}
	}
	r := k.Rsqrt(k.Add(k.Div(k.Sum(square), k.Float(float64(p.d))), k.Float(rmsEps)))
	for i, row := range rows {
		for word := range weights[i].Len() {
			for j, w := range unpackBF16(k, k.At(weights[i], word)) {
				e := 2*word + j
				row[e] = k.RoundBF16(k.Mul(w, k.Mul(row[e], r)))
			}
		}
		out := k.Add(k.Mul(token, k.Int(p.d)), at[i])
		k.If(in[i], func() { b[5].StoreVec(out, rowWords(k, row)) })
		if len(b) > 8 {
			codes := roundRun(k, row, f)
			k.If(in[i], func() { b[8].StoreVec(out, rowWords(k, codes)) })
		}
	}
}

// rowWords is f32 numbers as bf16, two to a word.
func rowWords(k *kernel.K, row []kernel.V) kernel.Vec {
	var words []kernel.V
	for i := 0; i < len(row); i += 2 {
		words = append(words, k.PackBF16(row[i], row[i+1]))
	}
	return k.MakeVec(words...)
}

// roundRun is what quantRow makes of a lane's run of a row, whose block is the runs of
// the half warp that the lane is in.
func roundRun(k *kernel.K, row []kernel.V, f codeFormat) []kernel.V {
	top := k.Float(f.floor)
	for _, v := range row {
		top = k.MaxNaN(top, k.Abs(v))
	}
	for mask := mixBlock / matrixRun / 2; mask >= 1; mask /= 2 {
		top = k.MaxNaN(top, k.LaneXor(top, mask))
	}
	s, _ := k.Pow2Ceil(k.Mul(top, k.Float(float64(float32(1/f.max)))))
	s = k.Select(k.Cmp(kernel.LE, top, k.Float(math.MaxFloat32)), s, k.Float(math.NaN()))
	inverse := k.Div(k.Float(1), s)
	out := make([]kernel.V, len(row))
	for i, v := range row {
		out[i] = k.Mul(f.decode(k, f.encode(k, k.Mul(v, inverse))), s)
	}
	return out
}
