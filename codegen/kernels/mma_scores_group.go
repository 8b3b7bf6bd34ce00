package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Scores by products of warpgroups: of 64 keys, which the lanes have in registers as they
// have them of 16, by all heads, which lie in shared memory as rows. Of a step's 16
// elements a lane of a row has two pairs: the elements of q lie as those of its words do.

// maxGroupDepth and maxGroupHeads bound the registers of keys and of sums.
const maxGroupDepth, maxGroupHeads = 128, 64

// groupRows is the bytes of blockElements of q for all heads.
func (e *warpScores) groupRows() int { return e.eights() * eightRows }

// sharedOnes is where a block of ones lies behind q, which words are added up with.
func (e *warpScores) sharedOnes() int { return e.groupRows() * e.d / blockElements }

// shareRows brings q to shared memory: blocks of eight heads and blockElements. All lanes of
// the group must get here.
func (e *warpScores) shareRows(q *kernel.Buf) {
	const piece = 16 // bytes
	e.shared = e.SharedPool(e.sharedOnes() + eightRows)
	words := e.shared.As(ir.I32)
	e.fragments(q, func(eight, sub, lane kernel.V, j int, run kernel.Vec) {
		_, group := e.unit.place(e.K, lane)
		row := e.Add(e.Mul(eight, e.Int(eightRows)), e.Mul(sub, e.Int(blockBytes)))
		for word := range run.Len() {
			step := j*2 + word/2
			in := e.Xor(e.Int(step*2%(blockBytes/piece)+word%2), sub)
			at := e.Add(e.Add(row, e.Int(step*2/(blockBytes/piece)*e.groupRows())), e.Add(e.Mul(in, e.Int(piece)), e.Mul(group, e.Int(4))))
			words.Store(e.LShr(at, e.Int(2)), e.At(run, word))
		}
	})
	e.Lanes(e.Int(eightRows/4), func(i kernel.V) { words.Store(e.Add(i, e.Int(e.sharedOnes()/4)), e.Int32(onesBF16)) })
	e.FenceForMatrices()
	e.Barrier()
}

// groupTiles goes through the count tiles of a warp that may have entries. A tile is decoded
// while the heads of the one before are added up; the bytes of the next are under way
// meanwhile, and the rows of the one after it.
func (e *warpScores) groupTiles(count kernel.V, perStep int, r scoreRows, q, w *kernel.Buf) {
	last := e.Sub(e.Convert(r.n, kernel.I32), e.Int32(1))
	first := e.Add(e.Convert(r.from, kernel.I32), e.Convert(e.sub, kernel.I32))
	entry := func(step kernel.V, i int) kernel.V {
		return e.Add(e.Add(first, e.Mul(e.Convert(step, kernel.I32), e.Int32(perStep))), e.Int32(i*target.MMACols))
	}
	// Behind the row's end is its last entry again, for which nothing is stored.
	rowOf := func(step kernel.V, i int) kernel.V { return r.rows.Load(e.Min(entry(step, i), last)) }

	var now, next, later []*kernel.Var // rows of a tile, and of the two after it
	var bytes [][]*kernel.VecVar       // of the next
	begin := make([][]kernel.Vec, e.unit.rows)
	for i := range e.unit.rows {
		rows := []kernel.V{rowOf(e.Int(0), i), rowOf(e.Int(1), i), rowOf(e.Int(2), i)}
		now, next, later = append(now, e.Var(rows[0])), append(next, e.Var(rows[1])), append(later, e.Var(rows[2]))
		begin[i] = e.fetch(rows[0])
		bytes = append(bytes, e.vars(e.fetch(rows[1])))
	}
	e.weights(w)
	e.shareRows(q)
	words := e.vars(e.operands(e.decode(begin)))

	odd := e.Cmp(kernel.NE, e.And(e.group, e.Int(1)), e.Int(0))
	e.For(e.Int(0), count, 1, func(step kernel.V) {
		row := e.Select(odd, now[1].Get(), now[0].Get())
		come := make([][]kernel.Vec, e.unit.rows)
		have := make([][]kernel.Vec, e.unit.rows)
		for i := range e.unit.rows {
			behind := rowOf(e.Add(step, e.Int(3)), i)
			come[i], have[i] = e.fetch(later[i].Get()), get(bytes[i])
			now[i].Set(next[i].Get())
			next[i].Set(later[i].Get())
			later[i].Set(behind)
		}
		sums := e.addHeads(e.products(get(words)))
		for i, x := range e.operands(e.decode(have)) {
			words[i].Set(x)
		}
		for i := range come {
			for j, x := range come[i] {
				bytes[i][j].Set(x)
			}
		}
		// The lanes of a key have the same: the first stores that of its first key, and the
		// second that of the other.
		total := e.WaitGroupMMA(0, sums)[0][0]
		score := e.Select(odd, e.At(total, 2), e.At(total, 0))
		score = e.Select(e.Cmp(kernel.GE, row, e.Int32(0)), score, e.Float(math.Inf(-1)))
		at := e.Select(odd, entry(step, 1), entry(step, 0))
		own := e.Cmp(kernel.LT, e.group, e.Int(e.unit.rows))
		e.If(e.And(own, e.Cmp(kernel.LE, at, last)), func() { r.out.Store(at, score) })
	})
}

func get(list []*kernel.VecVar) []kernel.Vec {
	var out []kernel.Vec
	for _, x := range list {
		out = append(out, x.Get())
	}
	return out
}

// operands are keys as first operands of each step.
func (e *warpScores) operands(keys [][]kernel.Vec) []kernel.Vec {
	var out []kernel.Vec
	for step := range e.d / e.unit.mma.K {
		run, word := step/2, step%2*2
		out = append(out, e.MakeVec(e.At(keys[run][0], word), e.At(keys[run][1], word), e.At(keys[run][0], word+1), e.At(keys[run][1], word+1)))
	}
	return out
}

// products are those of the warpgroup's keys with all heads, by eight.
func (e *warpScores) products(keys []kernel.Vec) []kernel.Vec {
	var steps []int
	for step := range keys {
		at := step * 2 * e.unit.mma.K
		steps = append(steps, at/blockBytes*e.groupRows()+at%blockBytes)
	}
	return e.WaitGroupMMA(0, e.StartHeldMMA(e.eights()*target.MMACols, keys, e.shared.SharedMatrix(e.Int(0), eightRows), steps))[0]
}

// addHeads starts to add up what all heads give, as total does.
func (e *warpScores) addHeads(products []kernel.Vec) kernel.GroupSums {
	words := e.pairs(0, products)
	steps := make([]int, len(words))
	return e.AddGroupMMA([]kernel.Vec{e.ZeroVec(kernel.F32, target.ResultRun)}, words, e.shared.SharedMatrix(e.Int(e.sharedOnes()), eightRows), steps)
}
