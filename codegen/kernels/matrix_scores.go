package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The indexer's scores on matrix units. A wave multiplies the heads of a token, 16 at
// a time, with 16 keys; a lane then has heads of one key, whose scores it adds.

// matrixScoreSteps is how many times a wave takes 16 keys: q is read once for them.
const matrixScoreSteps = 4

// matrixScoreKeys is the number of keys of a group.
const matrixScoreKeys = matrixWaves * matrixScoreSteps * target.MatrixTile

// maxScoreWords bounds the registers that hold q.
const maxScoreWords = 64

func matchMatrixScores(o *ir.Op, _ *target.Target) string {
	q := dims(o.Args[0])
	switch words := ceilDiv(q[1], target.MatrixTile) * q[2] / lanesPerRow / 2; {
	case q[2]%(lanesPerRow*matrixRun) != 0:
		return fmt.Sprintf("heads of %d elements are no multiple of %d", q[2], lanesPerRow*matrixRun)
	case words > maxScoreWords:
		return fmt.Sprintf("%d heads of %d elements take %d registers, more than %d", q[1], q[2], words, maxScoreWords)
	}
	return matchMatrixRows(rowsOf(o, 2, q[2]), ir.F4E2M1)
}

// lowerMatrixScores: one group per token and matrixScoreKeys entries.
func lowerMatrixScores(l Lowering, o *ir.Op) error {
	q, n := dims(o.Args[0]), dims(o.Args[3])[1]
	t, h, d := q[0], q[1], q[2]
	m := l.Target().MFMA(ir.BF16, ir.BF16, false)
	keys, format := l.Buf(o.Args[2]), rowsOf(o, 2, d)
	macs := int64(t*n*h) * int64(d)
	l.Launch(Launch{
		Name: "matrix_scores", Spec: fmt.Sprintf("h%d d%d%s", h, d, rowSpec(format)), Grid: t * ceilDiv(n, matrixScoreKeys), Work: macs, Flops: 2 * macs,
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), keys, l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Touched: map[Ref]int64{keys: int64(requests(l, t)*n) * rowBytes(format)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			n := ints[0]
			chunks := k.UDiv(k.Add(n, k.Int(matrixScoreKeys-1)), k.Int(matrixScoreKeys))
			token, chunk := k.UDiv(k.Group(), chunks), k.URem(k.Group(), chunks)
			lane, wave := k.WaveLane(), k.Wave()
			sub, group := k.And(lane, k.Int(target.MatrixTile-1)), k.LShr(lane, k.Int(4))
			firstHead := k.Mul(group, k.Int(target.ResultRun))
			q, w := b[0].At(k.Mul(token, k.Int(h*d))), b[1].At(k.Mul(token, k.Int(h)))
			rows, out := b[3].At(k.Mul(token, n)), b[4].At(k.Mul(token, n))

			tiles := ceilDiv(h, target.MatrixTile)
			qs, weights := make([][]kernel.Vec, tiles), make([][]kernel.V, tiles)
			for i := range tiles {
				qs[i] = tileRuns(k, sub, group, func(in kernel.V) matrixRow {
					head := k.Add(in, k.Int(i*target.MatrixTile))
					head = k.Select(k.Cmp(kernel.LT, head, k.Int(h)), head, k.Int(h-1))
					return matrixRow{k: k, format: ir.RowFormat{D: d}, b: q, at: k.Mul(head, k.Int(d))}
				})
				for r := range target.ResultRun {
					head := k.Add(firstHead, k.Int(i*target.MatrixTile+r))
					weights[i] = append(weights[i], w.Load(k.Select(k.Cmp(kernel.LT, head, k.Int(h)), head, k.Int(h-1))))
				}
			}
			from := k.Add(k.Mul(chunk, k.Int(matrixScoreKeys)), k.Mul(wave, k.Int(matrixScoreSteps*target.MatrixTile)))
			k.For(k.Int(0), k.Int(matrixScoreSteps), 1, func(step kernel.V) {
				entry := k.Add(from, k.Add(k.Mul(step, k.Int(target.MatrixTile)), sub))
				inside := k.Cmp(kernel.LT, entry, n)
				row := k.Var(k.Int32(-1))
				k.If(inside, func() { row.Set(rows.Load(entry)) })
				there := k.Cmp(kernel.GE, row.Get(), k.Int32(0))
				score := k.Var(k.Float(math.Inf(-1)))
				// Entries that are not there yet follow those that are: most of a long row of
				// them is skipped. A row that is -1 beside others reads none of its own.
				k.If(k.WaveAny(there), func() {
					mine := row.Get()
					keys := tileRuns(k, sub, group, func(i kernel.V) matrixRow {
						row := k.FromLane(mine, i)
						there := k.Cmp(kernel.GE, row, k.Int32(0))
						return matrixRow{k: k, format: format, b: b[2], at: k.Mul(k.Convert(row, kernel.I64), k.Int(format.Width())), there: &there}
					})
					total := k.Float(0)
					for i := range tiles {
						s := k.ZeroVec(kernel.F32, target.ResultRun)
						for j, key := range keys {
							s = multiplyWords(k, m, qs[i][j], key, s)
						}
						for r := range target.ResultRun {
							x := k.MaxNaN(k.RoundBF16(k.At(s, r)), k.Float(0))
							x = k.RoundBF16(k.Mul(x, weights[i][r]))
							if (i+1)*target.MatrixTile > h {
								head := k.Add(firstHead, k.Int(i*target.MatrixTile+r))
								x = k.Select(k.Cmp(kernel.LT, head, k.Int(h)), x, k.Float(0))
							}
							total = k.Add(total, x)
						}
					}
					for _, mask := range []int{16, 32} { // the lanes of the key
						total = k.Add(total, k.LaneXor(total, mask))
					}
					score.Set(k.Select(there, total, k.Float(math.Inf(-1))))
				})
				k.If(k.And(inside, k.Cmp(kernel.EQ, group, k.Int(0))), func() { out.Store(entry, score.Get()) })
			})
		},
	})
	return nil
}

// multiplyWords multiplies as many k as the vectors of bf16 have.
func multiplyWords(k *kernel.K, m *target.MFMA, a, b, c kernel.Vec) kernel.Vec {
	words := m.PerLane() / 2
	for i := 0; i < a.Len(); i += words {
		c = k.MMA(m, k.Part(a, i, words), k.Part(b, i, words), c)
	}
	return c
}
