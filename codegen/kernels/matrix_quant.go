package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// matrixOperand is an op's activations as a product reads them.
type matrixOperand struct{ x, scales Ref }

// activations is x, m rows, after quantisation in blocks, if block is not 0: codes with
// scales for weights of 8-bit codes, else bf16, which holds a rounded value's four
// significant bits. A group of the product reads as many of the rows as read.
func (p *matrixProduct) activations(l Lowering, x Ref, m, read, block int) matrixOperand {
	n := m * p.depth
	switch {
	case block == 0:
		return matrixOperand{x: x}
	case p.roundsFew(read, block):
		p.stage, p.rounds = read, true
		return matrixOperand{x: x}
	case block != matrixChunk || p.depth%matrixChunk != 0:
		q := l.Scratch(ir.BF16, n)
		actQuant(l, x, q, n, block)
		return matrixOperand{x: q}
	case p.roundsWaves(block):
		q := matrixOperand{x: l.Scratch(ir.BF16, n)}
		waveQuant(l, x, q, m, p.depth, 0)
		return q
	}
	p.codes = true
	q := matrixOperand{x: l.Scratch(p.w, n), scales: l.Scratch(ir.F32, n/matrixChunk)}
	if p.scaledMFMA() != nil {
		q.scales = l.Scratch(ir.E8M0, n/matrixChunk)
	}
	waveQuant(l, x, q, m, p.depth, 0)
	return q
}

// roundsWaves reports that waveQuant rounds activations to bf16.
func (p *matrixProduct) roundsWaves(block int) bool {
	return block == matrixChunk && p.depth%matrixChunk == 0 && p.t.MFMA(p.w, p.w, false) == nil
}

// activations has launch round what waveQuant does: it knows in which order.
func (p *matrixLaunch) activations(l Lowering, x Ref, read, block int) {
	if p.roundsWaves(block) && !p.roundsFew(read, block) {
		p.x, p.unrounded = matrixOperand{x: x}, true
		return
	}
	p.x = p.matrixProduct.activations(l, x, p.m, read, block)
}

// arrange rounds x, if that is still to be done, and has it in the order that the tile
// takes.
func (p *matrixLaunch) arrange(l Lowering) {
	rows, vectors := p.m*p.groups, 0
	if p.gemm != nil && p.gemm.together {
		vectors = p.run() / matrixRun
	}
	switch {
	case p.unrounded:
		q := matrixOperand{x: l.Scratch(ir.BF16, rows*p.depth)}
		waveQuant(l, p.x.x, q, rows, p.depth, vectors)
		p.x = q
	case vectors > 0:
		p.x.x = orderX(l, p.x.x, rows*p.depth, vectors)
	}
}

// laneQuant is how many elements of a block of matrixChunk a lane rounds: on AMD's GPUs,
// whose waves are twice as long, a wave has four blocks, and writes as many scales at once.
func laneQuant(t *target.Target) int {
	if t.Kind == target.AMDGPU {
		return 8
	}
	return 4
}

// waveQuant rounds m rows of depth bf16 numbers in blocks of matrixChunk as quantBlock
// does, each block in a part of a wave, to codes and scales or, without scales, to bf16:
// then in the order of orderX, if vectors is not 0. The scales are [depth/matrixChunk, m]:
// lanes that multiply different rows read those of a chunk side by side.
func waveQuant(l Lowering, x Ref, y matrixOperand, m, depth, vectors int) {
	t, n := l.Target(), m*depth
	f, _ := codeFormatOf(ir.F8E4M3, t)
	each := laneQuant(t)
	codes := y.x.DT != ir.BF16
	out, spec, numbers := []Ref{y.x}, "bf16", []int{n}
	if codes {
		out, spec, numbers = append(out, y.scales), fmt.Sprintf("codes k%d", depth), append(numbers, m)
	} else if vectors > 0 {
		spec = fmt.Sprintf("bf16 vectors%d", vectors)
	}
	l.Launch(Launch{
		Name: "act_quant_wave", Spec: spec, Grid: ceilDiv(n, t.Lanes*each), Work: int64(n * 8), Joins: true,
		In: []Ref{x}, Out: out, Ints: numbers,
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			lanes := matrixChunk / each
			at := k.Mul(k.Add(k.Mul(k.Group(), k.Int(t.Lanes)), k.Lane()), k.Int(each))
			in := k.Cmp(kernel.LT, at, ints[0])
			var block kernel.V
			if codes { // blocks that follow each other are of different rows
				block = k.UDiv(at, k.Int(matrixChunk))
				i, rows := k.Convert(block, kernel.I32), k.Convert(ints[1], kernel.I32)
				row, chunk := k.Convert(k.URem(i, rows), kernel.I64), k.Convert(k.UDiv(i, rows), kernel.I64)
				at = k.Add(k.Add(k.Mul(row, k.Int(depth)), k.Mul(chunk, k.Int(matrixChunk))), k.URem(at, k.Int(matrixChunk)))
			}
			words := b[0].LoadVecIf(in, at, each)
			var v []kernel.V
			for i := range words.Len() {
				w := k.At(words, i)
				v = append(v, k.Bits(k.Shl(w, k.Int32(16))), k.Bits(k.And(w, k.Int32(-1<<16))))
			}
			top, bad := k.Float(f.floor), k.Float(0)
			for _, v := range v {
				top = k.Max(k.Abs(v), top)
				bad = k.Add(bad, k.Mul(v, k.Float(0)))
			}
			for i := lanes / 2; i >= 1; i /= 2 {
				top, bad = k.Max(top, k.LaneXor(top, i)), k.Add(bad, k.LaneXor(bad, i))
			}
			s := scaleOfMax(k, top, bad, f)
			code := make([]kernel.V, len(v))
			for i, v := range v {
				code[i] = f.encode(k, k.Mul(v, s.inverse))
			}
			if !codes {
				var rounded []kernel.V
				for i := 0; i < each; i += 2 {
					rounded = append(rounded, k.PackBF16(k.Mul(f.decode(k, code[i]), s.scale), k.Mul(f.decode(k, code[i+1]), s.scale)))
				}
				k.If(in, func() {
					if vectors == 0 {
						b[1].StoreVec(at, k.MakeVec(rounded...))
						return
					}
					for i, word := range rounded {
						b[1].StoreVec(orderedPlace(k, k.Add(at, k.Int(2*i)), vectors), k.MakeVec(word))
					}
				})
				return
			}
			var packed []kernel.V
			for from := 0; from < each; from += 4 {
				word := code[from]
				for i, c := range code[from+1 : from+4] {
					word = k.Or(word, k.Shl(c, k.Int32(8*(i+1))))
				}
				packed = append(packed, word)
			}
			k.If(in, func() { b[1].StoreVec(at, k.MakeVec(packed...)) })
			first := k.Cmp(kernel.EQ, k.And(k.Lane(), k.Int(lanes-1)), k.Int(0))
			k.If(k.And(in, first), func() {
				scale := s.scale
				if y.scales.DT == ir.E8M0 {
					scale = k.EncodeE8M0(scale)
				}
				b[2].Store(block, scale)
			})
		},
	})
}
