package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "hc_pre_mfma", Op: "hc_pre", Match: onMFMA(matchMatrixHC(0, 1)), Lower: lowerMatrixHCPre, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_pre_mma", Op: "hc_pre", Match: onMMA(matchMatrixHC(0, 1)), Lower: lowerMatrixHCPre, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_pre", Op: "hc_pre", Match: matchStreams, Lower: lowerHCPre},
		&Form{Name: "hc_post", Op: "hc_post", Match: func(o *ir.Op, _ *target.Target) string { return fewStreams(dims(o.Args[1])[1]) }, Lower: lowerHCPost},
		&Form{Name: "hc_head", Op: "hc_head", Match: matchStreams, Lower: lowerHCHead},
	)
}

// maxStreams bounds the unrolled code over pairs of streams.
const maxStreams = 8

func fewStreams(c int) string {
	if c > maxStreams {
		return fmt.Sprintf("%d streams, at most %d are unrolled", c, maxStreams)
	}
	return ""
}

func matchStreams(o *ir.Op, _ *target.Target) string { return fewStreams(dims(o.Args[0])[1]) }

// hcPass is the number of mixes computed in one pass over the streams: their
// accumulators stay in registers.
const hcPass = 8

// hcBlock is the number of elements summed in f32 before they join an f64 sum:
// one f32 sum over all C*D products would miss the op's limit at D = 7168.
const hcBlock = 512

// blockSum is a varying sum of products.
type blockSum struct {
	k     *kernel.K
	part  *kernel.Var // f32, of this block
	total *kernel.Var // f64, of the blocks before
}

func newBlockSum(k *kernel.K) *blockSum {
	return &blockSum{k, k.Var(k.Float(0)), k.Var(k.Double(0))}
}

func (s *blockSum) add(x, y kernel.V) { s.part.Set(s.k.FMA(x, y, s.part.Get())) }

func (s *blockSum) endBlock() {
	s.total.Set(s.k.Add(s.total.Get(), s.k.Convert(s.part.Get(), kernel.F64)))
	s.part.Set(s.k.Float(0))
}

// sum adds the lanes.
func (s *blockSum) sum() kernel.V { return s.k.Sum(s.k.Convert(s.total.Get(), kernel.F32)) }

// hcMixes are the products of one row x [n] with the rows of fn [mixes,n], times
// 1/rms(x): uniform values.
func hcMixes(k *kernel.K, x, fn *kernel.Buf, n, mixes int, eps float64) []kernel.V {
	out := make([]kernel.V, mixes)
	square := newBlockSum(k)
	for from := 0; from < mixes; from += hcPass {
		acc := make([]*blockSum, min(hcPass, mixes-from))
		for j := range acc {
			acc[j] = newBlockSum(k)
		}
		k.For(k.Int(0), k.Int(n), hcBlock, func(start kernel.V) {
			left := k.Sub(k.Int(n), start)
			k.Lanes(k.Select(k.Cmp(kernel.LT, left, k.Int(hcBlock)), left, k.Int(hcBlock)), func(i kernel.V) {
				i = k.Add(i, start)
				v := x.Load(i)
				if from == 0 {
					square.add(v, v)
				}
				for j := range acc {
					acc[j].add(v, fn.Load(k.Add(i, k.Int((from+j)*n))))
				}
			})
			if from == 0 {
				square.endBlock()
			}
			for j := range acc {
				acc[j].endBlock()
			}
		})
		for j := range acc {
			out[from+j] = acc[j].sum()
		}
	}
	r := k.Rsqrt(k.Add(k.Div(square.sum(), k.Float(float64(n))), k.Float(eps)))
	for j := range out {
		out[j] = k.Mul(out[j], r)
	}
	return out
}

// hcGather writes y = b(sum_c pre_c h_c).
func hcGather(k *kernel.K, pre []kernel.V, h, y *kernel.Buf, d int) {
	k.Lanes(k.Int(d), func(i kernel.V) { y.Store(i, hcMixAt(k, pre, h, i, d)) })
}

// hcMixAt is sum_c pre_c h_c of element i.
func hcMixAt(k *kernel.K, pre []kernel.V, h *kernel.Buf, i kernel.V, d int) kernel.V {
	sum := k.Mul(pre[0], h.Load(i))
	for c := 1; c < len(pre); c++ {
		sum = k.Add(sum, k.Mul(pre[c], h.Load(k.Add(i, k.Int(c*d)))))
	}
	return sum
}

// hcPreShape is what the code of hc_pre depends on.
type hcPreShape struct {
	c, d, iters  int
	eps, normEps float64
}

func hcPreShapeOf(o *ir.Op, h *ir.Value) hcPreShape {
	n := dims(h)
	return hcPreShape{c: n[1], d: n[2], iters: o.Int("iters"), eps: o.Float("eps"), normEps: o.Float("norm_eps")}
}

func (s hcPreShape) spec() string {
	return fmt.Sprintf("c%d d%d iters%d eps%g,%g", s.c, s.d, s.iters, s.eps, s.normEps)
}

// work is that of t tokens.
func (s hcPreShape) work(t int) int64 { return int64(t * s.c * s.d * s.mixes()) }

// lowerHCPre: one group per token.
func lowerHCPre(l Lowering, o *ir.Op) error {
	s, t := hcPreShapeOf(o, o.Args[0]), dims(o.Args[0])[0]
	l.Launch(Launch{
		Name: "hc_pre", Spec: s.spec(), Grid: t, Work: s.work(t),
		In:  []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Args[3])},
		Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1]), l.Buf(o.Results[2])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(k.Group(), k.Int(n))) }
			s.row(k, at(0, s.c*s.d), b[1], b[2], b[3], at(4, s.d), at(5, s.c), at(6, s.c*s.c))
		},
	})
	return nil
}

// mixes is the number of rows of fn.
func (s hcPreShape) mixes() int { return (2 + s.c) * s.c }

// row is hc_pre of the streams x of one token.
func (s hcPreShape) row(k *kernel.K, x, fn, scale, base, y, post, comb *kernel.Buf) {
	divided := func(v, sum kernel.V) kernel.V { return k.Div(v, sum) }
	s.mix(k, hcMixes(k, x, fn, s.c*s.d, s.mixes(), s.normEps), divided, x, scale, base, y, post, comb)
}

// mix is what follows the product m; divided divides in the Sinkhorn steps. The Sinkhorn iterations run on uniform values:
// C*C numbers that every lane holds.
func (s hcPreShape) mix(k *kernel.K, m []kernel.V, divided func(v, sum kernel.V) kernel.V, x, scale, base, y, post, comb *kernel.Buf) {
	c := s.c
	pre, p := make([]kernel.V, c), make([]kernel.V, c)
	for j := range c {
		pre[j] = s.preOf(k, m, scale, base, j)
		p[j] = s.postOf(k, m, scale, base, j)
	}
	a := s.matrix(k, m, divided, scale, base)
	hcGather(k, pre, x, y, s.d)
	k.First(func() { storeBetween(k, p, a, post, comb) })
}

// scaled is element j of the product, scaled by its part's number.
func (s hcPreShape) scaled(k *kernel.K, m []kernel.V, scale, base *kernel.Buf, part, j int) kernel.V {
	return k.Add(k.Mul(m[j], scale.Load(k.Int(part))), base.Load(k.Int(j)))
}

// preOf and postOf are the weights of stream j.
func (s hcPreShape) preOf(k *kernel.K, m []kernel.V, scale, base *kernel.Buf, j int) kernel.V {
	return k.Add(k.Sigmoid(s.scaled(k, m, scale, base, 0, j)), k.Float(s.eps))
}

func (s hcPreShape) postOf(k *kernel.K, m []kernel.V, scale, base *kernel.Buf, j int) kernel.V {
	return k.Mul(k.Float(2), k.Sigmoid(s.scaled(k, m, scale, base, 1, s.c+j)))
}

// matrix is the one between streams.
func (s hcPreShape) matrix(k *kernel.K, m []kernel.V, divided func(v, sum kernel.V) kernel.V, scale, base *kernel.Buf) []kernel.V {
	a := make([]kernel.V, s.c*s.c)
	for j := range a {
		a[j] = s.scaled(k, m, scale, base, 2, 2*s.c+j)
	}
	sinkhorn(k, a, s.c, s.iters, s.eps, divided)
	return a
}

func storeBetween(k *kernel.K, p, a []kernel.V, post, comb *kernel.Buf) {
	for j := range p {
		post.Store(k.Int(j), p[j])
	}
	for j := range a {
		comb.Store(k.Int(j), a[j])
	}
}

// sinkhorn normalises a [c,c] in place: softmax of the rows plus eps, one column
// step, then iters-1 row and column steps.
func sinkhorn(k *kernel.K, a []kernel.V, c, iters int, eps float64, divided func(v, sum kernel.V) kernel.V) {
	for i := range c {
		row := a[i*c : (i+1)*c]
		top := row[0]
		for _, v := range row[1:] {
			top = k.MaxNaN(top, v)
		}
		for j := range row {
			row[j] = k.Exp(k.Sub(row[j], top))
		}
		sum := row[0]
		for _, v := range row[1:] {
			sum = k.Add(sum, v)
		}
		for j := range row {
			row[j] = k.Add(k.Div(row[j], sum), k.Float(eps))
		}
	}
	// step divides by the sums over one index plus eps: line and element strides
	// choose rows or columns.
	vars := make([]*kernel.Var, len(a))
	for i := range a {
		vars[i] = k.UniformVar(a[i])
	}
	step := func(line, element int) {
		for i := range c {
			sum := vars[i*line].Get()
			for j := 1; j < c; j++ {
				sum = k.Add(sum, vars[i*line+j*element].Get())
			}
			sum = k.Add(sum, k.Float(eps))
			for j := range c {
				v := vars[i*line+j*element]
				v.Set(divided(v.Get(), sum))
			}
		}
	}
	step(1, c)
	k.For(k.Int(1), k.Int(iters), 1, func(kernel.V) {
		step(c, 1)
		step(1, c)
	})
	for i := range a {
		a[i] = vars[i].Get()
	}
}

// lowerHCPost: one group per token.
func lowerHCPost(l Lowering, o *ir.Op) error {
	h := dims(o.Args[1])
	c, d := h[1], h[2]
	l.Launch(Launch{
		Name: "hc_post", Spec: fmt.Sprintf("c%d d%d", c, d), Grid: h[0], Work: int64(h[0] * c * c * d),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(k.Group(), k.Int(n))) }
			hcPostRow(k, at(0, d), at(1, c*d), at(2, c), at(3, c*c), at(4, c*d), c, d)
		},
	})
	return nil
}

// hcPostRow writes the new streams y of one token.
func hcPostRow(k *kernel.K, x, h, post, comb, y *kernel.Buf, c, d int) {
	p, a := make([]kernel.V, c), make([]kernel.V, c*c)
	for j := range p {
		p[j] = post.Load(k.Int(j))
	}
	for j := range a {
		a[j] = comb.Load(k.Int(j))
	}
	k.Lanes(k.Int(d), func(i kernel.V) {
		v := x.Load(i)
		in := make([]kernel.V, c)
		for s := range in {
			in[s] = h.Load(k.Add(i, k.Int(s*d)))
		}
		for j := range c {
			y.Store(k.Add(i, k.Int(j*d)), hcPostElement(k, v, func(s int) kernel.V { return in[s] }, p, a, j))
		}
	})
}

// hcPostElement is an element of the new stream j, x that of the sublayer's output.
func hcPostElement(k *kernel.K, x kernel.V, stream func(s int) kernel.V, post, comb []kernel.V, j int) kernel.V {
	c := len(post)
	mixed := k.Mul(comb[j], stream(0))
	for s := 1; s < c; s++ { // the first index of comb is contracted
		mixed = k.FMA(comb[s*c+j], stream(s), mixed)
	}
	return k.Add(k.Mul(post[j], x), mixed)
}

// lowerHCHead: one group per row; on GPUs, if it can, as lowerHCHeadParts says.
func lowerHCHead(l Lowering, o *ir.Op) error {
	h := dims(o.Args[0])
	c, d := h[1], h[2]
	if pieces := headPieces(l, c*d); pieces > 0 {
		lowerHCHeadParts(l, o, pieces)
		return nil
	}
	eps, normEps := o.Float("eps"), o.Float("norm_eps")
	l.Launch(Launch{
		Name: "hc_head", Spec: fmt.Sprintf("c%d d%d eps%g,%g", c, d, eps, normEps), Grid: h[0], Work: int64(h[0] * c * c * d),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			x := b[0].At(k.Mul(k.Group(), k.Int(c*d)))
			m := hcMixes(k, x, b[1], c*d, c, normEps)
			scale := b[2].Load(k.Int(0))
			pre := make([]kernel.V, c)
			for j := range pre {
				pre[j] = k.Add(k.Sigmoid(k.Add(k.Mul(m[j], scale), b[3].Load(k.Int(j)))), k.Float(eps))
			}
			hcGather(k, pre, x, b[4].At(k.Mul(k.Group(), k.Int(d))), d)
		},
	})
	return nil
}
