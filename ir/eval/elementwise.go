package eval

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
)

// Elementwise evaluators. Unary functions of floats are computed in float64 and
// rounded once. Binary ones are computed in f32 and then rounded to the dtype,
// which equals one rounding of the exact result, since f32 has at least twice
// the bits of bf16 and f16, and two more.

var unaryFloat = map[string]func(float64) float64{
	"neg":     func(x float64) float64 { return -x },
	"abs":     math.Abs,
	"exp":     math.Exp,
	"log1p":   math.Log1p,
	"sqrt":    math.Sqrt,
	"rsqrt":   func(x float64) float64 { return 1 / math.Sqrt(x) },
	"sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"cos":     math.Cos,
	"sin":     math.Sin,
}

var unaryInt = map[string]func(int64) int64{
	"neg": func(x int64) int64 { return -x },
	"abs": func(x int64) int64 { return max(x, -x) },
	"not": func(x int64) int64 { return 1 - x },
}

var binaryFloat = map[string]func(x, y float32) float32{
	"add": func(x, y float32) float32 { return x + y },
	"sub": func(x, y float32) float32 { return x - y },
	"mul": func(x, y float32) float32 { return x * y },
	"div": func(x, y float32) float32 { return x / y },
	"min": func(x, y float32) float32 { return min(x, y) },
	"max": func(x, y float32) float32 { return max(x, y) },
}

var binaryInt = map[string]func(x, y int64) int64{
	"add": func(x, y int64) int64 { return x + y },
	"sub": func(x, y int64) int64 { return x - y },
	"mul": func(x, y int64) int64 { return x * y },
	"div": floorDiv,
	"mod": func(x, y int64) int64 { return x - y*floorDiv(x, y) },
	"min": func(x, y int64) int64 { return min(x, y) },
	"max": func(x, y int64) int64 { return max(x, y) },
	"and": func(x, y int64) int64 { return x & y },
	"or":  func(x, y int64) int64 { return x | y },
}

// floorDiv assumes y != 0, which the caller checks.
func floorDiv(x, y int64) int64 {
	q := x / y
	if x%y != 0 && (x < 0) != (y < 0) {
		q--
	}
	return q
}

var compareFloat = map[string]func(x, y float32) bool{
	"eq": func(x, y float32) bool { return x == y },
	"ne": func(x, y float32) bool { return x != y },
	"lt": func(x, y float32) bool { return x < y },
	"le": func(x, y float32) bool { return x <= y },
	"gt": func(x, y float32) bool { return x > y },
	"ge": func(x, y float32) bool { return x >= y },
}

var compareInt = map[string]func(x, y int64) bool{
	"eq": func(x, y int64) bool { return x == y },
	"ne": func(x, y int64) bool { return x != y },
	"lt": func(x, y int64) bool { return x < y },
	"le": func(x, y int64) bool { return x <= y },
	"gt": func(x, y int64) bool { return x > y },
	"ge": func(x, y int64) bool { return x >= y },
}

// intRange is the value range of an integer dtype.
func intRange(dt ir.DType) (lo, hi int64) {
	switch dt {
	case ir.I32:
		return math.MinInt32, math.MaxInt32
	case ir.I8:
		return math.MinInt8, math.MaxInt8
	case ir.U8:
		return 0, math.MaxUint8
	case ir.Bool:
		return 0, 1
	}
	return math.MinInt64, math.MaxInt64
}

// overflows reports whether z, computed from x and y, left the range of i64.
func overflows(name string, x, y, z int64) bool {
	switch name {
	case "add":
		return (x^z)&(y^z) < 0
	case "sub":
		return (x^y)&(x^z) < 0
	case "mul":
		return x == -1 && y == math.MinInt64 || x != 0 && z/x != y
	case "div":
		return x == math.MinInt64 && y == -1
	}
	return false
}

// checkInt refuses a result outside its dtype instead of wrapping.
func checkInt(dt ir.DType, v int64) error {
	if lo, hi := intRange(dt); v < lo || v > hi {
		return fmt.Errorf("%d is out of range of %s", v, dt)
	}
	return nil
}

func makeUnary(op *ir.Op) (kernel, error) {
	name, dt := op.Def.Name, op.Results[0].Type.DType
	if storageOf(dt) == storeI {
		f := unaryInt[name]
		return func(in, out []*Tensor) error {
			for i, x := range in[0].I {
				if x == math.MinInt64 { // -x is x
					return fmt.Errorf("%s of %d is out of range of %s", name, x, dt)
				}
				out[0].I[i] = f(x)
				if err := checkInt(dt, out[0].I[i]); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	f, round := unaryFloat[name], rounder64(dt)
	return func(in, out []*Tensor) error {
		for i, x := range in[0].F {
			out[0].F[i] = round(f(float64(x)))
		}
		return nil
	}, nil
}

func makeBinary(op *ir.Op) (kernel, error) {
	name := op.Def.Name
	xt, yt, dt := shapeOf(op.Args[0]), shapeOf(op.Args[1]), op.Results[0].Type.DType
	b := newBroadcast(shapeOf(op.Results[0]), xt, yt)
	if storageOf(op.Args[0].Type.DType) == storeI {
		return makeBinaryInt(name, dt, b), nil
	}
	if cmp, ok := compareFloat[name]; ok {
		return func(in, out []*Tensor) error {
			x, y, z := in[0].F, in[1].F, out[0].I
			b.rows(func(o, n int, off, step []int) {
				for i := range n {
					z[o+i] = bit(cmp(x[off[0]+i*step[0]], y[off[1]+i*step[1]]))
				}
			})
			return nil
		}, nil
	}
	f, round := binaryFloat[name], rounder(dt)
	narrow := dt != ir.F32
	return func(in, out []*Tensor) error {
		x, y, z := in[0].F, in[1].F, out[0].F
		b.rows(func(o, n int, off, step []int) {
			row := z[o : o+n]
			xs, ys := x[off[0]:], y[off[1]:]
			switch {
			case step[0] == 1 && step[1] == 1:
				binaryRow(name, f, row, xs[:n], ys[:n])
			case step[0] == 1 && step[1] == 0:
				binaryRight(name, f, row, xs[:n], ys[0])
			default:
				for i := range row {
					row[i] = f(xs[i*step[0]], ys[i*step[1]])
				}
			}
			if narrow {
				for i, v := range row {
					row[i] = round(v)
				}
			}
		})
		return nil
	}, nil
}

// binaryRow and binaryRight spare the three commonest ops a call per element.
func binaryRow(name string, f func(x, y float32) float32, z, x, y []float32) {
	switch name {
	case "mul":
		for i := range z {
			z[i] = x[i] * y[i]
		}
	case "add":
		for i := range z {
			z[i] = x[i] + y[i]
		}
	case "sub":
		for i := range z {
			z[i] = x[i] - y[i]
		}
	default:
		for i := range z {
			z[i] = f(x[i], y[i])
		}
	}
}

func binaryRight(name string, f func(x, y float32) float32, z, x []float32, y float32) {
	switch name {
	case "mul":
		for i := range z {
			z[i] = x[i] * y
		}
	case "add":
		for i := range z {
			z[i] = x[i] + y
		}
	case "sub":
		for i := range z {
			z[i] = x[i] - y
		}
	default:
		for i := range z {
			z[i] = f(x[i], y)
		}
	}
}

func makeBinaryInt(name string, dt ir.DType, b *broadcast) kernel {
	if cmp, ok := compareInt[name]; ok {
		return func(in, out []*Tensor) error {
			x, y, z := in[0].I, in[1].I, out[0].I
			b.rows(func(o, n int, off, step []int) {
				for i := range n {
					z[o+i] = bit(cmp(x[off[0]+i*step[0]], y[off[1]+i*step[1]]))
				}
			})
			return nil
		}
	}
	f, divides := binaryInt[name], name == "div" || name == "mod"
	return func(in, out []*Tensor) error {
		x, y, z := in[0].I, in[1].I, out[0].I
		var err error
		b.rows(func(o, n int, off, step []int) {
			for i := range n {
				a, c := x[off[0]+i*step[0]], y[off[1]+i*step[1]]
				if divides && c == 0 {
					err = fmt.Errorf("%s by zero at element %d", name, o+i)
					return
				}
				z[o+i] = f(a, c)
				if e := checkInt(dt, z[o+i]); e != nil {
					err = e
				}
				if dt == ir.I64 && overflows(name, a, c, z[o+i]) {
					err = fmt.Errorf("%s of %d and %d is out of range of %s", name, a, c, dt)
				}
			}
		})
		return err
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func makeSelect(op *ir.Op) (kernel, error) {
	b := newBroadcast(shapeOf(op.Results[0]), shapeOf(op.Args[0]), shapeOf(op.Args[1]), shapeOf(op.Args[2]))
	if storageOf(op.Results[0].Type.DType) == storeI {
		return func(in, out []*Tensor) error {
			c, x, y, z := in[0].I, in[1].I, in[2].I, out[0].I
			b.rows(func(o, n int, off, step []int) { selectRow(z[o:o+n], c, x, y, off, step) })
			return nil
		}, nil
	}
	return func(in, out []*Tensor) error {
		c, x, y, z := in[0].I, in[1].F, in[2].F, out[0].F
		b.rows(func(o, n int, off, step []int) { selectRow(z[o:o+n], c, x, y, off, step) })
		return nil
	}, nil
}

func selectRow[V any](z []V, c []int64, x, y []V, off, step []int) {
	if step[0] == 0 { // one condition for the row
		src, o, s := y, off[2], step[2]
		if c[off[0]] != 0 {
			src, o, s = x, off[1], step[1]
		}
		for i := range z {
			z[i] = src[o+i*s]
		}
		return
	}
	for i := range z {
		if c[off[0]+i*step[0]] != 0 {
			z[i] = x[off[1]+i*step[1]]
		} else {
			z[i] = y[off[2]+i*step[2]]
		}
	}
}

func makeCast(op *ir.Op) (kernel, error) {
	from, to := op.Args[0].Type, op.Results[0].Type.DType
	src, dst := storageOf(from.DType), storageOf(to)
	round := rounder(to)
	switch {
	case src == storeF && dst == storeF:
		if to == ir.F32 {
			return func(in, out []*Tensor) error { copy(out[0].F, in[0].F); return nil }, nil
		}
		return func(in, out []*Tensor) error {
			for i, x := range in[0].F {
				out[0].F[i] = round(x)
			}
			return nil
		}, nil
	case src == storeI && dst == storeI:
		return func(in, out []*Tensor) error {
			for i, x := range in[0].I {
				if err := checkInt(to, x); err != nil {
					return err
				}
				out[0].I[i] = x
			}
			return nil
		}, nil
	case src == storeI && dst == storeF:
		round64 := rounder64(to)
		return func(in, out []*Tensor) error {
			for i, x := range in[0].I {
				if y := float64(x); y == 0x1p63 || int64(y) != x {
					return fmt.Errorf("%d is not exact in float64", x)
				}
				out[0].F[i] = round64(float64(x))
			}
			return nil
		}, nil
	case src == storeF && dst == storeI:
		return func(in, out []*Tensor) error {
			for i, x := range in[0].F {
				v := math.Trunc(float64(x))
				if v != v || v < -0x1p63 || v >= 0x1p63 {
					return fmt.Errorf("%v is out of range of %s", x, to)
				}
				if err := checkInt(to, int64(v)); err != nil {
					return err
				}
				out[0].I[i] = int64(v)
			}
			return nil
		}, nil
	}
	// Through a code format: element by element.
	return func(in, out []*Tensor) error {
		for i := range out[0].Len() {
			x, err := in[0].float(i)
			if err != nil {
				return err
			}
			switch dst {
			case storeF:
				out[0].F[i] = round(x)
			case storeCode:
				out[0].setCode(i, x)
			default:
				return fmt.Errorf("cast from %s to %s: go through f32", from.DType, to)
			}
		}
		return nil
	}, nil
}

// float reads any element as f32.
func (t *Tensor) float(i int) (float32, error) {
	switch storageOf(t.DType) {
	case storeF:
		return t.F[i], nil
	case storeI:
		f := float32(t.I[i])
		if f == 0x1p63 || int64(f) != t.I[i] {
			return 0, fmt.Errorf("%d is not exact in f32", t.I[i])
		}
		return f, nil
	}
	return t.code(i), nil
}
