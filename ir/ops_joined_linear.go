package ir

import "fmt"

func init() {
	// A row of the op table has a fixed number of results.
	for i, d := range []*OpDef{{Name: "linear2"}, {Name: "linear3"}, {Name: "linear4"}} {
		n := i + 2
		d.Group, d.FusedBy = "linear", "fuse-linears"
		d.Doc = fmt.Sprintf("linear with %d weights in one tensor, the rows of each after those of the one before, and a result for each.", n)
		d.Operands = []OperandDef{{Name: "x", Doc: "[M,K]"}, {Name: "w", Doc: "[N,K]"}}
		d.Results = []string{"a", "b", "c", "d"}[:n]
		d.Attrs = []AttrDef{
			{Name: "sizes", Kind: AttrInts, Doc: fmt.Sprintf("rows of each weight: %d numbers that add up to N", n)},
			{Name: "to", Kind: AttrDType, Default: BF16, Doc: "bf16 or f32"},
		}
		d.Infer = inferJoinedLinear
		d.Decompose = func(b *Builder, o *Op) []*Value {
			y := b.Op1("linear", Attrs{{"to", o.DType("to")}}, o.Args...)
			var parts []*Value
			at := 0
			for _, size := range o.Ints("sizes") {
				parts = append(parts, b.Slice(y, 1, at, size))
				at += size
			}
			return parts
		}
		d.Limit = Limit{Kind: BF16ULP, Bound: 0.995}
		mustRegister(d)
	}
}

func inferJoinedLinear(o *Op) ([]Type, error) {
	whole, err := inferLinear(o)
	if err != nil {
		return nil, err
	}
	y, n, sizes, sum := whole[0], len(o.Def.Results), o.Ints("sizes"), 0
	var parts []Type
	fits := len(sizes) == n
	for _, size := range sizes {
		fits = fits && size >= 1
		sum += size
		parts = append(parts, y.With(y.Dims[0], Int(size)))
	}
	if !fits || !y.Dims[1].Equal(Int(sum)) {
		return nil, fmt.Errorf("sizes are %v, want %d numbers of at least 1 that add up to %s", sizes, n, y.Dims[1])
	}
	return parts, nil
}
