package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// totalAt is where this lane's total of a unit is.
func (e *gemm) totalAt(m, n int) kernel.V {
	return e.Add(e.Mul(e.Lane(), e.Int(vectorBytes)), e.Int(e.stages*e.stage+(m*e.units[1]+n)*e.t.Lanes*vectorBytes))
}

// eachSum visits the sums of the warp's units.
func (e *gemm) eachSum(do func(m, n int, sum *kernel.VecVar)) {
	for m, row := range e.acc {
		for n, sum := range row {
			do(m, n, sum)
		}
	}
}

// addVec is the sum of two vectors of f32.
func (e *gemm) addVec(x, y kernel.Vec) kernel.Vec {
	return e.MapVec(func(v ...kernel.V) kernel.V { return e.Add(v[0], v[1]) }, x, y)
}

// addScaled adds a piece's sums, times its scale, to those of the wave.
func (e *gemm) addScaled() {
	s := e.scale.Get()
	e.eachSum(func(m, n int, sum *kernel.VecVar) {
		part := e.part[m][n]
		sum.Set(e.MapVec(func(v ...kernel.V) kernel.V { return e.FMA(v[0], s, v[1]) }, part.Get(), sum.Get()))
		part.Set(e.ZeroVec(kernel.F32, target.ResultRun))
	})
}

// addSums adds the sums of a wave to the totals; the first wave's are the totals.
func (e *gemm) addSums(first kernel.V) {
	if e.totals {
		e.If(first, func() {
			e.eachSum(func(m, n int, sum *kernel.VecVar) { e.pool.StoreVec(e.totalAt(m, n), sum.Get()) })
		})
		e.If(e.Not(first), func() {
			e.eachSum(func(m, n int, sum *kernel.VecVar) {
				at := e.totalAt(m, n)
				e.pool.StoreVec(at, e.addVec(e.AsF32(e.pool.LoadVec(at, vectorBytes)), sum.Get()))
			})
		})
	} else {
		e.eachSum(func(m, n int, sum *kernel.VecVar) {
			total := e.total[m][n]
			total.Set(e.MapVec(func(v ...kernel.V) kernel.V { return e.Select(first, v[1], e.Add(v[0], v[1])) }, total.Get(), sum.Get()))
		})
	}
	e.eachSum(func(_, _ int, sum *kernel.VecVar) { sum.Set(e.ZeroVec(kernel.F32, target.ResultRun)) })
}

// result is the sum of all waves of a unit.
func (e *gemm) result(m, n int, sum kernel.Vec) kernel.Vec {
	switch {
	case e.chunks == 1, e.twoWaves:
	case e.totals:
		sum = e.addVec(e.AsF32(e.pool.LoadVec(e.totalAt(m, n), vectorBytes)), sum)
	default:
		sum = e.addVec(e.total[m][n].Get(), sum)
	}
	if e.chunks < e.unit.waves { // waves without a piece add zero, which has -0 be 0
		sum = e.addVec(sum, e.ZeroVec(kernel.F32, target.ResultRun))
	}
	return sum
}

// finish lays the results out by rows of x and has done take four of a row at a time.
func (e *gemm) finish(done func(row, col kernel.V, sums []kernel.Vec)) {
	results := make([][]kernel.Vec, len(e.acc))
	e.eachSum(func(m, n int, sum *kernel.VecVar) { results[m] = append(results[m], e.result(m, n, sum.Get())) })
	e.Barrier() // nobody reads the stages and totals any more
	sub, group := e.unit.place(e.K, e.WaveLane())
	stride := e.rowsW + gemmGap
	at := e.Add(e.Mul(e.firstX, e.Int(target.MMACols*stride)), e.Mul(e.firstW, e.Int(target.MatrixTile)))
	at = e.Add(at, e.Add(e.Mul(group, e.Int(2*stride)), sub))
	area := e.pool.As(ir.F32)
	for m, row := range results {
		for n, sum := range row {
			for i := range sum.Len() {
				area.Store(e.Add(at, e.Int((n*target.MMACols+i%2)*stride+m*target.MatrixTile+i/2*target.MMACols)), e.At(sum, i))
			}
		}
	}
	e.Barrier()
	perProduct := e.rowsW / e.products
	inRow := perProduct / target.ResultRun
	e.For(e.Int(0), e.Int(e.rowsX*inRow), e.t.Lanes, func(i kernel.V) {
		i = e.Add(i, e.Lane())
		row, col := e.UDiv(i, e.Int(inRow)), e.Mul(e.URem(i, e.Int(inRow)), e.Int(target.ResultRun))
		var sums []kernel.Vec
		for p := range e.products {
			sums = append(sums, e.AsF32(area.LoadVec(e.Add(e.Add(e.Mul(row, e.Int(stride)), col), e.Int(p*perProduct)), target.ResultRun)))
		}
		done(row, e.Add(e.n0, col), sums)
	})
}
