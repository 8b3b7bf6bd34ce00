package ir

import "fmt"

// The bits of the flags of argmax and sample: what is wrong with a row, 0 if nothing
// is. Rows with any of the first four come from a fault upstream.
const (
	ArgmaxNaN    = 1 << iota // some value is NaN; the others are compared
	ArgmaxAllNaN             // every value is NaN
	ArgmaxHigh               // some value is +Inf
	ArgmaxAllLow             // there are numbers and each is -Inf
	SampleRange              // of sample: a parameter of the row is outside of its range
)

// argmaxFlagsDoc is what the op reference says of them.
var argmaxFlagsDoc = fmt.Sprintf("Bits of flags, 0 for a sound row: %d some value is NaN, %d all are, %d some value is +Inf, %d there are numbers and all are -Inf.",
	ArgmaxNaN, ArgmaxAllNaN, ArgmaxHigh, ArgmaxAllLow)

// validAttr tells the columns of a vocabulary from those that pad it.
var validAttr = AttrDef{Name: "valid", Kind: AttrInt, Default: 0,
	Doc: "how many columns there are, whatever the extent: those behind are padding, which is not read, is never chosen and sets no flag; 0: all"}

// checkValid reports a number of valid columns that the extent does not have.
func (o *Op) checkValid(columns Dim) error {
	n := o.Int("valid")
	if v, ok := columns.Const(); n < 0 || ok && n > v {
		return fmt.Errorf("valid = %d of %s columns", n, columns)
	}
	return nil
}

// Columns is how many columns of a row an op with the attribute valid chooses from,
// of an extent that is an integer.
func (o *Op) Columns(extent int) int {
	if n := o.Int("valid"); n > 0 {
		return n
	}
	return extent
}

func init() {
	mustRegister(
		&OpDef{
			Name: "argmax", Group: "reduce",
			Doc: "Index of the largest value of each row, and what is wrong with the row. Equal values (-0 and +0 are): the lowest index. " +
				"NaN and -Inf are never chosen; if there is nothing else the index is 0. " + argmaxFlagsDoc,
			Operands: []OperandDef{{Name: "x", Doc: "f32 or bf16 [B,V]"}}, Results: []string{"ids", "flags"},
			Attrs: []AttrDef{validAttr},
			Infer: func(o *Op) ([]Type, error) {
				b := o.Args[0].Type
				if err := o.want(0, 2, F32, BF16); err != nil {
					return nil, err
				}
				return []Type{T(I32, b.Dims[0]), T(I32, b.Dims[0])}, o.checkValid(b.Dims[1])
			},
			Limit: Limit{Kind: ByChoice}, MoreLimits: []Limit{{Kind: Exact}},
		},
		&OpDef{
			Name: "linear_argmax", Group: "linear", FusedBy: "fuse-head-argmax",
			Doc:      "argmax of the rows of x w^T, each sum rounded once to f32: the product of a language model's head, of which only the greedy token is wanted.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [M,K]"}, {Name: "w", Doc: "bf16 [N,K]"}}, Results: []string{"ids", "flags"},
			Attrs: []AttrDef{validAttr},
			Infer: func(o *Op) ([]Type, error) {
				x, w := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, 2, BF16), o.want(1, 2, BF16)); err != nil {
					return nil, err
				}
				return []Type{T(I32, x.Dims[0]), T(I32, x.Dims[0])}, firstErr(o.wantDims(1, w.Dims[0], x.Dims[1]), o.checkValid(w.Dims[0]))
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				return b.Op("argmax", Attrs{{"valid", o.Int("valid")}}, b.Op1("linear", Attrs{{"to", F32}}, o.Args[0], o.Args[1]))
			},
			Limit: Limit{Kind: ByChoice}, MoreLimits: []Limit{{Kind: Exact, Why: "sums are far from the largest f32, or their operands are Inf or NaN"}},
		},
	)
}
