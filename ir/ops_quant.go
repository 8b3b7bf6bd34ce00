package ir

import "fmt"

// Block-scaled number formats: OCP 8-bit and MX specifications; the scale rule
// is the model's (power of two, ue8m0).

func init() {
	mustRegister(
		&OpDef{
			Name: "quantize", Group: "quant",
			Doc:      "Block-scaled codes of x along its last axis: per block a = max(max|x|, floor), scale = the smallest power of two >= f32(a * f32(1/max)), code = nearest even of x/scale, saturated. A block with NaN or Inf has scale NaN.",
			Operands: []OperandDef{{Name: "x", Doc: "[..,K]"}}, Results: []string{"q"},
			Attrs: []AttrDef{
				{Name: "to", Kind: AttrDType, Doc: "f8e4m3, f8e4m3fnuz or f4e2m1"},
				{Name: "block", Kind: AttrInt, Doc: "elements along the last axis that share a scale"},
				{Name: "floor", Kind: AttrFloat, Doc: "smallest block maximum that counts"},
			},
			Infer: func(o *Op) ([]Type, error) {
				x, to, block := o.Args[0].Type, o.DType("to"), o.Int("block")
				if err := o.want(0, -1, floats...); err != nil {
					return nil, err
				}
				if !to.IsCode() {
					return nil, fmt.Errorf("to is %s, want %s", to, dtypeList([]DType{F8E4M3, F8E4M3FNUZ, F4E2M1}))
				}
				if x.Rank() < 2 || block < 1 || o.Float("floor") <= 0 {
					return nil, fmt.Errorf("%s, block %d, floor %v: want rank >= 2, block >= 1 and floor > 0", x, block, o.Float("floor"))
				}
				if k, ok := x.Dims[x.Rank()-1].Const(); !ok || k%block != 0 {
					return nil, fmt.Errorf("the last axis of %s is not a multiple of block %d", x, block)
				}
				return []Type{Scaled(to, 1, block, x.Dims...)}, nil
			},
		},
		&OpDef{
			Name: "dequantize", Group: "quant",
			Doc:      "code * scale of a block-scaled tensor, rounded once to the result dtype.",
			Operands: []OperandDef{{Name: "q"}}, Results: []string{"x"},
			Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Default: F32, Doc: "f32, bf16 or f16"}},
			Infer: func(o *Op) ([]Type, error) {
				t, to := o.Args[0].Type, o.DType("to")
				if t.Quant == nil {
					return nil, fmt.Errorf("operand q is %s, which has no block scales", t)
				}
				if !to.IsFloat() {
					return nil, fmt.Errorf("to is %s, want %s", to, dtypeList(floats))
				}
				return []Type{t.As(to)}, nil
			},
		},
		&OpDef{
			Name: "recode_fnuz", Group: "quant",
			Doc:      "The same numbers as f8e4m3fnuz: a code means half of what it means as f8e4m3, so codes stay and scales double. -0, which f8e4m3fnuz lacks, becomes 0; NaN codes become its NaN, 0x80. Scale 2^127 cannot be doubled: it becomes NaN, as NaN does.",
			Operands: []OperandDef{{Name: "q", Doc: "f8e4m3, block scaled"}}, Results: []string{"r"},
			Infer: func(o *Op) ([]Type, error) {
				t := o.Args[0].Type
				if t.DType != F8E4M3 || t.Quant == nil {
					return nil, fmt.Errorf("operand q is %s, want f8e4m3 with block scales", t)
				}
				return []Type{{DType: F8E4M3FNUZ, Dims: t.Dims, Quant: t.Quant}}, nil
			},
		},
	)
}
