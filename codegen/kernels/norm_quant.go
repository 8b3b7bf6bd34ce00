package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "rms_norm_quant", Op: "rms_norm_quant", Match: matchNormQuant, Lower: lowerNormQuant, Joins: true},
		&Form{Name: "rms_norm_and_quant", Op: "rms_norm_and_quant", Match: matchNormQuant, Lower: lowerNormQuant, Joins: true},
	)
}

// quantPiece is how many elements of a block one lane looks through for the
// largest.
const quantPiece = 8

func matchNormQuant(o *ir.Op, _ *target.Target) string {
	shape := dims(o.Args[0])
	d := shape[len(shape)-1]
	return matchBlockScales(d, o.Int("act_block"), 2*d)
}

// topsPad is how many numbers are free behind the largest of a block's pieces on a GPU:
// with a multiple of 8 of them, lanes that read a block each would meet in its banks.
const topsPad = 4

// matchBlockScales reports why blockScales does not take a row of d elements, beside
// which a group has that many bytes of shared memory.
func matchBlockScales(d, block, bytes int) string {
	switch {
	case block%quantPiece != 0:
		return fmt.Sprintf("blocks of %d are no multiple of %d", block, quantPiece)
	case bytes+4*(d/quantPiece)+(4+4*topsPad)*(d/block) > maxShared:
		return fmt.Sprintf("a row of %d does not fit shared memory", d)
	}
	return ""
}

// lowerNormQuant: one group per row, as rms_norm. The rounded norm stays in shared
// memory; the largest of each block is found in two steps without reductions over
// the group, of which there would be one per block.
func lowerNormQuant(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	d, block := shape[len(shape)-1], o.Int("act_block")
	eps, rows := o.Float("eps"), product(shape)/shape[len(shape)-1]
	f, _ := codeFormatOf(ir.F8E4M3, l.Target())
	out := []Ref{l.Buf(o.Results[len(o.Results)-1])}
	both := len(o.Results) == 2
	if both {
		out = append(out, l.Buf(o.Results[0]))
	}
	l.Launch(Launch{
		Name: o.Def.Name, Spec: fmt.Sprintf("d%d b%d eps%g", d, block, eps), Grid: rows, Work: int64(rows * d * 10),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}, Out: out,
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			row := k.Mul(k.Group(), k.Int(d))
			norm := k.Shared(ir.BF16, d)
			keep := func(i, v kernel.V) { norm.Store(i, v) }
			if both {
				y := b[3].At(row)
				keep = func(i, v kernel.V) { norm.Store(i, v); y.Store(i, v) }
			}
			rmsNorm(k, b[0].At(row), b[1], d, eps, keep)
			k.Barrier()
			quantRow(k, norm, b[2].At(row), d, block, f)
		},
	})
	return nil
}

// quantRow rounds a row through block-scaled codes, as quantBlock does its blocks.
func quantRow(k *kernel.K, x, y *kernel.Buf, d, block int, f codeFormat) {
	scales := blockScales(k, x, d, block, f)
	k.Barrier()
	k.Lanes(k.Int(d), func(i kernel.V) {
		s := scales.Load(k.UDiv(i, k.Int(block)))
		code := f.encode(k, k.Mul(x.Load(i), k.Div(k.Float(1), s)))
		y.Store(i, k.Mul(f.decode(k, code), s))
	})
}

// blockScales are the scales that blockScale finds, of all blocks of a row.
func blockScales(k *kernel.K, x *kernel.Buf, d, block int, f codeFormat) *kernel.Buf {
	pieces, pad := block/quantPiece, 0
	if k.T.GPU() && pieces%8 == 0 {
		pad = topsPad
	}
	tops, scales := k.Shared(ir.F32, d/block*(pieces+pad)), k.Shared(ir.F32, d/block)
	largest := func(b *kernel.Buf, first kernel.V, n int, top kernel.V) kernel.V {
		for j := range n {
			top = k.MaxNaN(top, k.Abs(b.Load(k.Add(first, k.Int(j)))))
		}
		return top
	}
	// A piece of f32 is two vectors: lanes next to each other begin with different halves, so
	// that AMD's, which read 16 bytes at once, use all banks.
	halves := k.T.Kind == target.AMDGPU && x.Format() == ir.F32
	k.Lanes(k.Int(d/quantPiece), func(i kernel.V) {
		at := i
		if pad > 0 {
			at = k.Add(i, k.Mul(k.UDiv(i, k.Int(pieces)), k.Int(pad)))
		}
		first := k.Mul(i, k.Int(quantPiece))
		if !halves {
			tops.Store(at, largest(x, first, quantPiece, k.Float(f.floor)))
			return
		}
		const half = quantPiece / 2
		turn := k.And(i, k.Int(half)) // of every other four lanes
		top := largest(x, k.Add(first, turn), half, k.Float(f.floor))
		tops.Store(at, largest(x, k.Add(first, k.Xor(turn, k.Int(half))), half, top))
	})
	k.Barrier()
	k.Lanes(k.Int(d/block), func(i kernel.V) {
		top := largest(tops, k.Mul(i, k.Int(pieces+pad)), pieces, k.Float(f.floor))
		s, _ := k.Pow2Ceil(k.Mul(top, k.Float(float64(float32(1/f.max)))))
		finite := k.Cmp(kernel.LE, top, k.Float(math.MaxFloat32))
		scales.Store(i, k.Select(finite, s, k.Float(math.NaN())))
	})
	return scales
}
