package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "compress", Op: "compress", Match: always, Lower: lowerCompress, Joins: true},
		&Form{Name: "indexer_scores_mfma", Op: "indexer_scores", Match: onMFMA(matchMatrixScores), Lower: lowerMatrixScores},
		&Form{Name: "indexer_scores_mma", Op: "indexer_scores", Match: onMMA(matchWarpScores), Lower: lowerWarpScores},
		&Form{Name: "indexer_scores", Op: "indexer_scores", Match: always, Lower: lowerIndexerScores},
		&Form{Name: "sparse_attention_mfma", Op: "sparse_attention", Match: onMFMA(matchMatrixAttention), Lower: lowerMatrixAttention, Liberty: "bf16-probabilities"},
		&Form{Name: "sparse_attention_mma", Op: "sparse_attention", Match: onMMA(matchMatrixAttention), Lower: lowerMatrixAttention, Liberty: "bf16-probabilities"},
		&Form{Name: "sparse_attention", Op: "sparse_attention", Match: matchAttention, Lower: lowerAttention},
	)
}

// lowerCompress: one group per entry, lanes over the channels, two passes over
// the members; on GPUs, if it can, as lowerCompressLanes says.
func lowerCompress(l Lowering, o *ir.Op) error {
	w, es := dims(o.Args[0])[1], dims(o.Args[4])
	e, s, d := es[0], es[1], dims(o.Results[0])[1]
	if l.Target().GPU() && compressLanes(w, d) > 0 {
		lowerCompressLanes(l, o)
		return nil
	}
	overlap := o.Bool("overlap")
	in := make([]Ref, len(o.Args))
	for i, a := range o.Args {
		in[i] = l.Buf(a)
	}
	l.Launch(Launch{
		Name: "compress", Spec: fmt.Sprintf("w%d d%d s%d overlap%v", w, d, s, overlap), Grid: e, Work: int64(e * s * d * 16),
		In: in, Out: []Ref{l.Buf(o.Results[0])}, Touched: map[Ref]int64{in[0]: int64(e * s * d * 4), in[1]: int64(e * s * d * 4)},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			compressChannels(k, b, w, d, s, overlap, b[6].At(k.Mul(k.Group(), k.Int(d))).Store)
		},
	})
	return nil
}

// compressChannels gives the channels of the group's entry to store.
func compressChannels(k *kernel.K, b []*kernel.Buf, w, d, s int, overlap bool, store func(i, v kernel.V)) {
	old, own := b[4].At(k.Mul(k.Group(), k.Int(s))), b[5].At(k.Mul(k.Group(), k.Int(s)))
	// members calls f with the k and g columns of each member.
	members := func(f func(kcol, gcol *kernel.Buf)) {
		k.For(k.Int(0), k.Int(s), 1, func(m kernel.V) {
			col := k.Int(0)
			if overlap { // the second half of the members uses the second half of the columns
				col = k.Mul(k.Convert(k.Cmp(kernel.GE, m, k.Int(s/2)), kernel.I64), k.Int(d))
			}
			from := func(row kernel.V, kb, gb *kernel.Buf) {
				at := k.Add(k.Mul(k.Convert(row, kernel.I64), k.Int(w)), col)
				f(kb.At(at), gb.At(at))
			}
			mine, theirs := own.Load(m), old.Load(m)
			isOwn := k.Cmp(kernel.GE, mine, k.Int32(0))
			k.If(isOwn, func() { from(mine, b[2], b[3]) })
			k.If(k.And(k.Not(isOwn), k.Cmp(kernel.GE, theirs, k.Int32(0))), func() { from(theirs, b[0], b[1]) })
		})
	}
	// Channels in pieces of one lane each, so that the sums stay in registers.
	k.For(k.Int(0), k.Int((d+k.T.Lanes-1)/k.T.Lanes), 1, func(piece kernel.V) {
		i := k.Add(k.Lane(), k.Mul(piece, k.Int(k.T.Lanes)))
		k.If(k.Cmp(kernel.LT, i, k.Int(d)), func() {
			top, den, num := k.Var(k.Float(math.Inf(-1))), k.Var(k.Float(0)), k.Var(k.Float(0))
			members(func(_, g *kernel.Buf) { top.Set(k.Max(g.Load(i), top.Get())) })
			members(func(kc, g *kernel.Buf) {
				e := k.Exp(k.Sub(g.Load(i), top.Get()))
				den.Set(k.Add(den.Get(), e))
				num.Set(k.FMA(e, kc.Load(i), num.Get()))
			})
			v := k.Div(num.Get(), den.Get())
			store(i, k.Select(k.Cmp(kernel.EQ, den.Get(), k.Float(0)), k.Float(0), v))
		})
	})
}

// scoreChunk is the number of entries that one group of indexer_scores scores.
const scoreChunk = 32

// lowerIndexerScores: one group per token row and chunk of entries.
func lowerIndexerScores(l Lowering, o *ir.Op) error {
	q, n := dims(o.Args[0]), dims(o.Args[3])[1]
	t, h, d := q[0], q[1], q[2]
	chunks := (n + scoreChunk - 1) / scoreChunk
	keys, format := l.Buf(o.Args[2]), rowsOf(o, 2, d)
	l.Launch(Launch{
		Name: "indexer_scores", Spec: fmt.Sprintf("h%d d%d%s", h, d, rowSpec(format)), Grid: t * chunks, Work: int64(t * n * h * d),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), keys, l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Touched: map[Ref]int64{keys: int64(requests(l, t)*n) * rowBytes(format)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			n := ints[0]
			chunks := k.UDiv(k.Add(n, k.Int(scoreChunk-1)), k.Int(scoreChunk))
			t := k.UDiv(k.Group(), chunks)
			from := k.Mul(k.URem(k.Group(), chunks), k.Int(scoreChunk))
			to := k.Add(from, k.Int(scoreChunk))
			to = k.Select(k.Cmp(kernel.LT, to, n), to, n)
			q, w := b[0].At(k.Mul(t, k.Int(h*d))), b[1].At(k.Mul(t, k.Int(h)))
			rows, out := b[3].At(k.Mul(t, n)), b[4].At(k.Mul(t, n))
			k.For(from, to, 1, func(e kernel.V) {
				row := rows.Load(e)
				score := k.UniformVar(k.Float(math.Inf(-1)))
				k.If(k.Cmp(kernel.GE, row, k.Int32(0)), func() {
					key := rowAt(k, format, b[2], row)
					score.Set(k.Float(0))
					k.For(k.Int(0), k.Int(h), 1, func(hd kernel.V) {
						acc := k.Var(k.Float(0))
						qh := q.At(k.Mul(hd, k.Int(d)))
						key.each(func(i, x kernel.V) { acc.Set(k.FMA(qh.Load(i), x, acc.Get())) })
						s := k.MaxNaN(k.RoundBF16(k.Sum(acc.Get())), k.Float(0))
						score.Set(k.Add(score.Get(), k.RoundBF16(k.Mul(s, w.Load(hd)))))
					})
				})
				k.First(func() { out.Store(e, score.Get()) })
			})
		},
	})
	return nil
}

func attentionColumns(o *ir.Op) int {
	n := 0
	for i := 3; i < len(o.Args); i += 2 {
		n += dims(o.Args[i])[1]
	}
	return n
}

func matchAttention(o *ir.Op, t *target.Target) string {
	if need := 4 * (attentionColumns(o) + dims(o.Args[0])[2]); t.GPU() && need > maxShared {
		return fmt.Sprintf("scores of %d columns do not fit shared memory", attentionColumns(o))
	}
	return ""
}

// lowerAttention: one group per token row and head. Scores go to scratch, then
// their softmax, then the weighted sum of the rows in column order: rows that
// are -1 take no part, so the bits depend on the rows that are there, not on
// the sets or columns they came in.
func lowerAttention(l Lowering, o *ir.Op) error {
	q := dims(o.Args[0])
	t, h, d := q[0], q[1], q[2]
	scale := o.Float("scale")
	in := []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}
	var widths []int
	touched, format := map[Ref]int64{}, rowsOf(o, 2, d)
	for i := 2; i < len(o.Args); i += 2 {
		kv, width := l.Buf(o.Args[i]), dims(o.Args[i+1])[1]
		in = append(in, kv, l.Buf(o.Args[i+1]))
		widths = append(widths, width)
		touched[kv] += int64(requests(l, t)*width) * rowBytes(format)
	}
	columns := attentionColumns(o)
	l.Launch(Launch{
		Name: "sparse_attention", Spec: fmt.Sprintf("h%d d%d sets%d scale%g%s", h, d, len(widths), scale, rowSpec(format)), Grid: t * h, Work: int64(t * h * columns * d),
		In: in, Out: []Ref{l.Buf(o.Results[0]), l.Scratch(ir.F32, t*h*columns)}, Ints: append([]int{columns}, widths...),
		Touched: touched,
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			token, head := k.UDiv(k.Group(), k.Int(h)), k.URem(k.Group(), k.Int(h))
			q := b[0].At(k.Mul(k.Group(), k.Int(d)))
			y, scores := b[len(b)-2].At(k.Mul(k.Group(), k.Int(d))), b[len(b)-1].At(k.Mul(k.Group(), ints[0]))
			// each calls f for every row that is there, in column order.
			each := func(f func(kv row, column kernel.V)) {
				before := k.Int(0)
				for s := range widths {
					width := ints[1+s]
					rows := b[3+2*s].At(k.Mul(token, width))
					k.For(k.Int(0), width, 1, func(j kernel.V) {
						row := rows.Load(j)
						k.If(k.Cmp(kernel.GE, row, k.Int32(0)), func() {
							f(rowAt(k, format, b[2+2*s], row), k.Add(before, j))
						})
					})
					before = k.Add(before, width)
				}
			}
			top := k.UniformVar(k.Float(math.Inf(-1)))
			each(func(kv row, column kernel.V) {
				acc := k.Var(k.Float(0))
				kv.each(func(i, x kernel.V) { acc.Set(k.FMA(q.Load(i), x, acc.Get())) })
				s := k.Mul(k.Sum(acc.Get()), k.Float(scale))
				top.Set(k.MaxNaN(s, top.Get()))
				k.First(func() { scores.Store(column, s) })
			})
			k.Barrier()
			den := k.UniformVar(k.Float(0))
			each(func(_ row, column kernel.V) {
				e := k.Exp(k.Sub(scores.Load(column), top.Get()))
				den.Set(k.Add(den.Get(), e))
				k.Barrier() // every lane has read the score before it is replaced
				k.First(func() { scores.Store(column, e) })
			})
			k.Barrier()
			sink := k.Exp(k.Sub(b[1].Load(head), top.Get()))
			total := k.Add(den.Get(), sink)
			// Elements of the result in pieces, so that the sums stay in registers.
			const registers = 8
			piece := registers * k.T.Lanes
			k.For(k.Int(0), k.Int((d+piece-1)/piece), 1, func(p kernel.V) {
				acc := make([]*kernel.Var, registers)
				from, at := make([]kernel.V, registers), make([]kernel.V, registers)
				for r := range acc {
					acc[r] = k.Var(k.Float(0))
					from[r] = k.Add(k.Mul(p, k.Int(piece)), k.Int(r*k.T.Lanes))
					at[r] = k.Add(k.Lane(), from[r])
				}
				inside := func(r int, f func()) {
					if d%piece == 0 {
						f()
						return
					}
					k.If(k.Cmp(kernel.LT, at[r], k.Int(d)), f)
				}
				each(func(kv row, column kernel.V) {
					w := k.Div(scores.Load(column), total)
					for r := range acc {
						inside(r, func() { acc[r].Set(k.FMA(w, kv.load(at[r], from[r]), acc[r].Get())) })
					}
				})
				for r := range acc {
					inside(r, func() { y.Store(at[r], acc[r].Get()) })
				}
			})
		},
	})
	return nil
}

// requests is how many of t tokens read rows of their own: one for each request,
// or each of them if the step does not say.
func requests(l Lowering, t int) int {
	if n := l.Requests(); n > 0 {
		return min(n, t)
	}
	return t
}
