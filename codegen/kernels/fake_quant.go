package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(&Form{Name: "fake_quant", Op: "fake_quant", Match: matchFakeQuant, Lower: lowerFakeQuant, Joins: true})
}

func matchFakeQuant(o *ir.Op, t *target.Target) string {
	f, ok := codeFormatOf(o.DType("to"), t)
	if !ok {
		return fmt.Sprintf("format %s", o.DType("to"))
	}
	if o.Float("floor") != f.floor {
		return fmt.Sprintf("floor %g is not %g", o.Float("floor"), f.floor)
	}
	return ""
}

// lowerFakeQuant: one group per block, and one per row for the elements that pass.
func lowerFakeQuant(l Lowering, o *ir.Op) error {
	x, n, block := dims(o.Args[0]), o.Int("dims"), o.Int("block")
	d := x[len(x)-1]
	f, _ := codeFormatOf(o.DType("to"), l.Target())
	rows := product(x) / d
	pieces := n / block
	if n < d {
		pieces++
	}
	l.Launch(Launch{
		Name: "fake_quant", Spec: fmt.Sprintf("%s d%d n%d block%d", o.DType("to"), d, n, block), Grid: rows * pieces, Work: int64(rows * d * 8),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.UDiv(k.Group(), k.Int(pieces)), k.Int(d))
			piece := k.URem(k.Group(), k.Int(pieces))
			x, y := b[0].At(at), b[1].At(at)
			quant := k.Cmp(kernel.LT, piece, k.Int(n/block))
			k.If(quant, func() {
				from := k.Mul(piece, k.Int(block))
				quantBlock(k, x.At(from), y.At(from), block, f)
			})
			if n < d {
				k.If(k.Not(quant), func() {
					k.Lanes(k.Int(d-n), func(i kernel.V) {
						i = k.Add(i, k.Int(n))
						y.Store(i, x.Load(i))
					})
				})
			}
		},
	})
	return nil
}
