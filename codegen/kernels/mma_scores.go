package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// The indexer's scores on NVIDIA's matrix units. A warp multiplies 16 keys, which it
// keeps in registers, with the heads of a token, eight at a time: q lies in shared
// memory, each lane's fragment in one piece. A lane then has two keys' scores of two
// heads of each eight, and adds those.

// maxWarpQueries bounds the bytes of q in shared memory.
const maxWarpQueries = 40 << 10

func matchWarpScores(o *ir.Op, _ *target.Target) string {
	q := dims(o.Args[0])
	switch bytes := 2 * ceilDiv(q[1], target.MMACols) * target.MMACols * q[2]; {
	case q[2]%(lanesPerRow*matrixRun) != 0:
		return fmt.Sprintf("heads of %d elements are no multiple of %d", q[2], lanesPerRow*matrixRun)
	case bytes > maxWarpQueries:
		return fmt.Sprintf("%d heads of %d elements take %d bytes of shared memory, more than %d", q[1], q[2], bytes, maxWarpQueries)
	}
	return matchMatrixRows(rowsOf(o, 2, q[2]), ir.F4E2M1)
}

// warpScores is one group.
type warpScores struct {
	*kernel.K
	unit       *matrixUnit
	h, d       int
	keysAre    ir.RowFormat
	sub, group kernel.V
	q, w       *kernel.Buf // in shared memory
}

func (e *warpScores) eights() int { return ceilDiv(e.h, target.MMACols) }
func (e *warpScores) runs() int   { return e.d / (lanesPerRow * matrixRun) }

// reserve has shared memory for q and the weights of its heads.
func (e *warpScores) reserve() {
	heads := e.eights() * target.MMACols
	e.q, e.w = e.Shared(ir.BF16, heads*e.d), e.Shared(ir.F32, heads)
}

// loadQ brings q and the weights of its heads there.
func (e *warpScores) loadQ(q, w *kernel.Buf) {
	lanes := e.T.Wave
	heads := e.eights() * target.MMACols
	clamp := func(head kernel.V) kernel.V {
		return e.Select(e.Cmp(kernel.LT, head, e.Int(e.h)), head, e.Int(e.h-1))
	}
	e.Lanes(e.Int(heads*e.d/matrixRun), func(i kernel.V) {
		lane, run := e.URem(i, e.Int(lanes)), e.UDiv(i, e.Int(lanes))
		sub, group := e.unit.place(e.K, lane)
		head := e.Add(e.Mul(e.UDiv(run, e.Int(e.runs())), e.Int(target.MMACols)), sub)
		at := e.Add(e.Mul(e.URem(run, e.Int(e.runs())), e.Int(lanesPerRow*matrixRun)), e.Mul(group, e.Int(matrixRun)))
		e.q.StoreVec(e.Mul(i, e.Int(matrixRun)), q.LoadVec(e.Add(e.Mul(clamp(head), e.Int(e.d)), at), matrixRun))
	})
	e.Lanes(e.Int(heads), func(head kernel.V) { e.w.Store(head, w.Load(clamp(head))) })
	e.Barrier()
}

// scores are those of the lane's two keys, whose rows of the pool are given if they
// are there.
func (e *warpScores) scores(pool *kernel.Buf, rows, there []kernel.V) []kernel.V {
	keys := make([][]kernel.Vec, e.runs())
	for r := range rows {
		row := matrixRowAt(e.K, e.keysAre, pool)
		row.at, row.there = e.Mul(rows[r], e.Int(e.keysAre.Width())), &there[r]
		for j, run := range row.runs(e.group) {
			keys[j] = append(keys[j], run)
		}
	}
	totals := []kernel.V{e.Float(0), e.Float(0)}
	for i := range e.eights() {
		s := e.ZeroVec(kernel.F32, target.ResultRun)
		for j := range keys {
			at := e.Mul(e.Add(e.WaveLane(), e.Int((i*e.runs()+j)*e.T.Wave)), e.Int(matrixRun))
			s = e.unit.multiply(e.K, keys[j], e.q.LoadVec(at, matrixRun), s)
		}
		for n := range target.ResultRun {
			head := e.Add(e.Mul(e.group, e.Int(2)), e.Int(i*target.MMACols+n%2))
			x := e.MaxNaN(e.RoundBF16(e.At(s, n)), e.Float(0))
			x = e.RoundBF16(e.Mul(x, e.w.Load(head)))
			if (i+1)*target.MMACols > e.h {
				x = e.Select(e.Cmp(kernel.LT, head, e.Int(e.h)), x, e.Float(0))
			}
			totals[n/2] = e.Add(totals[n/2], x)
		}
	}
	for r := range totals {
		for _, mask := range []int{1, 2} { // the lanes of the key
			totals[r] = e.Add(totals[r], e.LaneXor(totals[r], mask))
		}
	}
	return totals
}

// lowerWarpScores: one group per token and 16 entries for each of its warps.
func lowerWarpScores(l Lowering, o *ir.Op) error {
	q, n := dims(o.Args[0]), dims(o.Args[3])[1]
	t, h, d := q[0], q[1], q[2]
	unit := unitOf(l.Target())
	perGroup := unit.waves * target.MatrixTile
	keys, format := l.Buf(o.Args[2]), rowsOf(o, 2, d)
	macs := int64(t*n*h) * int64(d)
	l.Launch(Launch{
		Name: "matrix_scores", Spec: fmt.Sprintf("h%d d%d%s", h, d, rowSpec(format)), Grid: t * ceilDiv(n, perGroup), Work: macs, Flops: 2 * macs,
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), keys, l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Touched: map[Ref]int64{keys: int64(requests(l, t)*n) * rowBytes(format)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			n := ints[0]
			chunks := k.UDiv(k.Add(n, k.Int(perGroup-1)), k.Int(perGroup))
			token, chunk := k.UDiv(k.Group(), chunks), k.URem(k.Group(), chunks)
			e := &warpScores{K: k, unit: unit, h: h, d: d, keysAre: format}
			e.reserve()
			e.sub, e.group = unit.place(k, k.WaveLane())
			rows, out := b[3].At(k.Mul(token, n)), b[4].At(k.Mul(token, n))
			from := k.Add(k.Mul(chunk, k.Int(perGroup)), k.Mul(k.Wave(), k.Int(target.MatrixTile)))
			var entry, inside, row, there []kernel.V
			for r := range unit.rows {
				i := k.Add(from, k.Add(e.sub, k.Int(r*target.MMACols)))
				in := k.Cmp(kernel.LT, i, n)
				at := k.Select(in, rows.Load(k.Select(in, i, k.Int(0))), k.Int32(-1))
				entry, inside = append(entry, i), append(inside, in)
				row, there = append(row, k.Convert(at, kernel.I64)), append(there, k.Cmp(kernel.GE, at, k.Int32(0)))
			}
			// Entries that are not there yet follow those that are: most groups of a long
			// row have none, and need no q.
			some := k.Reduce(k.Convert(k.Or(there[0], there[1]), kernel.I32), k.Or)
			k.If(k.Cmp(kernel.NE, some, k.Int32(0)), func() {
				e.loadQ(b[0].At(k.Mul(token, k.Int(h*d))), b[1].At(k.Mul(token, k.Int(h))))
			})
			score := []*kernel.Var{k.Var(k.Float(math.Inf(-1))), k.Var(k.Float(math.Inf(-1)))}
			k.If(k.WaveAny(k.Or(there[0], there[1])), func() {
				for r, total := range e.scores(b[2], row, there) {
					score[r].Set(k.Select(there[r], total, k.Float(math.Inf(-1))))
				}
			})
			for r := range score {
				k.If(k.And(inside[r], k.Cmp(kernel.EQ, e.group, k.Int(0))), func() { out.Store(entry[r], score[r].Get()) })
			}
		},
	})
	return nil
}
