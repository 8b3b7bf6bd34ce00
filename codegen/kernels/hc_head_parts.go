package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// hc_head on GPUs: one group would read fn alone, C rows of C*D numbers. The first launch
// has a group for a piece of a token's streams; the second adds what the pieces found,
// in every group again, and mixes a run of the elements.

const (
	headRun   = 2    // elements of a lane in a piece
	headWidth = 1024 // elements of a group of the second launch
)

// headPieces is how many groups share a token of n elements, or 0 if they cannot.
func headPieces(l Lowering, n int) int {
	piece := headRun * l.Target().Lanes
	if !l.Target().GPU() || n%piece != 0 || n/piece > l.Target().Lanes {
		return 0
	}
	return n / piece
}

func lowerHCHeadParts(l Lowering, o *ir.Op, pieces int) {
	h := dims(o.Args[0])
	t, c, d := h[0], h[1], h[2]
	eps, normEps := o.Float("eps"), o.Float("norm_eps")
	n, sums := c*d, c+1
	part := l.Scratch(ir.F32, t*sums*pieces) // the mixes, and the squares
	l.Launch(Launch{
		Name: "hc_head_parts", Spec: fmt.Sprintf("c%d d%d", c, d), Grid: t * pieces, Work: int64(t * c * n),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}, Out: []Ref{part},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			token, piece := k.UDiv(k.Group(), k.Int(pieces)), k.URem(k.Group(), k.Int(pieces))
			at := k.Mul(k.Add(k.Mul(piece, k.Int(k.T.Lanes)), k.Lane()), k.Int(headRun))
			words := b[0].LoadVec(k.Add(k.Mul(token, k.Int(n)), at), headRun)
			fn := make([]kernel.Vec, c)
			for j := range fn {
				fn[j] = k.AsF32(b[1].LoadVec(k.Add(at, k.Int(j*n)), headRun))
			}
			for j := range sums {
				var sum kernel.V
				for i := range headRun {
					x := numberOf(k, words, i, headRun)
					y := x
					if j < c {
						y = k.At(fn[j], i)
					}
					if i == 0 {
						sum = k.Mul(x, y)
					} else {
						sum = k.FMA(x, y, sum)
					}
				}
				total := k.Sum(sum)
				k.First(func() {
					b[2].Store(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(sums)), k.Int(j)), k.Int(pieces)), piece), total)
				})
			}
		},
	})
	runs := ceilDiv(d, headWidth)
	l.Launch(Launch{
		Name: "hc_head_mix", Spec: fmt.Sprintf("c%d d%d eps%g,%g", c, d, eps, normEps), Grid: t * runs, Work: int64(t * n),
		In: []Ref{l.Buf(o.Args[0]), part, l.Buf(o.Args[2]), l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			token, run := k.UDiv(k.Group(), k.Int(runs)), k.URem(k.Group(), k.Int(runs))
			part := b[1].At(k.Mul(token, k.Int(sums*pieces)))
			in := k.Cmp(kernel.LT, k.Lane(), k.Int(pieces))
			mine := k.Select(in, k.Lane(), k.Int(0))
			m := make([]kernel.V, sums)
			for j := range m {
				x := k.Convert(part.Load(k.Add(mine, k.Int(j*pieces))), kernel.F64)
				m[j] = k.Convert(k.Sum(k.Select(in, x, k.Double(0))), kernel.F32)
			}
			r := k.Rsqrt(k.Add(k.Div(m[c], k.Float(float64(n))), k.Float(normEps)))
			scale := b[2].Load(k.Int(0))
			pre := make([]kernel.V, c)
			for j := range pre {
				pre[j] = k.Add(k.Sigmoid(k.Add(k.Mul(k.Mul(m[j], r), scale), b[3].Load(k.Int(j)))), k.Float(eps))
			}
			from := k.Mul(run, k.Int(headWidth))
			x, y := b[0].At(k.Add(k.Mul(token, k.Int(n)), from)), b[4].At(k.Add(k.Mul(token, k.Int(d)), from))
			k.Lanes(k.Min(k.Sub(k.Int(d), from), k.Int(headWidth)), func(i kernel.V) { y.Store(i, hcMixAt(k, pre, x, i, d)) })
		},
	})
}
