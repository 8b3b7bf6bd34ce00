package mypasses

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// addRoundForm is one kernel for every target: what it is written in becomes vector
// instructions on a CPU, lanes of a wave on a GPU.
var addRoundForm = &kernels.Form{
	Name: "my_add_round", Op: "my.add_round",
	Match: func(o *ir.Op, _ *target.Target) string {
		if o.Args[0].Type.Rank() == 0 {
			return "has no axis to go along"
		}
		return ""
	},
	Lower: lowerAddRound,
}

// lowerAddRound: one group per row, lanes along it.
func lowerAddRound(l kernels.Lowering, o *ir.Op) error {
	t := o.Results[0].Type
	elements, _ := t.Size() // kernels are made for integer shapes
	width, _ := t.Dims[t.Rank()-1].Const()
	l.Launch(kernels.Launch{
		Name: "add_round", Spec: fmt.Sprintf("d%d", width), Grid: elements / width, Work: int64(elements) * 3,
		In: []kernels.Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}, Out: []kernels.Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			row := k.Mul(k.Group(), k.Int(width))
			x, y, z := b[0].At(row), b[1].At(row), b[2].At(row)
			k.Lanes(k.Int(width), func(i kernel.V) {
				// Load widens bf16 to f32, Store rounds to the format of its buffer.
				z.Store(i, k.Add(x.Load(i), y.Load(i)))
			})
		},
	})
	return nil
}
