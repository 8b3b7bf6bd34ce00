package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Attention where four warps multiply together, 64 heads: the instructions read the
// rows, queries and probabilities from shared memory, as they lie there for others. One
// four makes the scores of the first half of a part's rows, and the product with the
// first half of their elements, the other the rest.

const (
	warpsTogether = 4
	// eightRows is how far 8 rows of a block are from the next.
	eightRows = 8 * blockBytes
)

// fours is which of the two fours the warp is in.
func (g *warpGroup) fours() kernel.V { return g.UDiv(g.warp, g.Int(warpsTogether)) }

// written has all warps see what lanes wrote.
func (g *warpGroup) written() {
	if g.together {
		g.FenceForMatrices()
	}
	g.Barrier()
}

func (g *warpGroup) writeScoresTogether(buffer kernel.V, steps []func()) {
	rows := attentionPart * warpsTogether / g.warps
	firstRow := g.Mul(g.fours(), g.Int(rows))
	q := g.pool.SharedMatrix(g.Int(g.at.q), eightRows)
	kv := g.pool.SharedMatrix(g.Add(g.Add(g.Int(g.at.rows[0]), buffer), g.Mul(firstRow, g.Int(blockBytes))), eightRows)
	var chains []kernel.GroupChain
	for quarter := range 4 {
		c := kernel.GroupChain{A: q, B: kv}
		for s := range g.quarterSteps() {
			i := quarter*g.quarterSteps() + s
			block, in := i/stepsPerBlock, i%stepsPerBlock*matrixStep
			c.Steps = append(c.Steps, [2]int{block*g.heads()*blockBytes + in, block*attentionPart*blockBytes + in})
		}
		chains = append(chains, c)
	}
	started := g.StartGroupMMA(rows, chains...)
	for _, step := range steps {
		step()
	}
	sums := g.WaitGroupMMA(0, started)
	scores := g.lds(g.at.scores, ir.F32)
	for i := range sums[0] {
		x := g.addVec(g.addVec(sums[0][i], sums[1][i]), g.addVec(sums[2][i], sums[3][i]))
		for r := range 2 {
			at := g.Add(g.Mul(g.sumHead(0, r), g.Int(warpScoreStride)), g.Add(firstRow, g.Add(g.Mul(g.column, g.Int(2)), g.Int(8*i))))
			scores.StoreVec(at, g.Part(x, 2*r, 2))
		}
	}
}

// multiplyTogether is multiply.
func (g *warpGroup) multiplyTogether(buffer kernel.V, f func(tile, pair int, sums [2]kernel.Vec)) {
	p := g.pool.SharedMatrix(g.Int(g.at.p), eightRows)
	blocks := g.d * warpsTogether / g.warps / blockElements
	first := g.Mul(g.fours(), g.Int(blocks*attentionPart*blockBytes))
	kv := g.pool.SharedMatrix(g.Add(g.Add(g.Int(g.at.rows[0]), buffer), first), eightRows)
	start := func(block int) kernel.GroupSums {
		c := kernel.GroupChain{A: p, B: kv, Across: true}
		for s := range attentionPart / 16 {
			c.Steps = append(c.Steps, [2]int{s * matrixStep, block*attentionPart*blockBytes + s*16*blockBytes})
		}
		return g.StartGroupMMA(blockElements, c)
	}
	started := start(0)
	for block := range blocks {
		this, more := started, 0
		if block+1 < blocks {
			started, more = start(block+1), 1
		}
		sums := g.WaitGroupMMA(more, this)[0]
		for i := 0; i < len(sums); i += 2 {
			f(0, (block*len(sums)+i)/2, [2]kernel.Vec{sums[i], sums[i+1]})
		}
	}
}
