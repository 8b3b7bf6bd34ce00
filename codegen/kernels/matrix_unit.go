package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// matrixUnit is what products have to know of a chip's matrix units: how the lanes of a
// wave share a tile of 16 rows of A by cols columns of B. On both makers' chips four
// lanes have a row of A, and each reads what k it likes of it if the lanes of B read
// the same: a run that lies together in memory.
//
// AMD's waves of 64 lanes multiply 16 by 16: a lane has one row of A. NVIDIA's of 32
// multiply 16 by 8: a lane has two rows of A, the second 8 below the first.
type matrixUnit struct {
	mfma *target.MFMA // of bf16; nil on other chips than AMD's
	mma  *target.MMA  // nil on other chips than NVIDIA's

	waves int // of a group
	cols  int // of B and D
	rows  int // of A that a lane has
}

// unitOf returns a target's matrix units, or nil.
func unitOf(t *target.Target) *matrixUnit {
	u := &matrixUnit{mfma: t.MFMA(ir.BF16, ir.BF16, false), mma: t.MMA()}
	switch {
	case u.mfma != nil:
		u.cols, u.rows = target.MatrixTile, 1
	case u.mma != nil:
		u.cols, u.rows = target.MMACols, target.MatrixTile/target.MMACols
	default:
		return nil
	}
	u.waves = t.Lanes / t.Wave
	return u
}

// onMFMA has a form match on AMD's matrix units alone, and onMMA on NVIDIA's: what the
// two run is one source.
func onMFMA(match func(o *ir.Op, t *target.Target) string) func(o *ir.Op, t *target.Target) string {
	return func(o *ir.Op, t *target.Target) string {
		if t.MFMA(ir.BF16, ir.BF16, false) == nil {
			return "no matrix instructions on " + t.Name
		}
		return match(o, t)
	}
}

func onMMA(match func(o *ir.Op, t *target.Target) string) func(o *ir.Op, t *target.Target) string {
	return func(o *ir.Op, t *target.Target) string {
		if t.MMA() == nil {
			return "no mma.sync on " + t.Name
		}
		return match(o, t)
	}
}

// place is the lane's first row of A and its column of B in a tile, sub, and which of
// the four lanes of a row it is, group. lane counts from any lane that is the first of
// a wave.
func (u *matrixUnit) place(k *kernel.K, lane kernel.V) (sub, group kernel.V) {
	sub = u.sub(k, lane)
	if u.mma != nil {
		return sub, k.And(lane, k.Int(lanesPerRow-1))
	}
	return sub, k.LShr(lane, k.Int(4))
}

func (u *matrixUnit) sub(k *kernel.K, lane kernel.V) kernel.V {
	if u.mma != nil {
		return k.And(k.LShr(lane, k.Int(2)), k.Int(target.MMACols-1))
	}
	return k.And(lane, k.Int(target.MatrixTile-1))
}

// multiply adds A B to c, for as many k as the vectors of bf16 have: a is what the lane
// has of each of its rows.
func (u *matrixUnit) multiply(k *kernel.K, a []kernel.Vec, b, c kernel.Vec) kernel.Vec {
	if u.mma == nil {
		return multiplyWords(k, u.mfma, a[0], b, c)
	}
	for i := 0; i < b.Len(); i += 2 {
		words := k.MakeVec(k.At(a[0], i), k.At(a[1], i), k.At(a[0], i+1), k.At(a[1], i+1))
		c = k.WarpMMA(u.mma, words, k.Part(b, i, 2), c)
	}
	return c
}

// sumWords is the room in shared memory, in f32, for the sums of a tile of 16 by cols.
// NVIDIA's sums lie by columns, 16 rows and a gap that has the lanes of a row use
// different banks; AMD's by rows of x, as sumUnit says.
func (u *matrixUnit) sumWords() int {
	if u.mma != nil {
		return u.cols * mmaSumStride
	}
	return target.MatrixTile * u.cols
}

const mmaSumStride = target.MatrixTile + lanesPerRow

// storeSum writes what the lane has of a tile's sums, which begin at element at.
func (u *matrixUnit) storeSum(k *kernel.K, shared *kernel.Buf, at, lane kernel.V, sum kernel.Vec) {
	sub, group := u.place(k, lane)
	if u.mma == nil {
		shared.StoreVec(k.Mul(k.Add(at, sumUnit(k, sub, group)), k.Int(target.ResultRun)), sum)
		return
	}
	for e := range sum.Len() {
		col := k.Add(k.Mul(group, k.Int(2)), k.Int(e%2))
		shared.Store(k.Add(at, k.Add(k.Mul(col, k.Int(mmaSumStride)), k.Add(sub, k.Int(e/2*8)))), k.At(sum, e))
	}
}

// loadSum reads the sums of column sub, of the four rows from 4 group on.
func (u *matrixUnit) loadSum(k *kernel.K, shared *kernel.Buf, at, lane kernel.V) kernel.Vec {
	sub, group := u.place(k, lane)
	if u.mma == nil {
		return k.AsF32(shared.LoadVec(k.Mul(k.Add(at, sumUnit(k, sub, group)), k.Int(target.ResultRun)), target.ResultRun))
	}
	at = k.Add(at, k.Add(k.Mul(sub, k.Int(mmaSumStride)), k.Mul(group, k.Int(target.ResultRun))))
	return k.AsF32(shared.LoadVec(at, target.ResultRun))
}

// sumPlace is where the sums of tile number i begin, as storeSum and loadSum take it.
func (u *matrixUnit) sumPlace(k *kernel.K, i kernel.V) kernel.V {
	if u.mma == nil { // in units of a lane's sums
		return k.Mul(i, k.Int(target.MatrixLanes))
	}
	return k.Mul(i, k.Int(u.sumWords()))
}

// sumUnit is where, in 16 bytes, four columns' sums of a row of x lie on AMD's units: the
// eight of two rows next to each other, in an order that has eight lanes use all banks,
// whether they have a column of rows or a row's columns.
func sumUnit(k *kernel.K, row, cols kernel.V) kernel.V {
	bit := func(x kernel.V) kernel.V { return k.And(x, k.Int(1)) }
	half := bit(k.Xor(row, k.LShr(row, k.Int(1))))
	in := k.Xor(cols, k.And(k.LShr(row, k.Int(1)), k.Int(lanesPerRow-1)))
	pair := k.And(row, k.Int(target.MatrixTile-2))
	return k.Add(k.Mul(k.Add(pair, half), k.Int(lanesPerRow)), in)
}
