package mypasses

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// addRound is the op that the fusion makes. Decompose is its meaning: the evaluator
// computes that, and it is what a target without a kernel for the op runs.
var addRound = &ir.OpDef{
	Name: "my.add_round", Group: "custompass",
	Doc:      "The bf16 nearest to x + y.",
	Operands: []ir.OperandDef{{Name: "x", Doc: "f32 [..]"}, {Name: "y", Doc: "bf16, shape of x"}},
	Results:  []string{"z"},
	Infer: func(o *ir.Op) ([]ir.Type, error) {
		x, y := o.Args[0].Type, o.Args[1].Type
		if !x.Equal(y.As(ir.F32)) || !y.Equal(x.As(ir.BF16)) {
			return nil, fmt.Errorf("operands are %s and %s, want f32 and bf16 of one shape", x, y)
		}
		return []ir.Type{y}, nil
	},
	Decompose: func(b *ir.Builder, o *ir.Op) []*ir.Value {
		sum := b.Bin("add", o.Args[0], b.Cast(o.Args[1], ir.F32))
		return []*ir.Value{b.Cast(sum, ir.BF16)}
	},
	Limit: ir.Limit{Kind: ir.Exact, Why: "one addition and one rounding, in any order of elements"},
}
