package kernels

import (
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

// shareRows brings q to shared memory: blocks of eight heads and blockElements. All lanes of
// the group must get here.
func (e *warpScores) shareRows(q *kernel.Buf) {
	const piece = 16 // bytes
	e.shared = e.SharedPool(e.groupRows() * e.d / blockElements)
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
	e.FenceForMatrices()
	e.Barrier()
}

// groupScores are scores of the lane's two keys, by a product of its warpgroup.
func (e *warpScores) groupScores(keys [][]kernel.Vec) []kernel.V {
	var rows []kernel.Vec
	var steps []int
	for step := range e.d / e.unit.mma.K {
		run, word := step/2, step%2*2
		at := step * 2 * e.unit.mma.K
		steps = append(steps, at/blockBytes*e.groupRows()+at%blockBytes)
		rows = append(rows, e.MakeVec(e.At(keys[run][0], word), e.At(keys[run][1], word), e.At(keys[run][0], word+1), e.At(keys[run][1], word+1)))
	}
	sums := e.WaitGroupMMA(0, e.StartHeldMMA(e.eights()*target.MMACols, rows, e.shared.SharedMatrix(e.Int(0), eightRows), steps))
	var weighted [][]kernel.V
	for i, s := range sums[0] {
		weighted = append(weighted, e.weigh(i, s))
	}
	return e.total(weighted)
}
