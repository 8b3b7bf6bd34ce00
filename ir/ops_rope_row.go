package ir

import "errors"

// Rows that are normalised, rotated and rounded on their way to a cache or to
// attention: one op for what stands in a row.

// rowStages are the attributes of the steps after the norm.
var rowStages = []AttrDef{
	{Name: "inverse", Kind: AttrBool, Default: false, Doc: "of rope"},
	{Name: "hadamard", Kind: AttrBool, Default: false, Doc: "then hadamard"},
	{Name: "to", Kind: AttrDType, Default: BF16, Doc: "then fake_quant to this format; bf16: none"},
	{Name: "block", Kind: AttrInt, Default: 0, Doc: "of fake_quant"},
	{Name: "floor", Kind: AttrFloat, Default: 0.0, Doc: "of fake_quant"},
	{Name: "dims", Kind: AttrInt, Default: 0, Doc: "of fake_quant"},
	{Name: "packed", Kind: AttrBool, Default: false, Doc: "pack_rows instead of fake_quant"},
}

var rowEps = AttrDef{Name: "eps", Kind: AttrFloat, Doc: "of the norm"}

func init() {
	x, cos, sin := OperandDef{Name: "x", Doc: "bf16 [T,..,D]"}, OperandDef{Name: "cos", Doc: "f32 [T,n]"}, OperandDef{Name: "sin", Doc: "f32 [T,n]"}
	for _, d := range []*OpDef{
		{Name: "rope_row", Doc: "rope, and where asked for hadamard and fake_quant or pack_rows, of each row.", Operands: []OperandDef{x, cos, sin}, Attrs: rowStages},
		{Name: "rms_norm_rope", Doc: "rms_norm, then rope_row.", Operands: []OperandDef{x, cos, sin, {Name: "w", Doc: "bf16 [D], of the norm"}}, Attrs: append([]AttrDef{rowEps}, rowStages...)},
		{Name: "compress_row", Doc: "compress, then rms_norm_rope of each entry.", Operands: []OperandDef{
			{Name: "k_pool", Doc: "f32 [R,W]"}, cos, sin, {Name: "w", Doc: "bf16 [D], of the norm"},
			{Name: "g_pool", Doc: "f32 [R,W]"}, {Name: "k", Doc: "f32 [T,W]"}, {Name: "g", Doc: "f32 [T,W]"}, {Name: "old", Doc: "i32 [E,S]"}, {Name: "own", Doc: "i32 [E,S]"},
		}, Attrs: append([]AttrDef{{Name: "overlap", Kind: AttrBool, Default: false, Doc: "of compress"}, rowEps}, rowStages...), FusedBy: "fuse-compress"},
		{Name: "head_rms_norm_rope", Doc: "head_rms_norm, then rope_row.", Operands: []OperandDef{x, cos, sin}, Attrs: append([]AttrDef{rowEps}, rowStages...)},
	} {
		d.Group, d.Results = "rope", []string{"y"}
		if d.FusedBy == "" {
			d.FusedBy = "fuse-rope"
		}
		d.Limit = Limit{Kind: BF16ULP, Bound: 0.995}
		if d.Attrs[0].Name != rowStages[0].Name {
			d.Limit = Limit{Kind: OneMinCos, Bound: 5e-5, Why: "that of the attention operator (dsv4.md section 9): behind a cache rounding, one bf16 ulp of the norm can be a step of the code"}
		}
		d.Infer = func(o *Op) ([]Type, error) {
			if o.Bool("packed") && o.DType("to") == BF16 {
				return nil, errors.New("packed, but to is bf16: want the format of the codes")
			}
			b := &Builder{g: &Graph{}}
			y := buildRow(b, o)
			return []Type{y.Type}, errors.Unwrap(b.err) // without the name of the graph
		}
		d.Decompose = func(b *Builder, o *Op) []*Value { return []*Value{buildRow(b, o)} }
		mustRegister(d)
	}
}

// buildRow appends the steps that a row op stands for.
func buildRow(b *Builder, o *Op) *Value {
	y := o.Args[0]
	switch o.Def.Name {
	case "compress_row":
		y = b.Op1("compress", Attrs{{"overlap", o.Bool("overlap")}}, y, o.Args[4], o.Args[5], o.Args[6], o.Args[7], o.Args[8])
		y = b.Op1("rms_norm", Attrs{{"eps", o.Float("eps")}}, y, o.Args[3])
	case "rms_norm_rope":
		y = b.Op1("rms_norm", Attrs{{"eps", o.Float("eps")}}, y, o.Args[3])
	case "head_rms_norm_rope":
		y = b.Op1("head_rms_norm", Attrs{{"eps", o.Float("eps")}}, y)
	}
	y = b.Op1("rope", Attrs{{"inverse", o.Bool("inverse")}}, y, o.Args[1], o.Args[2])
	if o.Bool("hadamard") {
		y = b.Op1("hadamard", nil, y)
	}
	if o.DType("to") != BF16 {
		round := "fake_quant"
		if o.Bool("packed") {
			round = "pack_rows"
		}
		y = b.Op1(round, Attrs{{"to", o.DType("to")}, {"block", o.Int("block")}, {"floor", o.Float("floor")}, {"dims", o.Int("dims")}}, y)
	}
	return y
}
