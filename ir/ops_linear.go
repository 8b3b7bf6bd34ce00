package ir

import "fmt"

const (
	actBlock = 128  // elements along K that share an activation scale
	actFloor = 1e-4 // smallest block maximum of 8-bit activation quantisation
)

func init() {
	mustRegister(
		&OpDef{
			Name: "linear", Group: "linear",
			Doc:      "y = x w^T with an unscaled weight; bf16 operands, the sum rounded once to dtype to.",
			Operands: []OperandDef{{Name: "x", Doc: "[M,K]"}, {Name: "w", Doc: "[N,K]"}}, Results: []string{"y"},
			Attrs: []AttrDef{{Name: "to", Kind: AttrDType, Default: BF16, Doc: "bf16 or f32"}},
			Infer: inferLinear,
			Decompose: func(b *Builder, o *Op) []*Value {
				return []*Value{b.Dot(o.Args[0], o.Args[1], o.DType("to"))}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "block_linear", Group: "linear",
			Doc:      "y = b(x w^T) with a block-scaled weight: x is quantised to f8e4m3 in blocks along K, products of codes and scales are summed and rounded once to bf16.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [M,K]"}, {Name: "w", Doc: "f8e4m3, f8e4m3fnuz or f4e2m1 [N,K], block scaled"}}, Results: []string{"y"},
			Attrs: []AttrDef{actBlockAttr},
			Infer: inferBlockLinear,
			Decompose: func(b *Builder, o *Op) []*Value {
				return []*Value{b.Dot(activations(b, o.Args[0], o.Int("act_block")), dequantized(b, o.Args[1]), BF16)}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "grouped_linear", Group: "linear",
			Doc:      "y[m,g,n] = b(sum_k x[m,g,k] w[g,n,k]): one bf16 weight per group of columns.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [M,G,K]"}, {Name: "w", Doc: "bf16 [G,N,K]"}}, Results: []string{"y"},
			Infer: func(o *Op) ([]Type, error) {
				x, w := o.Args[0].Type, o.Args[1].Type
				if err := firstErr(o.want(0, 3, BF16), o.want(1, 3, BF16)); err != nil {
					return nil, err
				}
				return []Type{T(BF16, x.Dims[0], x.Dims[1], w.Dims[1])}, o.wantDims(1, x.Dims[1], w.Dims[1], x.Dims[2])
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				y := b.Dot(b.Transpose(o.Args[0], 1, 0, 2), o.Args[1], BF16)
				return []*Value{b.Transpose(y, 1, 0, 2)}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "hadamard", Group: "linear",
			Doc:      "b(b(x H) * n^-0.5) over the last axis, H the Sylvester-Hadamard matrix, b rounding to bf16 (twice, as the reference does).",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [..,n]"}}, Results: []string{"y"},
			Infer: func(o *Op) ([]Type, error) {
				x := o.Args[0].Type
				if err := o.want(0, -1, BF16); err != nil {
					return nil, err
				}
				if x.Rank() < 1 {
					return nil, fmt.Errorf("operand x is %s, want rank >= 1", x)
				}
				if n, ok := x.Dims[x.Rank()-1].Const(); !ok || n&(n-1) != 0 {
					return nil, fmt.Errorf("the last axis of %s is not a power of two", x)
				}
				return []Type{x}, nil
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				x := o.Args[0]
				dims := x.Type.Dims
				n, _ := dims[len(dims)-1].Const()
				flat := b.Reshape(x, product(dims[:len(dims)-1]), Int(n))
				sum := b.Dot(flat, b.Op1("hadamard_matrix", Attrs{{"n", n}}), BF16)
				y := b.Cast(b.Bin("mul", b.Cast(sum, F32), b.F(powHalf(n))), BF16)
				return []*Value{b.Reshape(y, dims...)}
			},
			Limit: Limit{Kind: BF16ULP, Bound: 0.995},
		},
		&OpDef{
			Name: "fake_quant", Group: "linear",
			Doc:      "The first dims elements of the last axis through a block-scaled format and back to bf16; the others pass.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [..,D]"}}, Results: []string{"y"},
			Attrs: []AttrDef{
				{Name: "to", Kind: AttrDType, Doc: "f8e4m3, f8e4m3fnuz or f4e2m1"},
				{Name: "block", Kind: AttrInt, Doc: "elements that share a scale"},
				{Name: "floor", Kind: AttrFloat, Doc: "smallest block maximum that counts"},
				{Name: "dims", Kind: AttrInt, Doc: "how many leading elements of the last axis"},
			},
			Infer: func(o *Op) ([]Type, error) {
				x, dims, block := o.Args[0].Type, o.Int("dims"), o.Int("block")
				if err := firstErr(o.want(0, -1, BF16), wantRows(x)); err != nil {
					return nil, err
				}
				if n, ok := x.Dims[x.Rank()-1].Const(); !ok || dims < 1 || dims > n || block < 1 || dims%block != 0 {
					return nil, fmt.Errorf("dims %d, block %d do not fit the last axis of %s", dims, block, x)
				}
				if !o.DType("to").IsCode() || o.Float("floor") <= 0 {
					return nil, fmt.Errorf("to %s, floor %v: want a code format and floor > 0", o.DType("to"), o.Float("floor"))
				}
				if o.DType("to") == F4E2M1 && dims%2 != 0 {
					return nil, fmt.Errorf("dims is %d: f4e2m1 is packed two to a byte, so it must be even", dims)
				}
				return []Type{x}, nil
			},
			Decompose: func(b *Builder, o *Op) []*Value {
				x := o.Args[0]
				last := x.Type.Rank() - 1
				n, _ := x.Type.Dims[last].Const()
				dims := o.Int("dims")
				head := x
				if dims < n {
					head = b.Slice(x, last, 0, dims)
				}
				q := b.Op1("quantize", Attrs{{"to", o.DType("to")}, {"block", o.Int("block")}, {"floor", o.Float("floor")}}, head)
				y := b.Op1("dequantize", Attrs{{"to", BF16}}, q)
				if dims < n {
					y = b.Concat(last, y, b.Slice(x, last, dims, n-dims))
				}
				return []*Value{y}
			},
			Limit: Limit{Kind: Exact, Why: "forms of targets whose 8-bit floats are e4m3fnuz give 0 where f8e4m3 gives -0"},
		},
	)
}

// actBlockAttr is an attribute of all products that quantise their activations.
var actBlockAttr = AttrDef{Name: "act_block", Kind: AttrInt, Default: actBlock, Doc: "block of x's quantisation along K; 0: x is multiplied as it is"}

func inferLinear(o *Op) ([]Type, error) {
	x, w := o.Args[0].Type, o.Args[1].Type
	if err := firstErr(o.want(0, 2, BF16, F32), o.want(1, 2, BF16, F32)); err != nil {
		return nil, err
	}
	to := o.DType("to")
	if to != BF16 && to != F32 {
		return nil, fmt.Errorf("to is %s, want bf16 or f32", to)
	}
	return []Type{T(to, x.Dims[0], w.Dims[0])}, o.wantDims(1, w.Dims[0], x.Dims[1])
}

func inferBlockLinear(o *Op) ([]Type, error) {
	x, w := o.Args[0].Type, o.Args[1].Type
	if err := firstErr(o.want(0, 2, BF16), wantScaled(o, 1, 2)); err != nil {
		return nil, err
	}
	return []Type{T(BF16, x.Dims[0], w.Dims[0])}, firstErr(o.wantDims(1, w.Dims[0], x.Dims[1]), o.wantActBlocks())
}

// wantActBlocks checks that x, operand 0, is quantised in whole blocks, if it is.
func (o *Op) wantActBlocks() error {
	if block := o.Int("act_block"); block != 0 {
		return o.wantBlocks(0, 1, block)
	}
	return nil
}

// wantScaled checks that operand i is block scaled and of the given rank.
func wantScaled(o *Op, i, rank int) error {
	t := o.Args[i].Type
	if t.Quant == nil || t.Rank() != rank {
		return fmt.Errorf("operand %s is %s, want a block-scaled tensor of rank %d", o.operandName(i), t, rank)
	}
	return nil
}

// RoundActivations is x through the quantisation that products with this act_block
// do themselves. A rounded value has 4 significant bits: bf16 holds it exactly, and
// a product with act_block 0 gives the same bits.
func (b *Builder) RoundActivations(x *Value, block int) *Value {
	n, _ := x.Type.Dims[x.Type.Rank()-1].Const()
	return b.Op1("fake_quant", Attrs{{"to", F8E4M3}, {"block", block}, {"floor", actFloor}, {"dims", n}}, x)
}

// RoundsActivations reports whether o is such a quantisation, and its block.
func RoundsActivations(o *Op) (block int, ok bool) {
	if o.Def.Name != "fake_quant" {
		return 0, false
	}
	x := o.Args[0].Type
	n, _ := x.Dims[x.Rank()-1].Const()
	return o.Int("block"), o.DType("to") == F8E4M3 && o.Float("floor") == actFloor && o.Int("dims") == n
}

// activations are what a product with act_block multiplies, as f32 values.
func activations(b *Builder, x *Value, block int) *Value {
	if block == 0 {
		return b.Cast(x, F32)
	}
	return quantized(b, x, block)
}

// quantized is x after activation quantisation, as f32 values.
func quantized(b *Builder, x *Value, block int) *Value {
	return dequantized(b, b.Op1("quantize", Attrs{{"to", F8E4M3}, {"block", block}, {"floor", actFloor}}, x))
}

func dequantized(b *Builder, q *Value) *Value {
	return b.Op1("dequantize", Attrs{{"to", F32}}, q)
}
