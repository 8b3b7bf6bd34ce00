package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Products of many rows where four warps multiply together. The 64 rows of w that the
// four have are in registers, as lanes have them for mma.sync; x is read from shared
// memory, a row of 64 k in 128 bytes, swizzled. There an instruction takes 16 k that
// follow each other, which are to be those that mma.sync takes: the four lanes of a row
// have runs of k each, and give two words of theirs to an instruction. So x is brought
// into that order first, in memory, by a launch of its own (orderX).
//
// On the chip wgmma's sums have the bits of mma.sync's (TestGroupBits).

// orderRun is how many k of x orderX brings into order together: four vectors.
const orderRun = 4 * matrixRun

// maxVectors is how many vectors of x a lane has for one of e2m1 codes, which become bf16
// in the order of kernel.K.BF16Apart.
const maxVectors = 4

// orderX writes n elements of x in the order of multiplyTogether. Of each orderRun k of a product with
// bf16 w, lane g of a row has vector g, and the instructions take words 0 and 1 of all
// lanes, then words 2 and 3: vector i of the result is word i of the four. With 8-bit w a
// lane has two vectors that follow each other, of twice as many k: vectors says so.
func orderX(l Lowering, x Ref, n, vectors int) Ref {
	t := l.Target()
	y := l.Scratch(ir.BF16, n)
	l.Launch(Launch{
		Name: "order_rows", Spec: fmt.Sprintf("vectors%d", vectors), Grid: ceilDiv(n, t.Lanes*matrixRun), Work: int64(n),
		In: []Ref{x}, Out: []Ref{y}, Ints: []int{n / matrixRun},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			i := k.Add(k.Mul(k.Group(), k.Int(t.Lanes)), k.Lane())
			in := k.Cmp(kernel.LT, i, ints[0])
			v := b[0].LoadVecIf(in, k.Mul(i, k.Int(matrixRun)), matrixRun)
			if vectors == maxVectors {
				v = k.BF16Apart(v)
			}
			of := k.URem(i, k.Int(lanesPerRow*vectors))
			lane, vector := k.UDiv(of, k.Int(vectors)), k.URem(of, k.Int(vectors))
			v = transposed(k, v, lane, vectors)
			to := k.Add(k.Sub(i, of), k.Add(k.Mul(vector, k.Int(lanesPerRow)), lane))
			k.If(in, func() { b[1].StoreVec(k.Mul(to, k.Int(matrixRun)), v) })
		},
	})
	return y
}

// transposed has lane i of four, as many lanes apart as stride, have word i of each.
func transposed(k *kernel.K, v kernel.Vec, lane kernel.V, stride int) kernel.Vec {
	words := make([]kernel.V, lanesPerRow)
	for i := range words {
		words[i] = k.At(v, i)
	}
	for bit := 1; bit < lanesPerRow; bit *= 2 {
		upper := k.Cmp(kernel.NE, k.And(lane, k.Int(bit)), k.Int(0))
		for i := range words {
			if i&bit != 0 {
				continue
			}
			// A lane keeps one of two words, and gives the other for the one like it.
			got := k.LaneXor(k.Select(upper, words[i], words[i|bit]), bit*stride)
			words[i], words[i|bit] = k.Select(upper, got, words[i]), k.Select(upper, words[i|bit], got)
		}
	}
	return k.MakeVec(words...)
}

// orderedPlace is where orderX has the word of elements i and i+1.
func orderedPlace(k *kernel.K, i kernel.V, vectors int) kernel.V {
	in := k.URem(i, k.Int(vectors*orderRun))
	lane, element := k.UDiv(in, k.Int(vectors*matrixRun)), k.URem(in, k.Int(vectors*matrixRun))
	return k.Add(k.Sub(i, in), k.Add(k.Mul(element, k.Int(lanesPerRow)), k.Mul(lane, k.Int(2))))
}

// operandsOf are the warp's rows of w in a stage, of each vector of x.
func (e *gemm) operandsOf(stage kernel.V) [][2]kernel.Vec {
	var out [][2]kernel.Vec
	for i := range e.deep * e.vectors {
		out = append(out, [2]kernel.Vec(e.asOperand(e.loadW(stage, i, 0))))
	}
	return out
}

// multiplyTogether multiplies what is in the stages of a piece; more has the first
// operands of the stage behind them be read. The next stage is waited for, and
// read, while the products of one are under way; then all warps are done with the stage
// before it, or they are once they have waited for that.
func (e *gemm) multiplyTogether(l *gemmLoop, more kernel.V) {
	var sums []kernel.Vec
	for _, v := range e.part[0] {
		sums = append(sums, v.Get())
	}
	var held [][2]kernel.Vec
	for _, v := range l.held {
		held = append(held, [2]kernel.Vec{v[0].Get(), v[1].Get()})
	}
	var started kernel.GroupSums
	for i := range e.per {
		stage := l.from.Get()
		var a []kernel.Vec
		var steps []int
		for _, rows := range held {
			for i := 0; i < rows[0].Len(); i += 2 {
				a = append(a, e.MakeVec(e.At(rows[0], i), e.At(rows[1], i), e.At(rows[0], i+1), e.At(rows[1], i+1)))
				steps = append(steps, len(steps)*matrixStep)
			}
		}
		b := e.pool.SharedMatrix(e.Add(stage, e.Int(e.rowsW*e.wRow)), eightRows)
		switch {
		case i > 0:
			started = e.WaitEarlierMMA(e.AddMoreMMA(started, a, b, steps))
		case e.w != ir.BF16: // a piece's sums begin here
			started = e.StartHeldMMA(e.rowsX, a, b, steps)
		default:
			started = e.AddGroupMMA(sums, a, b, steps)
		}
		e.WaitCopies(e.stages - 3)
		e.FenceForMatrices()
		e.Barrier()
		e.start(l.in, l.to)
		e.round(l.from)
		from := l.from.Get()
		if i == e.per-1 {
			from = e.Select(more, from, stage)
		}
		held = e.operandsOf(from)
	}
	for i, sum := range e.WaitGroupMMA(0, started)[0] {
		e.part[0][i].Set(sum)
	}
	for i, v := range held {
		l.held[i][0].Set(v[0])
		l.held[i][1].Set(v[1])
	}
}
