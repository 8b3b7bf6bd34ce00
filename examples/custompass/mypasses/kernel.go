package mypasses

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// addRowForm is one kernel for every target: what it is written in becomes vector
// instructions on a CPU, lanes of a wave on a GPU.
var addRowForm = &kernels.Form{
	Name: "my_add_row", Op: "my.add_row",
	Match: func(*ir.Op, *target.Target) string { return "" }, // every op, every target
	Lower: lowerAddRow,
}

// lowerAddRow: one group per row, lanes along it.
func lowerAddRow(l kernels.Lowering, o *ir.Op) error {
	x, table, rows := l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])
	n, _ := o.Results[0].Type.Dims[0].Const() // kernels are made for integer shapes
	width, _ := o.Results[0].Type.Dims[1].Const()
	l.Launch(kernels.Launch{
		Name: "add_row", Spec: fmt.Sprintf("d%d", width), Grid: n, Work: int64(n * width * 2),
		In: []kernels.Ref{x, table, rows}, Out: []kernels.Ref{l.Buf(o.Results[0])},
		Touched: map[kernels.Ref]int64{table: ir.F32.Bytes(n * width)}, // not the whole table
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(width))
			x, z := b[0].At(at), b[3].At(at)
			row := b[2].Load(k.Group())
			live := k.Cmp(kernel.GE, row, k.Int32(0))
			// Row 0 can be read when there is none to read.
			safe := k.Convert(k.Select(live, row, k.Int32(0)), kernel.I64)
			table := b[1].At(k.Mul(safe, k.Int(width)))
			k.Lanes(k.Int(width), func(i kernel.V) {
				y := k.Select(live, table.Load(i), k.Float(0))
				z.Store(i, k.Add(x.Load(i), y))
			})
		},
	})
	return nil
}
