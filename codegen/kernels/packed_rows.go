package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "pack_rows", Op: "pack_rows", Match: matchPackRows, Lower: lowerPackRows, Joins: true},
		&Form{Name: "unpack_rows", Op: "unpack_rows", Match: always, Lower: lowerUnpackRows},
	)
}

// matchPackRows: scales of the smallest blocks must be normal numbers, which
// packRow's codes are multiplied with the inverses of.
func matchPackRows(o *ir.Op, t *target.Target) string {
	format, _ := ir.PackedResult(o)
	f, _ := codeFormatOf(format.To, t)
	if floor := o.Float("floor"); floor*f.stored/f.max < 0x1p-126 || floor > math.MaxFloat32 {
		return fmt.Sprintf("floor %g: scales would be no normal numbers", floor)
	}
	return ""
}

// rowsOf is how the rows of operand i lie, packed or as d numbers of bf16.
func rowsOf(o *ir.Op, i, d int) ir.RowFormat {
	if f, ok := ir.PackedOperand(o, i); ok {
		return f
	}
	return ir.RowFormat{D: d}
}

// rowSpec is what a kernel's spec says of its rows.
func rowSpec(f ir.RowFormat) string {
	if !f.Packed() {
		return ""
	}
	return fmt.Sprintf(" rows %s d%d n%d block%d", f.To, f.D, f.Dims, f.Block)
}

// rowBytes is the length of a row in memory.
func rowBytes(f ir.RowFormat) int64 { return f.Elements().Bytes(f.Width()) }

// packedResult is the format of the op's result, and of its codes.
func packedResult(o *ir.Op, t *target.Target) (ir.RowFormat, codeFormat) {
	format, _ := ir.PackedResult(o)
	f, _ := codeFormatOf(format.To, t)
	f.floor = o.Float("floor")
	return format, f
}

// lowerPackRows: one group per row.
func lowerPackRows(l Lowering, o *ir.Op) error {
	format, f := packedResult(o, l.Target())
	n := product(dims(o.Args[0])) / format.D
	l.Launch(Launch{
		Name: "pack_rows", Spec: rowSpec(format) + fmt.Sprintf(" floor%g", f.floor), Grid: n, Work: int64(n * format.D * 8),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			packRow(k, b[0].At(k.Mul(k.Group(), k.Int(format.D))), b[1].At(k.Mul(k.Group(), k.Int(format.Bytes()))), format, f)
		},
	})
	return nil
}

// packRow packs the numbers of x into the bytes of y. All lanes of the group take
// part.
func packRow(k *kernel.K, x, y *kernel.Buf, format ir.RowFormat, f codeFormat) {
	if k.T.GPU() && format.Block%quantPiece == 0 {
		packBlocks(k, x, y, format, f)
	} else {
		packBlockByBlock(k, x, y, format, f)
	}
	if rest := format.D - format.Dims; rest > 0 {
		x, y := x.At(k.Int(format.Dims)), y.At(k.Int(format.Rest())).As(ir.BF16)
		k.Lanes(k.Int(rest), func(i kernel.V) { y.Store(i, x.Load(i)) })
	}
	if zeros := format.Bytes() - format.Used(); zeros > 0 && !packsWords(k, format) {
		y := y.At(k.Int(format.Used()))
		k.Lanes(k.Int(zeros), func(i kernel.V) { y.StoreBits(i, k.Int32(0)) })
	}
}

// packBlocks packs all blocks at a time: a reduction over the group for each would take
// longer than the rest.
func packBlocks(k *kernel.K, x, y *kernel.Buf, format ir.RowFormat, f codeFormat) {
	scales := blockScales(k, x, format.Dims, format.Block, f)
	k.Barrier()
	code := func(i kernel.V) kernel.V {
		s := scales.Load(k.UDiv(i, k.Int(format.Block)))
		return k.Select(k.Cmp(kernel.EQ, s, s), f.encode(k, k.Mul(x.Load(i), k.Div(k.Float(1), s))), k.Int32(0))
	}
	if format.To == ir.F4E2M1 {
		k.Lanes(k.Int(format.Dims/2), func(i kernel.V) {
			y.StoreBits(i, packPair(k, func(j int) kernel.V { return code(k.Add(k.Mul(i, k.Int(2)), k.Int(j))) }))
		})
	} else if packsWords(k, format) {
		words := y.As(ir.I32)
		k.Lanes(k.Int(format.Dims/4), func(i kernel.V) {
			word := k.Int32(0)
			for j := range 4 {
				word = k.Or(word, k.Shl(code(k.Add(k.Mul(i, k.Int(4)), k.Int(j))), k.Int32(8*j)))
			}
			words.StoreBits(i, word)
		})
	} else {
		k.Lanes(k.Int(format.Dims), func(i kernel.V) { y.StoreBits(i, code(i)) })
	}
	n, end := format.Dims/format.Block, format.Dims/format.Block
	if packsWords(k, format) { // and the zeros behind them
		end = format.Bytes() - format.Scales()
	}
	k.Lanes(k.Int(end), func(i kernel.V) {
		scale := func(i kernel.V) kernel.V { return k.EncodeE8M0(k.Mul(scales.Load(i), k.Float(f.stored))) }
		at := k.Add(i, k.Int(format.Scales()))
		if end == n {
			y.StoreBits(at, scale(i))
			return
		}
		there := k.Cmp(kernel.LT, i, k.Int(n))
		y.StoreBits(at, k.Select(there, scale(k.Select(there, i, k.Int(0))), k.Int32(0)))
	})
}

// packsWords reports whether lanes store four codes of 8 bits at once, so that AMD's waves,
// whose lines are long, store whole ones, and scales along with the zeros behind them.
func packsWords(k *kernel.K, f ir.RowFormat) bool {
	return k.T.Kind == target.AMDGPU && f.To == ir.F8E4M3 && f.Dims%4 == 0 && f.Block%quantPiece == 0
}

// packBlockByBlock packs the blocks one after the other.
func packBlockByBlock(k *kernel.K, x, y *kernel.Buf, format ir.RowFormat, f codeFormat) {
	n := format.Block
	k.For(k.Int(0), k.Int(format.Dims), n, func(at kernel.V) {
		x := x.At(at)
		s := blockScale(k, x, n, f)
		good := k.Cmp(kernel.EQ, s.scale, s.scale)
		code := func(i kernel.V) kernel.V {
			return k.Select(good, f.encode(k, k.Mul(x.Load(i), s.inverse)), k.Int32(0))
		}
		if format.To == ir.F4E2M1 {
			y := y.At(k.LShr(at, k.Int(1)))
			k.Lanes(k.Int(n/2), func(i kernel.V) {
				y.StoreBits(i, packPair(k, func(j int) kernel.V { return code(k.Add(k.Mul(i, k.Int(2)), k.Int(j))) }))
			})
		} else {
			y := y.At(at)
			k.Lanes(k.Int(n), func(i kernel.V) { y.StoreBits(i, code(i)) })
		}
		k.First(func() {
			y.StoreBits(k.Add(k.UDiv(at, k.Int(n)), k.Int(format.Scales())), k.EncodeE8M0(k.Mul(s.scale, k.Float(f.stored))))
		})
	})
}

// lowerUnpackRows: one group per row.
func lowerUnpackRows(l Lowering, o *ir.Op) error {
	format, _ := ir.PackedOperand(o, 0)
	n, rows := product(dims(o.Args[1])), l.Buf(o.Args[0])
	l.Launch(Launch{
		Name: "unpack_rows", Spec: rowSpec(format), Grid: n, Work: int64(n * format.D * 8),
		In: []Ref{rows, l.Buf(o.Args[1])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{dims(o.Args[0])[0]},
		Touched: map[Ref]int64{rows: int64(n) * rowBytes(format)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			y := b[2].At(k.Mul(k.Group(), k.Int(format.D)))
			ok, at := inRows(k, b[1].Load(k.Group()), ints[0])
			k.If(ok, func() {
				r := rowAt(k, format, b[0], at)
				r.code = (*kernel.Buf).LoadAny // any byte: codes of NaN too
				r.each(func(i, x kernel.V) { y.Store(i, x) })
			})
			k.If(k.Not(ok), func() {
				k.Lanes(k.Int(format.D), func(i kernel.V) { y.Store(i, k.Float(0)) })
			})
		},
	})
	return nil
}

// row is a row of numbers in memory.
type row struct {
	k      *kernel.K
	format ir.RowFormat
	// Of packed rows the codes, the numbers behind them, and the scales; else rest has
	// all numbers.
	codes, rest, scales *kernel.Buf

	code func(codes *kernel.Buf, i kernel.V) kernel.V
}

// rowAt is row number n, uniform, of a buffer.
func rowAt(k *kernel.K, f ir.RowFormat, b *kernel.Buf, n kernel.V) row {
	b = b.At(k.Mul(k.Convert(n, kernel.I64), k.Int(f.Width())))
	if !f.Packed() {
		return row{k: k, format: f, rest: b}
	}
	// As weights: pack_rows writes no codes of NaN.
	return row{k, f, b.As(f.To), b.At(k.Int(f.Rest())).As(ir.BF16), b.At(k.Int(f.Scales())).As(ir.E8M0), (*kernel.Buf).LoadWeight}
}

// inStep reports whether the lanes of a host, which act together, all read codes of
// one block, or all read numbers behind them, if the first is a multiple of them.
func (r row) inStep() bool {
	n, f := r.k.T.Lanes, r.format
	return !r.k.T.GPU() && f.D%n == 0 && f.Packed() && f.Block%n == 0
}

// each calls g for all numbers of the row, as Lanes does.
func (r row) each(g func(i, x kernel.V)) {
	k := r.k
	d := k.Int(r.format.D)
	if !r.inStep() {
		k.Lanes(d, func(i kernel.V) { g(i, r.load(i, i)) })
		return
	}
	k.For(k.Int(0), d, k.T.Lanes, func(from kernel.V) {
		i := k.Add(k.Lane(), from)
		g(i, r.load(i, from))
	})
}

// load is number i of the row; from is that of the first lane. Packed rows have the
// bits that bf16 rows have: a code times a power of two is exact.
func (r row) load(i, from kernel.V) kernel.V {
	k, f := r.k, r.format
	if !f.Packed() {
		return r.rest.Load(i)
	}
	place := i
	if r.inStep() {
		place = from
	}
	number := func() kernel.V {
		return k.Mul(r.code(r.codes, i), r.scales.Load(k.UDiv(place, k.Int(f.Block))))
	}
	if f.Dims == f.D {
		return number()
	}
	x, coded := k.Var(k.Float(0)), k.Cmp(kernel.LT, place, k.Int(f.Dims))
	k.If(coded, func() { x.Set(number()) })
	k.If(k.Not(coded), func() { x.Set(r.rest.Load(k.Sub(i, k.Int(f.Dims)))) })
	return x.Get()
}
