package ir

import "fmt"

// The bits of argmax's flags: what is wrong with a row, 0 if nothing is. Rows with
// any of them come from a fault upstream.
const (
	ArgmaxNaN    = 1 << iota // some value is NaN; the others are compared
	ArgmaxAllNaN             // every value is NaN
	ArgmaxHigh               // some value is +Inf
	ArgmaxAllLow             // there are numbers and each is -Inf
)

// argmaxFlagsDoc is what the op reference says of them.
var argmaxFlagsDoc = fmt.Sprintf("Bits of flags, 0 for a sound row: %d some value is NaN, %d all are, %d some value is +Inf, %d there are numbers and all are -Inf.",
	ArgmaxNaN, ArgmaxAllNaN, ArgmaxHigh, ArgmaxAllLow)

func init() {
	mustRegister(
		&OpDef{
			Name: "argmax", Group: "reduce",
			Doc: "Index of the largest value of each row, and what is wrong with the row. Equal values (-0 and +0 are): the lowest index. " +
				"NaN and -Inf are never chosen; if there is nothing else the index is 0. " + argmaxFlagsDoc,
			Operands: []OperandDef{{Name: "x", Doc: "f32 or bf16 [B,V]"}}, Results: []string{"ids", "flags"},
			Infer: func(o *Op) ([]Type, error) {
				b := o.Args[0].Type
				if err := o.want(0, 2, F32, BF16); err != nil {
					return nil, err
				}
				return []Type{T(I32, b.Dims[0]), T(I32, b.Dims[0])}, nil
			},
			Limit: Limit{Kind: ByChoice}, MoreLimits: []Limit{{Kind: Exact}},
		},
		&OpDef{
			Name: "linear_argmax", Group: "linear", FusedBy: "fuse-head-argmax",
			Doc:      "argmax of the rows of x w^T, each sum rounded once to f32: the product of a language model's head, of which only the greedy token is wanted.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [M,K]"}, {Name: "w", Doc: "bf16 [N,K]"}}, Results: []string{"ids", "flags"},
			Infer: func(o *Op) ([]Type, error) {
				x, w := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, 2, BF16), o.want(1, 2, BF16)); err != nil {
					return nil, err
				}
				return []Type{T(I32, x.Dims[0]), T(I32, x.Dims[0])}, o.wantDims(1, w.Dims[0], x.Dims[1])
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				return b.Op("argmax", nil, b.Op1("linear", Attrs{{"to", F32}}, o.Args[0], o.Args[1]))
			},
			Limit: Limit{Kind: ByChoice}, MoreLimits: []Limit{{Kind: Exact, Why: "sums are far from the largest f32, or their operands are Inf or NaN"}},
		},
	)
}
