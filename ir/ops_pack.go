package ir

import "fmt"

// Packed rows: a row of a cache as bytes, so that one scatter writes it and one
// gather reads it.

// RowFormat is how a row of D numbers lies in bytes: the codes of its first Dims
// numbers, the others as bf16, an e8m0 scale for each Block of codes, and zeros up to
// a multiple of rowAlign. Codes of f4e2m1 lie two to a byte, low nibble first; bf16 is
// little endian. The zero value is a row of bf16 that is not packed.
type RowFormat struct {
	To             DType // f8e4m3 or f4e2m1
	Block, Dims, D int
}

// rowAlign is what the bytes of a row are a multiple of: the widest vector that GPUs
// load, which some of them load from multiples of its size only.
const rowAlign = 16

// Packed reports whether rows are bytes.
func (f RowFormat) Packed() bool { return f.Dims > 0 }

// Rest is where the numbers that stay bf16 begin, in bytes.
func (f RowFormat) Rest() int { return int(f.To.Bytes(f.Dims)) }

// Scales is where the scales begin, in bytes.
func (f RowFormat) Scales() int { return f.Rest() + 2*(f.D-f.Dims) }

// Used is the number of bytes before the zeros.
func (f RowFormat) Used() int { return f.Scales() + f.Dims/f.Block }

// Bytes is the length of a row.
func (f RowFormat) Bytes() int { return (f.Used() + rowAlign - 1) / rowAlign * rowAlign }

// Elements is the format of a row's elements in memory: bytes or bf16.
func (f RowFormat) Elements() DType {
	if f.Packed() {
		return U8
	}
	return BF16
}

// Width is the number of those elements.
func (f RowFormat) Width() int {
	if f.Packed() {
		return f.Bytes()
	}
	return f.D
}

// Row is the type of rows in this format, n of them along each leading axis.
func (f RowFormat) Row(n ...Dim) Type {
	return T(f.Elements(), append(n[:len(n):len(n)], Int(f.Width()))...)
}

// Attrs are the attributes that say how rows are packed.
func (f RowFormat) Attrs() Attrs {
	if !f.Packed() {
		return nil
	}
	return Attrs{{"to", f.To}, {"block", f.Block}, {"dims", f.Dims}}
}

func (f RowFormat) check() error {
	switch {
	case f.To != F8E4M3 && f.To != F4E2M1:
		return fmt.Errorf("to is %s, want f8e4m3 or f4e2m1", f.To)
	case f.Dims < 1 || f.Dims > f.D || f.Block < 1 || f.Dims%f.Block != 0:
		return fmt.Errorf("dims %d, block %d do not fit rows of %d", f.Dims, f.Block, f.D)
	case f.To == F4E2M1 && f.Block%2 != 0:
		return fmt.Errorf("block is %d: f4e2m1 is packed two to a byte, so it must be even", f.Block)
	case f.Rest()%2 != 0:
		return fmt.Errorf("%d bytes of codes: bf16 numbers behind them want an even number", f.Rest())
	}
	return nil
}

// rowAttrs are those of ops that take packed rows or, with dims 0, rows of bf16.
var rowAttrs = []AttrDef{
	{Name: "to", Kind: AttrDType, Default: BF16, Doc: "of rows that pack_rows packed: their codes' format"},
	{Name: "block", Kind: AttrInt, Default: 0, Doc: "of pack_rows"},
	{Name: "dims", Kind: AttrInt, Default: 0, Doc: "of pack_rows; 0: rows are bf16"},
}

// rowFormat is what attributes to, block and dims say of rows of d numbers.
func (o *Op) rowFormat(d int) RowFormat {
	return RowFormat{To: o.DType("to"), Block: o.Int("block"), Dims: o.Int("dims"), D: d}
}

// wantRowsOf checks that operand i is rows of d numbers as rowAttrs say.
func (o *Op) wantRowsOf(i int, d Dim) error {
	dims := o.Args[i].Type.Dims
	if o.Int("dims") == 0 {
		if o.DType("to") != BF16 || o.Int("block") != 0 {
			return fmt.Errorf("to is %s and block %d, but dims 0: rows that are not packed", o.DType("to"), o.Int("block"))
		}
		if err := o.want(i, 2, BF16); err != nil {
			return err
		}
		return o.wantDims(i, dims[0], d)
	}
	n, ok := d.Const()
	if !ok {
		return fmt.Errorf("packed rows of %s numbers: want a constant", d)
	}
	f := o.rowFormat(n)
	if err := firstErr(f.check(), o.want(i, 2, U8)); err != nil {
		return err
	}
	return o.wantDims(i, dims[0], Int(f.Bytes()))
}

// PackedOperand is the format of operand i, if it is packed rows.
func PackedOperand(o *Op, i int) (RowFormat, bool) {
	switch name := o.Def.Name; {
	case name == "unpack_rows" && i == 0:
		return o.rowFormat(o.Int("d")), true
	case (name == "sparse_attention" && i >= 2 && i%2 == 0 || name == "indexer_scores" && i == 2) && o.Int("dims") > 0:
		n, _ := o.Args[0].Type.Dims[2].Const()
		return o.rowFormat(n), true
	}
	return RowFormat{}, false
}

// PackedResult is the format of the result of o, if it is packed rows.
func PackedResult(o *Op) (RowFormat, bool) {
	switch name := o.Def.Name; {
	case name == "compress_row" && o.Bool("packed"):
		n, _ := o.Args[3].Type.Dims[0].Const() // of the norm's weights
		return o.rowFormat(n), true
	case name == "pack_rows", o.Def.FusedBy == "fuse-rope" && o.Bool("packed"):
		x := o.Args[0].Type
		n, _ := x.Dims[x.Rank()-1].Const()
		return o.rowFormat(n), true
	}
	return RowFormat{}, false
}

func init() {
	packed := []AttrDef{
		{Name: "to", Kind: AttrDType, Doc: "f8e4m3 or f4e2m1"},
		{Name: "block", Kind: AttrInt, Doc: "codes that share a scale"},
	}
	dims := AttrDef{Name: "dims", Kind: AttrInt, Doc: "how many leading numbers of a row are codes"}
	mustRegister(
		&OpDef{
			Name: "pack_rows", Group: "quant",
			Doc:      "Rows of a cache as bytes: the first dims numbers quantised as quantize does, the others as bf16, then the e8m0 scales, and zeros up to a multiple of 16 bytes. unpack_rows gives what fake_quant gives.",
			Operands: []OperandDef{{Name: "x", Doc: "bf16 [..,D]"}}, Results: []string{"rows"},
			Attrs: append(packed[:2:2], AttrDef{Name: "floor", Kind: AttrFloat, Doc: "smallest block maximum that counts"}, dims),
			Infer: func(o *Op) ([]Type, error) {
				x := o.Args[0].Type
				if err := firstErr(o.want(0, -1, BF16), wantRows(x)); err != nil {
					return nil, err
				}
				last := x.Rank() - 1
				n, ok := x.Dims[last].Const()
				if !ok {
					return nil, fmt.Errorf("operand x is %s, want a constant last axis", x)
				}
				f := o.rowFormat(n)
				if err := f.check(); err != nil {
					return nil, err
				}
				if o.Float("floor") <= 0 {
					return nil, fmt.Errorf("floor is %v, want more than 0", o.Float("floor"))
				}
				return []Type{f.Row(x.Dims[:last]...)}, nil
			},
			Limit: Limit{Kind: Exact, Why: "as bf16 numbers, NaN of any bits; -0 as in fake_quant"},
		},
		&OpDef{
			Name: "unpack_rows", Group: "quant",
			Doc:      "The numbers of the chosen rows of those that pack_rows packed, code * scale rounded to bf16; index -1 gives zeros.",
			Operands: []OperandDef{{Name: "rows", Doc: "u8 [R,bytes]"}, {Name: "index", Doc: "i32, any rank >= 1"}}, Results: []string{"x"},
			Attrs: append(packed[:2:2], dims, AttrDef{Name: "d", Kind: AttrInt, Doc: "numbers of a row"}),
			Infer: func(o *Op) ([]Type, error) {
				x, f := o.Args[0].Type, o.rowFormat(o.Int("d"))
				if err := firstErr(o.want(0, 2, U8), o.want(1, -1, I32), f.check()); err != nil {
					return nil, err
				}
				index := o.Args[1].Type
				if index.Rank() < 1 {
					return nil, fmt.Errorf("operand index is %s, want rank >= 1", index)
				}
				return []Type{RowFormat{D: f.D}.Row(index.Dims...)}, o.wantDims(0, x.Dims[0], Int(f.Bytes()))
			},
			Limit: Limit{Kind: Exact},
		},
	)
}

// gatherPacked is the rows of operand i of o that operand i+1 lists, as bf16 numbers.
func (b *Builder) gatherPacked(o *Op, i int) *Value {
	f, packed := PackedOperand(o, i)
	if !packed {
		return b.Op1("gather_rows", nil, o.Args[i], o.Args[i+1])
	}
	return b.unpack(f, o.Args[i], o.Args[i+1])
}

func (b *Builder) unpack(f RowFormat, rows, index *Value) *Value {
	return b.Op1("unpack_rows", append(f.Attrs(), Attr{"d", f.D}), rows, index)
}

// Unpack is packed rows [..,bytes] as bf16 numbers [..,D].
func (b *Builder) Unpack(f RowFormat, rows *Value) *Value {
	n := rows.Type.Dims[:max(0, rows.Type.Rank()-1)]
	all := product(n)
	x := b.unpack(f, b.Reshape(rows, all, Int(f.Bytes())), b.Iota(0, all))
	return b.Reshape(x, append(n[:len(n):len(n)], Int(f.D))...)
}
