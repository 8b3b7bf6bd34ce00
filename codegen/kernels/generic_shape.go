package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Data movement: bytes are copied as they lie, whatever their format. Codes and
// block scales move alike.

func init() {
	register(
		&Form{Name: "generic_broadcast", Op: "broadcast", Match: always, Lower: lowerBroadcast, Joins: true},
		&Form{Name: "generic_transpose", Op: "transpose", Match: always, Lower: lowerTranspose, Joins: true},
		&Form{Name: "generic_slice", Op: "slice", Match: always, Lower: lowerSlice, Joins: true},
		&Form{Name: "generic_concat", Op: "concat", Match: always, Lower: lowerConcat, Joins: true},
		&Form{Name: "generic_reshape", Op: "reshape", Match: always, Lower: lowerReshape, Joins: true},
	)
}

// store is one storage of a value, its data or its scales, seen as an array of
// units of whole bytes.
type store struct {
	ref   Ref
	unit  int // bytes of an element
	shape []int
}

// stores lists a value's storages. f4e2m1 counts bytes along its last axis.
func stores(l Lowering, v *ir.Value) []store {
	shape := dims(v)
	data := store{ref: l.Buf(v), unit: v.Type.DType.Bits() / 8, shape: shape}
	if v.Type.DType == ir.F4E2M1 {
		data.unit, data.shape = 1, dims(v)
		data.shape[len(shape)-1] /= 2
	}
	out := []store{data}
	if q := v.Type.Quant; q != nil {
		s := dims(v)
		for i, b := range q.Block {
			d := &s[len(s)-2+i]
			*d = ceilDiv(*d, b)
		}
		out = append(out, store{ref: l.Scales(v), unit: 1, shape: s})
	}
	return out
}

// unitTypes are formats that stand for plain bits of their size.
var unitTypes = map[int]ir.DType{1: ir.U8, 2: ir.F16, 4: ir.I32, 8: ir.I64}

// bits sees memory as plain bits of unit bytes.
func bits(r Ref, unit int) Ref { return Ref{ID: r.ID, DT: unitTypes[unit]} }

// move copies elements of unit bytes: point p of extents ext goes from element
// from + p.src to element to + p.dst.
type move struct {
	from, to Ref
	unit     int
	ext      []int
	src, dst []int // strides
	srcAt    int   // offsets
	dstAt    int
}

// launch merges axes and takes the widest unit that fits.
func (m move) launch(l Lowering) {
	a := mergeAxes(m.ext, m.src, m.dst)
	outer, inner, step := a.split()
	srcAt, dstAt, unit := m.srcAt, m.dstAt, m.unit
	if step[0] == 1 && step[1] == 1 {
		for wide := 8; wide > unit; wide /= 2 {
			if m.fits(outer, inner, wide/unit) {
				inner, srcAt, dstAt = inner*unit/wide, srcAt*unit/wide, dstAt*unit/wide
				for b, stride := range outer.stride {
					outer.stride[b] = make([]int, len(stride))
					for i, n := range stride {
						outer.stride[b][i] = n * unit / wide
					}
				}
				unit = wide
				break
			}
		}
	}
	s := spreadOver(l.Target(), product(outer.ext), inner, 1)
	ints := append(s.ints(), srcAt, dstAt)
	base := len(ints)
	ints = append(ints, outer.ints()...)
	after := len(ints)
	kinds := ""
	for _, n := range step {
		kinds += []string{"0", "1", "s"}[min(n, 2)]
		if n > 1 {
			ints = append(ints, n)
		}
	}
	l.Launch(Launch{
		Name: "move", Spec: fmt.Sprintf("%s %s %s", s.mode, outer.spec(), kinds), Grid: s.grid(), Work: int64(product(m.ext)),
		In: []Ref{bits(m.from, unit)}, Out: []Ref{bits(m.to, unit)}, Ints: ints,
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			s.each(k, ints, func(row kernel.V) func(col, at kernel.V) {
				first := outer.offsets(k, ints[base:after], row)
				return func(col, _ kernel.V) {
					next := after
					index := func(buf int) kernel.V {
						start := k.Add(first[buf], ints[spreadInts+buf])
						switch {
						case step[buf] == 0 && buf == 0:
							return start
						case step[buf] <= 1: // the result's step is 0 for a single element
							return k.Add(col, start)
						}
						next++
						return k.Add(k.Mul(col, ints[next-1]), start)
					}
					src := index(0)
					b[1].StoreBits(index(1), b[0].LoadBits(src))
				}
			})
		},
	})
}

// fits reports whether n units make one wide unit everywhere.
func (m move) fits(outer axes, inner, n int) bool {
	ok := inner%n == 0 && m.srcAt%n == 0 && m.dstAt%n == 0
	for _, stride := range outer.stride {
		for _, s := range stride {
			ok = ok && s%n == 0
		}
	}
	return ok
}

func lowerBroadcast(l Lowering, o *ir.Op) error {
	x, y := stores(l, o.Args[0])[0], stores(l, o.Results[0])[0]
	move{from: x.ref, to: y.ref, unit: x.unit, ext: y.shape, src: repeated(x.shape, len(y.shape)), dst: rowMajor(y.shape)}.launch(l)
	return nil
}

func lowerTranspose(l Lowering, o *ir.Op) error {
	x, y := stores(l, o.Args[0])[0], stores(l, o.Results[0])[0]
	stride := rowMajor(x.shape)
	src := make([]int, len(stride))
	for i, p := range o.Ints("perm") {
		src[i] = stride[p]
	}
	move{from: x.ref, to: y.ref, unit: x.unit, ext: y.shape, src: src, dst: rowMajor(y.shape)}.launch(l)
	return nil
}

// cut moves whole runs: ext is the part of an axis that both sides have, the
// axes behind it are whole.
func cut(l Lowering, x, y store, axis, from, to, size int) {
	inner, outer := product(x.shape[axis+1:]), product(x.shape[:axis])
	move{
		from: x.ref, to: y.ref, unit: x.unit, ext: []int{outer, size * inner},
		src: []int{x.shape[axis] * inner, 1}, dst: []int{y.shape[axis] * inner, 1}, srcAt: from * inner, dstAt: to * inner,
	}.launch(l)
}

func lowerSlice(l Lowering, o *ir.Op) error {
	xs, ys := stores(l, o.Args[0]), stores(l, o.Results[0])
	for i := range xs { // the last two axes of codes and scales stay whole
		cut(l, xs[i], ys[i], o.Int("axis"), o.Int("start"), 0, o.Int("size"))
	}
	return nil
}

// lowerConcat: one launch per operand and storage.
func lowerConcat(l Lowering, o *ir.Op) error {
	axis := o.Int("axis")
	ys := stores(l, o.Results[0])
	at := make([]int, len(ys))
	for _, a := range o.Args {
		for i, x := range stores(l, a) {
			cut(l, x, ys[i], axis, 0, at[i], x.shape[axis])
			at[i] += x.shape[axis]
		}
	}
	return nil
}

// lowerReshape copies: the compiler asks for it only where the result must not
// share its operand's memory.
func lowerReshape(l Lowering, o *ir.Op) error {
	xs, ys := stores(l, o.Args[0]), stores(l, o.Results[0])
	for i, x := range xs {
		copyStore(l, x, ys[i].ref)
	}
	return nil
}

// copyStore copies all of a storage.
func copyStore(l Lowering, x store, to Ref) {
	move{from: x.ref, to: to, unit: x.unit, ext: []int{product(x.shape)}, src: []int{1}, dst: []int{1}}.launch(l)
}
