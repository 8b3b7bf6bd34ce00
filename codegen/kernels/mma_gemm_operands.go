package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// addresses computes where this lane copies and reads.
func (e *gemm) addresses() {
	// Copies: lanes that follow each other have vectors of a row that do.
	copies := func(vectors, rows, rowBytes int, swizzle func(row, c kernel.V) kernel.V, from func(first int, row, c kernel.V)) kernel.V {
		at, c := e.UDiv(e.Lane(), e.Int(vectors)), e.URem(e.Lane(), e.Int(vectors))
		for first := 0; first < rows; first += e.t.Lanes / vectors {
			from(first, e.Add(at, e.Int(first)), c)
		}
		return e.Add(e.Mul(at, e.Int(rowBytes)), e.Mul(swizzle(at, c), e.Int(vectorBytes)))
	}
	perProduct := e.rowsW / e.products
	e.toW = copies(lanesPerRow*e.deep, e.rowsW, e.wRow, e.swizzleW, func(first int, row, c kernel.V) {
		n := e.Add(e.n0, e.Sub(row, e.Int(first/perProduct*perProduct)))
		if e.n%e.tileCols() != 0 {
			n = e.Select(e.Cmp(kernel.LT, n, e.Int(e.n)), n, e.Int(e.n-1))
		}
		n = e.Add(e.Mul(e.ws[first/perProduct].index, e.Int(e.n)), n)
		e.fromW = append(e.fromW, e.Add(e.Mul(n, e.Int(e.depth)), e.Mul(c, e.Int(e.run()))))
	})
	e.toX = copies(lanesPerRow*e.deep*e.vectors, e.rowsX, e.xStride(), e.swizzleX, func(_ int, row, c kernel.V) {
		e.fromX = append(e.fromX, e.Add(e.Mul(e.x.row(row), e.Int(e.depth)), e.Mul(c, e.Int(matrixRun))))
	})
	e.toX = e.Add(e.toX, e.Int(e.rowsW*e.wRow))

	sub, group := e.unit.place(e.K, e.WaveLane())
	rowW := e.Add(sub, e.Mul(e.firstW, e.Int(target.MatrixTile)))
	rowX := e.Add(sub, e.Mul(e.firstX, e.Int(target.MMACols)))
	for i := range e.deep * e.vectors {
		c := e.Add(group, e.Int(i/e.vectors*lanesPerRow))
		at := e.Add(e.Mul(rowW, e.Int(e.wRow)), e.Mul(e.swizzleW(sub, c), e.Int(vectorBytes)))
		e.atW = append(e.atW, e.Add(at, e.Int(i%e.vectors*vectorBytes/e.vectors)))
		c = e.Add(e.Mul(c, e.Int(e.vectors)), e.Int(i%e.vectors))
		at = e.Add(e.Mul(rowX, e.Int(e.xRow)), e.Mul(e.swizzleX(sub, c), e.Int(vectorBytes)))
		e.atX = append(e.atX, e.Add(at, e.Int(e.rowsW*e.wRow)))
	}
}

// swizzleW is the place in a row of vector c, such that eight lanes, four in each of two
// rows, read from all banks.
func (e *gemm) swizzleW(row, c kernel.V) kernel.V {
	if e.deep == 1 {
		return c
	}
	return e.Xor(c, e.Mul(e.And(row, e.Int(1)), e.Int(lanesPerRow)))
}

// swizzleX is swizzleW for x, of which the lanes' vectors are e.vectors apart.
func (e *gemm) swizzleX(row, c kernel.V) kernel.V {
	if e.together { // blocks of all rows follow each other
		const inBlock = blockBytes / vectorBytes
		block := e.Mul(e.UDiv(c, e.Int(inBlock)), e.Int(e.rowsX*inBlock))
		return e.Add(block, e.Xor(e.URem(c, e.Int(inBlock)), e.And(row, e.Int(inBlock-1))))
	}
	if e.vectors == 1 {
		return e.swizzleW(row, c)
	}
	return e.Xor(c, e.And(row, e.Int(1)))
}

// xStride is the bytes from a row of x in a stage to the next.
func (e *gemm) xStride() int {
	if e.together {
		return blockBytes
	}
	return e.xRow
}

// copies are the lane's copies of a stage.
func (e *gemm) copies(p gemmPlace, stage kernel.V) []func() {
	// What is behind the last piece comes too, and is not multiplied: a condition would
	// keep the copies from what they are between.
	k0 := e.Add(e.Mul(e.there(p.piece.Get()), e.Int(matrixChunk)), e.Mul(p.sub.Get(), e.Int(matrixChunk/e.per)))
	var list []func()
	add := func(from []kernel.V, of func(row int) *kernel.Buf, to kernel.V, rows, rowBytes int) {
		rows /= len(from)
		for i, at := range from {
			list = append(list, func() {
				e.pool.CopyAsync(e.Add(e.Add(stage, to), e.Int(i*rows*rowBytes)), of(i*rows), e.Add(at, k0))
			})
		}
	}
	add(e.fromW, func(row int) *kernel.Buf { return e.ws[row/(e.rowsW/e.products)].rows }, e.toW, e.rowsW, e.wRow)
	add(e.fromX, func(int) *kernel.Buf { return e.x.x }, e.toX, e.rowsX, e.xStride())
	return list
}

// start begins the copies of a stage.
func (e *gemm) start(p gemmPlace, stage *kernel.Var) {
	for _, do := range e.copies(p, stage.Get()) {
		do()
	}
	e.CommitCopies()
	e.next(p)
	e.round(stage)
}

// loadW is what a lane has of its two rows of unit m along w, for vector i of x.
func (e *gemm) loadW(stage kernel.V, i, m int) [2]kernel.Vec {
	var out [2]kernel.Vec
	for r := range out {
		at := e.Add(e.Add(stage, e.atW[i]), e.Int((m*target.MatrixTile+r*target.MMACols)*e.wRow))
		out[r] = e.pool.LoadVec(at, vectorBytes/e.vectors)
	}
	return out
}

// loadX is vector i of a lane's row of unit n along x.
func (e *gemm) loadX(stage kernel.V, i, n int) kernel.Vec {
	return e.pool.LoadVec(e.Add(e.Add(stage, e.atX[i]), e.Int(n*target.MMACols*e.xRow)), vectorBytes)
}

// asOperand is what a lane has of its rows of a unit along w as bf16.
func (e *gemm) asOperand(w [2]kernel.Vec) []kernel.Vec {
	if e.w == ir.BF16 {
		return w[:]
	}
	return []kernel.Vec{e.CodesToBF16(w[0], e.w), e.CodesToBF16(w[1], e.w)}
}

// scaleAt is the scale of a piece of the warp's rows: they lie in one block.
func (e *gemm) scaleAt(piece kernel.V) kernel.V {
	perProduct := e.across[0] * e.units[0] / e.products
	row := e.Add(e.n0, e.Mul(e.URem(e.firstW, e.Int(perProduct)), e.Int(target.MatrixTile)))
	block := e.UDiv(e.Select(e.Cmp(kernel.LT, row, e.Int(e.n)), row, e.Int(e.n-1)), e.Int(e.block[0]))
	col := e.UDiv(e.Mul(piece, e.Int(matrixChunk)), e.Int(e.block[1]))
	var s kernel.V
	for p, w := range e.ws {
		at := e.Add(e.Mul(w.index, e.Int(ceilDiv(e.n, e.block[0]))), block)
		v := w.scales.Load(e.Add(e.Mul(at, e.Int(e.scaleCols())), col))
		if p > 0 {
			v = e.Select(e.Cmp(kernel.EQ, e.UDiv(e.firstW, e.Int(perProduct)), e.Int(p)), v, s)
		}
		s = v
	}
	return s
}
