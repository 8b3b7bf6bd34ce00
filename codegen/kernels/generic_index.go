package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// Row access. Whoever runs a plan checks its indices: kernels cannot report an
// error. They stay inside their buffers all the same: an index outside the rows
// reads nothing and writes nothing, as -1 does. Of rows scattered to one slot any
// may win.

func init() {
	register(
		&Form{Name: "generic_gather_rows", Op: "gather_rows", Match: always, Lower: lowerGatherRows, Joins: true},
		&Form{Name: "generic_scatter_rows", Op: "scatter_rows", Match: always, Lower: lowerScatterRows, Joins: true},
		&Form{Name: "generic_take_along", Op: "take_along", Match: always, Lower: lowerTakeAlong, Joins: true},
	)
}

// rowUnits is the width of the rows of x in units, and their size: the widest
// that divides a row.
func rowUnits(x *ir.Value) (width, unit int) {
	bytes := product(dims(x)[1:]) * x.Type.DType.Bits() / 8
	unit = 8
	for bytes%unit != 0 {
		unit /= 2
	}
	return bytes / unit, unit
}

// inRows reports whether an index is one of n rows, and gives it, or 0, as i64.
func inRows(k *kernel.K, ix, n kernel.V) (ok, row kernel.V) {
	ix = k.Convert(ix, kernel.I64)
	ok = k.And(k.Cmp(kernel.GE, ix, k.Int(0)), k.Cmp(kernel.LT, ix, n))
	return ok, k.Select(ok, ix, k.Int(0))
}

func lowerGatherRows(l Lowering, o *ir.Op) error {
	table, rows := o.Args[0], o.Args[1]
	width, unit := rowUnits(table)
	s := spreadOver(l.Target(), product(dims(rows)), width, 1)
	from := bits(l.Buf(table), unit)
	l.Launch(Launch{
		Name: "gather_rows", Spec: string(s.mode), Grid: s.grid(), Work: int64(s.rows * width),
		In: []Ref{from, l.Buf(rows)}, Out: []Ref{bits(l.Buf(o.Results[0]), unit)}, Ints: append(s.ints(), dims(table)[0]),
		Touched: map[Ref]int64{from: int64(s.rows * width * unit)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				ok, from := inRows(k, b[1].Load(row), ints[spreadInts])
				first := k.Mul(from, ints[1])
				return func(col, at kernel.V) {
					x := b[0].LoadBits(k.Add(col, first))
					b[2].StoreBits(at, k.Select(ok, x, k.ZeroLike(x)))
				}
			})
		},
	})
	return nil
}

// lowerScatterRows writes a pool in place; the value of another operand is copied
// first.
func lowerScatterRows(l Lowering, o *ir.Op) error {
	pool, slots, rows := o.Args[0], o.Args[1], o.Args[2]
	if l.Inlined(rows) {
		if rows.Op.Def.Name == "compress_row" {
			launchCompressRow(l, rows.Op, o)
		} else {
			launchRopeRow(l, rows.Op, o)
		}
		return nil
	}
	if old, out := stores(l, pool)[0], l.Buf(o.Results[0]); old.ref.ID != out.ID {
		copyStore(l, old, out)
	}
	width, unit := rowUnits(pool)
	s := spreadOver(l.Target(), dims(slots)[0], width, 1)
	into := bits(l.Buf(o.Results[0]), unit)
	l.Launch(Launch{
		Name: "scatter_rows", Spec: string(s.mode), Grid: s.grid(), Work: int64(s.rows * width),
		In: []Ref{bits(l.Buf(rows), unit), l.Buf(slots)}, Out: []Ref{into}, Ints: append(s.ints(), dims(pool)[0]),
		Touched: map[Ref]int64{into: int64(s.rows * width * unit)},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				ok, to := inRows(k, b[1].Load(row), ints[spreadInts])
				first := k.Mul(to, ints[1])
				return func(col, at kernel.V) {
					k.If(ok, func() { b[2].StoreBits(k.Add(col, first), b[0].LoadBits(at)) })
				}
			})
		},
	})
	return nil
}

func lowerTakeAlong(l Lowering, o *ir.Op) error {
	x, cols, y := o.Args[0], o.Args[1], o.Results[0]
	dt := y.Type.DType
	xs, cs := dims(x), dims(cols)
	n, inner := xs[len(xs)-1], cs[len(cs)-1]
	fill := o.Float("fill")
	s := spreadOver(l.Target(), product(cs)/inner, inner, 1)
	unit := dt.Bits() / 8
	l.Launch(Launch{
		Name: "take_along", Spec: string(s.mode) + attrSpec(o) + " " + dt.String(), Grid: s.grid(), Work: int64(s.rows * inner),
		In: []Ref{bits(l.Buf(x), unit), l.Buf(cols)}, Out: []Ref{bits(l.Buf(y), unit)}, Ints: append(s.ints(), n),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				first := k.Mul(row, ints[spreadInts])
				return func(col, at kernel.V) {
					ok, from := inRows(k, b[1].Load(at), ints[spreadInts])
					b[2].StoreBits(at, k.Select(ok, b[0].LoadBits(k.Add(from, first)), fillBits(k, dt, fill)))
				}
			})
		},
	})
	return nil
}

// fillBits is a number of a format as LoadBits gives it.
func fillBits(k *kernel.K, dt ir.DType, v float64) kernel.V {
	switch dt {
	case ir.F32:
		return k.Int32(int(int32(math.Float32bits(float32(v)))))
	case ir.BF16:
		return k.Int32(int(num.BF16Bits(num.RoundBF16F64(v))))
	case ir.F16:
		return k.Int32(int(num.F16Bits(num.RoundF16F64(v))))
	case ir.I64:
		return k.Int(int(v))
	}
	return k.Int32(int(v))
}
