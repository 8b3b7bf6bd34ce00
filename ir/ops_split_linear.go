package ir

import "fmt"

func init() {
	mustRegister(&OpDef{
		Name: "split_linear", Group: "linear", FusedBy: "fuse-qkv",
		Doc:      "block_linear with two weights in one tensor, rows of the first before those of the second, and a result for each.",
		Operands: []OperandDef{{Name: "x", Doc: "bf16 [M,K]"}, {Name: "w", Doc: "f8e4m3, f8e4m3fnuz or f4e2m1 [N,K], block scaled"}},
		Results:  []string{"a", "b"},
		Attrs: []AttrDef{
			{Name: "sizes", Kind: AttrInts, Doc: "rows of each weight: two numbers that add up to N"},
			actBlockAttr,
		},
		Infer: func(o *Op) ([]Type, error) {
			whole, err := inferBlockLinear(o)
			if err != nil {
				return nil, err
			}
			y, sizes := whole[0], o.Ints("sizes")
			if len(sizes) != 2 || sizes[0] < 1 || sizes[1] < 1 || !y.Dims[1].Equal(Int(sizes[0]+sizes[1])) {
				return nil, fmt.Errorf("sizes are %v, want two numbers of at least 1 that add up to %s", sizes, y.Dims[1])
			}
			return []Type{y.With(y.Dims[0], Int(sizes[0])), y.With(y.Dims[0], Int(sizes[1]))}, nil
		},
		Decompose: func(b *Builder, o *Op) []*Value {
			sizes := o.Ints("sizes")
			y := b.Op1("block_linear", Attrs{{"act_block", o.Int("act_block")}}, o.Args...)
			return []*Value{b.Slice(y, 1, 0, sizes[0]), b.Slice(y, 1, sizes[0], sizes[1])}
		},
		Limit: Limit{Kind: BF16ULP, Bound: 0.995},
	})
}
