package ir

// A norm whose result products quantise. Two ops, since the norm itself is
// stored only where something reads it.

func init() {
	mustRegister(
		&OpDef{
			Name: "rms_norm_quant", Group: "norm", FusedBy: "fuse-norm-quant",
			Doc:      "rms_norm, then the quantisation that products with this act_block do, as bf16 values: rms_norm and fake_quant to f8e4m3.",
			Operands: normOperands, Results: []string{"q"}, Attrs: normQuantAttrs,
			Infer: func(o *Op) ([]Type, error) {
				t, err := inferNormQuant(o)
				return []Type{t}, err
			},
			Decompose: func(b *Builder, o *Op) []*Value { return normThenQuant(b, o)[1:] },
			Limit:     normQuantLimit,
		},
		&OpDef{
			Name: "rms_norm_and_quant", Group: "norm", FusedBy: "fuse-norm-quant",
			Doc:      "rms_norm_quant with the norm itself as a result too.",
			Operands: normOperands, Results: []string{"y", "q"}, Attrs: normQuantAttrs,
			Infer: func(o *Op) ([]Type, error) {
				t, err := inferNormQuant(o)
				return []Type{t, t}, err
			},
			Decompose: normThenQuant,
			Limit:     Limit{Kind: BF16ULP, Bound: 0.995}, MoreLimits: []Limit{normQuantLimit},
		},
	)
}

var (
	normQuantAttrs = append([]AttrDef{{Name: "act_block", Kind: AttrInt, Default: actBlock, Doc: "elements along the last axis that share a scale"}}, normAttrs...)
	normQuantLimit = Limit{Kind: OneCode, Bound: 0.999, Per: normQuantAttrs[0].Name, Why: "where rounding moves the norm over a code's border, q moves by a code, as in expert; 0 for -0 as in fake_quant"}
)

func inferNormQuant(o *Op) (Type, error) {
	x := o.Args[0].Type
	if err := firstErr(checkNorm(o), wantRows(x)); err != nil {
		return Type{}, err
	}
	return x, o.wantBlocks(0, x.Rank()-1, o.Int("act_block"))
}

func normThenQuant(b *Builder, o *Op) []*Value {
	y := b.Op1("rms_norm", Attrs{{"eps", o.Float("eps")}}, o.Args...)
	return []*Value{y, b.RoundActivations(y, o.Int("act_block"))}
}
