package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Products of four warps together with experts' e2m1 weights, of some rows of x: they are
// bound by reading w, so that a group has as many rows of w as its warps multiply at once,
// for x is read again by every group. K is gone through by pairs of waves, whose pieces
// lie beside each other: a row's lines are read whole, at one time.

// scalePiece is how many k of e2m1 have a unit of scales.
const scalePiece = vectorBytes * target.ScaleBlock

// scaleRow is the bytes of shared memory for the scales of a row of w.
func (e *gemm) scaleRow() int { return powerOf2(e.depth/scalePiece) * vectorBytes }

// scalePlace is where unit c of a row's scales lies, from the scales' begin on.
func (e *gemm) scalePlace(row, c kernel.V) kernel.V {
	return e.Add(e.Mul(row, e.Int(e.scaleRow())), e.Mul(e.Xor(c, e.And(row, e.Int(e.scaleRow()/vectorBytes-1))), e.Int(vectorBytes)))
}

// copyScales starts the copies of all scales of the tile's rows.
func (e *gemm) copyScales() {
	units, perProduct := e.depth/scalePiece, e.rowsW/e.products
	for from := 0; from < e.rowsW*units; from += e.t.Lanes {
		i := e.Add(e.Lane(), e.Int(from))
		row, c := e.UDiv(i, e.Int(units)), e.URem(i, e.Int(units))
		to := e.Add(e.scalePlace(row, c), e.Int(e.stages*e.stage))
		for p, w := range e.ws {
			first := p * perProduct
			own := e.And(e.Cmp(kernel.GE, row, e.Int(first)), e.Cmp(kernel.LT, row, e.Int(min(first+perProduct, e.rowsW))))
			e.If(own, func() {
				n := e.Add(e.n0, e.Sub(row, e.Int(first)))
				n = e.Select(e.Cmp(kernel.LT, n, e.Int(e.n)), n, e.Int(e.n-1))
				at := e.Mul(e.Add(e.Mul(w.index, e.Int(e.n)), n), e.Int(e.scaleCols()))
				e.pool.CopyAsync(to, w.scales.Bytes(), e.Add(at, e.Mul(c, e.Int(vectorBytes))))
			})
		}
	}
}

// scaledOperands are the lane's two rows of w of a piece, which is in a stage, as bf16.
func (e *gemm) scaledOperands(stage, piece kernel.V) [2]kernel.Vec {
	sub, group := e.unit.place(e.K, e.WaveLane())
	var out [2]kernel.Vec
	for r := range out {
		row := e.Add(e.Add(sub, e.Mul(e.firstW, e.Int(target.MatrixTile))), e.Int(r*target.MMACols))
		at := e.scalePlace(row, e.UDiv(piece, e.Int(scalePiece/matrixChunk)))
		at = e.Add(at, e.Mul(e.URem(piece, e.Int(scalePiece/matrixChunk)), e.Int(matrixChunk/target.ScaleBlock)))
		scale := e.pool.LoadBits(e.Add(e.Add(at, group), e.Int(e.stages*e.stage)))
		w := e.pool.LoadVec(e.Add(e.Add(stage, e.atW[0]), e.Int(r*target.MMACols*e.wRow)), vectorBytes)
		out[r] = e.E2M1Apart(w, e.DecodeE8M0(scale))
	}
	return out
}

// sumWaves sums all pieces, of two waves after each other.
func (e *gemm) sumWaves() {
	l := &gemmLoop{in: e.place(), at: e.place(), to: e.Var(e.Int(0)), from: e.Var(e.Int(0))}
	e.copyScales()
	for range e.stages - 1 {
		e.start(l.in, l.to)
	}
	e.WaitCopies(e.stages - 2)
	e.FenceForMatrices()
	e.Barrier()
	var held [2]*kernel.VecVar
	for r, v := range e.scaledOperands(e.Int(0), e.Int(0)) {
		held[r] = e.VecVar(v)
	}
	turns := e.chunks / e.unit.waves
	e.For(e.Int(0), e.Int(e.chunks/2), 1, func(i kernel.V) {
		more := e.Cmp(kernel.LT, e.Add(i, e.Int(1)), e.Int(e.chunks/2))
		for wave := range 2 {
			stage := l.from.Get()
			var sums, a []kernel.Vec
			for _, v := range e.part[wave] {
				sums = append(sums, v.Get())
			}
			var steps []int
			rows := [2]kernel.Vec{held[0].Get(), held[1].Get()}
			for w := 0; w < rows[0].Len(); w += 2 {
				a = append(a, e.MakeVec(e.At(rows[0], w), e.At(rows[1], w), e.At(rows[0], w+1), e.At(rows[1], w+1)))
				steps = append(steps, len(steps)/stepsPerBlock*e.rowsX*blockBytes+len(steps)%stepsPerBlock*matrixStep)
			}
			started := e.AddGroupMMA(sums, a, e.pool.SharedMatrix(e.Add(stage, e.Int(e.rowsW*e.wRow)), eightRows), steps)
			e.WaitCopies(e.stages - 3)
			e.FenceForMatrices()
			e.Barrier()
			e.start(l.in, l.to)
			e.round(l.from)
			e.next(l.at)
			from := l.from.Get()
			if wave == 1 {
				from = e.Select(more, from, stage)
			}
			next := e.scaledOperands(from, e.there(l.at.piece.Get()))
			for n, sum := range e.WaitGroupMMA(0, started)[0] {
				e.part[wave][n].Set(sum)
			}
			for r, v := range next {
				held[r].Set(v)
			}
		}
		e.If(e.Cmp(kernel.EQ, e.URem(i, e.Int(turns)), e.Int(turns-1)), func() {
			first := e.Cmp(kernel.LT, i, e.Int(turns))
			for n, total := range e.acc[0] {
				sum := e.MapVec(func(v ...kernel.V) kernel.V { return e.Select(first, v[1], e.Add(v[0], v[1])) }, total.Get(), e.part[0][n].Get())
				total.Set(e.addVec(sum, e.part[1][n].Get()))
				for wave := range 2 {
					e.part[wave][n].Set(e.ZeroVec(kernel.F32, target.ResultRun))
				}
			}
		})
	})
	e.WaitCopies(0)
}

// expertTiles are the tiles for e2m1 weights, by the rows of x that they have.
var expertTiles = map[int]*gemmTile{
	target.MatrixTile:     {across: [2]int{8, 1}, units: [2]int{1, 2}, stages: 7, deep: 1, together: true, twoWaves: true, resident: 2},
	4 * target.MatrixTile: {across: [2]int{8, 1}, units: [2]int{1, 8}, stages: 6, deep: 1, together: true, twoWaves: true},
}

// withExperts has a product of experts' weights multiplied by such a tile of so many rows
// of x, if it can be.
func (p *matrixProduct) withExperts(rows int) bool {
	g := expertTiles[rows]
	if g == nil || p.w != ir.F4E2M1 || !p.t.Warpgroups() || p.depth%(unitOf(p.t).waves*matrixChunk) != 0 {
		return false
	}
	q := *p
	q.gemm = g
	w, x := g.rowsOf()
	q.rows, q.cols = x/target.MMACols, w/target.MatrixTile/p.products
	if q.newGemm(nil).refuses() {
		return false
	}
	*p = q
	return true
}
