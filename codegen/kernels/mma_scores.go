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

// keys are the lane's runs of its two keys, whose rows of the pool are given if they are
// there.
func (e *warpScores) keys(pool *kernel.Buf, rows, there []kernel.V) [][]kernel.Vec {
	keys := make([][]kernel.Vec, e.runs())
	for r := range rows {
		row := matrixRowAt(e.K, e.keysAre, pool)
		row.at, row.there = e.Mul(rows[r], e.Int(e.keysAre.Width())), &there[r]
		for j, run := range row.runs(e.group) {
			keys[j] = append(keys[j], run)
		}
	}
	return keys
}

// scores are those of the lane's two keys.
func (e *warpScores) scores(keys [][]kernel.Vec) []kernel.V {
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

const (
	// scoreSteps is how many times a warp takes 16 keys where there are groups enough: q is
	// read once for them.
	scoreSteps     = 4
	scoreFewGroups = 2048
)

// lowerWarpScores: one group per token and 16 entries for each of its warps, or several
// times as many.
func lowerWarpScores(l Lowering, o *ir.Op) error {
	q, n := dims(o.Args[0]), dims(o.Args[3])[1]
	t, h, d := q[0], q[1], q[2]
	unit := unitOf(l.Target())
	perStep, steps := unit.waves*target.MatrixTile, 1
	if t*ceilDiv(n, perStep) >= scoreFewGroups {
		steps = scoreSteps
	}
	perGroup := perStep * steps
	keys, format := l.Buf(o.Args[2]), rowsOf(o, 2, d)
	macs := int64(t*n*h) * int64(d)
	l.Launch(Launch{
		Name: "matrix_scores", Spec: fmt.Sprintf("h%d d%d steps%d%s", h, d, steps, rowSpec(format)), Grid: t * ceilDiv(n, perGroup), Work: macs, Flops: 2 * macs,
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
			at := func(step kernel.V) *scoreStep { return e.step(rows, n, k.Add(from, k.Mul(step, k.Int(perStep)))) }
			// Entries that are not there yet follow those that are: most groups of a long
			// row have none, and need no q.
			some := k.Int32(0)
			for i := range steps {
				some = k.Or(some, k.Convert(at(k.Int(i)).some(k), kernel.I32))
			}
			none := k.Cmp(kernel.EQ, k.Reduce(some, k.Or), k.Int32(0))
			each := func(f func(s *scoreStep)) {
				if steps == 1 {
					f(at(k.Int(0)))
					return
				}
				k.For(k.Int(0), k.Int(steps), 1, func(i kernel.V) { f(at(i)) })
			}
			k.If(none, func() {
				each(func(s *scoreStep) { e.store(out, s, k.Float(math.Inf(-1)), k.Float(math.Inf(-1))) })
			})
			k.If(k.Not(none), func() {
				var first [][]kernel.Vec
				if steps == 1 { // under way while q is
					s := at(k.Int(0))
					first = e.keys(b[2], s.row, s.there)
				}
				e.loadQ(b[0].At(k.Mul(token, k.Int(h*d))), b[1].At(k.Mul(token, k.Int(h))))
				each(func(s *scoreStep) {
					score := []*kernel.Var{k.Var(k.Float(math.Inf(-1))), k.Var(k.Float(math.Inf(-1)))}
					k.If(k.WaveAny(s.some(k)), func() {
						keys := first
						if keys == nil {
							keys = e.keys(b[2], s.row, s.there)
						}
						for r, total := range e.scores(keys) {
							score[r].Set(k.Select(s.there[r], total, k.Float(math.Inf(-1))))
						}
					})
					e.store(out, s, score[0].Get(), score[1].Get())
				})
			})
		},
	})
	return nil
}

// scoreStep is a lane's two entries of a step, and their rows of the pool.
type scoreStep struct{ entry, inside, row, there []kernel.V }

// step reads the rows of the warp's 16 entries from one on.
func (e *warpScores) step(rows *kernel.Buf, n, from kernel.V) *scoreStep {
	s := &scoreStep{}
	for r := range e.unit.rows {
		i := e.Add(from, e.Add(e.sub, e.Int(r*target.MMACols)))
		in := e.Cmp(kernel.LT, i, n)
		at := e.Select(in, rows.Load(e.Select(in, i, e.Int(0))), e.Int32(-1))
		s.entry, s.inside = append(s.entry, i), append(s.inside, in)
		s.row, s.there = append(s.row, e.Convert(at, kernel.I64)), append(s.there, e.Cmp(kernel.GE, at, e.Int32(0)))
	}
	return s
}

// some reports whether one of the lane's rows is there.
func (s *scoreStep) some(k *kernel.K) kernel.V { return k.Or(s.there[0], s.there[1]) }

// store stores the scores of the lane's two entries.
func (e *warpScores) store(out *kernel.Buf, s *scoreStep, scores ...kernel.V) {
	for r, score := range scores {
		e.If(e.And(s.inside[r], e.Cmp(kernel.EQ, e.group, e.Int(0))), func() { out.Store(s.entry[r], score) })
	}
}
