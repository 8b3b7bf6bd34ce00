package mypasses

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// addRow is the op that the fusion makes. Decompose is its meaning: the evaluator
// computes that, and it is what a target without a kernel for the op runs.
var addRow = &ir.OpDef{
	Name: "my.add_row", Group: "custompass",
	Doc:      "z[t,:] = x[t,:] + table[rows[t],:]; row -1 adds zeros.",
	Operands: []ir.OperandDef{{Name: "x", Doc: "f32 [T,D]"}, {Name: "table", Doc: "f32 [N,D]"}, {Name: "rows", Doc: "i32 [T]"}},
	Results:  []string{"z"},
	Infer: func(o *ir.Op) ([]ir.Type, error) {
		x, table, rows := o.Args[0].Type, o.Args[1].Type, o.Args[2].Type
		if x.Rank() != 2 || table.Rank() != 2 || !x.Equal(ir.T(ir.F32, x.Dims...)) ||
			!table.Equal(ir.T(ir.F32, table.Dims[0], x.Dims[1])) || !rows.Equal(ir.T(ir.I32, x.Dims[0])) {
			return nil, fmt.Errorf("operands are %s, %s and %s, want f32[T,D], f32[N,D] and i32[T]", x, table, rows)
		}
		return []ir.Type{x}, nil
	},
	Decompose: func(b *ir.Builder, o *ir.Op) []*ir.Value {
		row := b.Op1("gather_rows", nil, o.Args[1], o.Args[2])
		return []*ir.Value{b.Bin("add", o.Args[0], row)}
	},
	Limit: ir.Limit{Kind: ir.Exact, Why: "each element is one addition"},
}
