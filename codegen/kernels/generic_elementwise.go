package kernels

import (
	"fmt"
	"math"
	"slices"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Elementwise primitives: one group per run of elements, lanes along them.

func init() {
	for _, op := range []string{"neg", "abs", "exp", "log1p", "sqrt", "rsqrt", "sigmoid", "cos", "sin", "not",
		"add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "eq", "ne", "lt", "le", "gt", "ge", "select", "broadcast"} {
		register(&Form{Name: "generic_" + op, Op: op, Match: matchElementwise, Lower: lowerElementwise})
	}
	register(
		&Form{Name: "generic_cast", Op: "cast", Match: matchCast, Lower: lowerElementwise},
		&Form{Name: "generic_const", Op: "const", Match: always, Lower: lowerConst},
		&Form{Name: "generic_iota", Op: "iota", Match: always, Lower: lowerIota},
	)
}

func matchElementwise(o *ir.Op, _ *target.Target) string {
	if o.Def.Name == "broadcast" && o.Args[0].Type.DType == ir.F4E2M1 {
		return "packed f4e2m1"
	}
	return ""
}

func matchCast(o *ir.Op, _ *target.Target) string {
	for _, dt := range []ir.DType{o.Args[0].Type.DType, o.DType("to")} {
		if dt == ir.F4E2M1 {
			return "packed f4e2m1"
		}
	}
	return ""
}

// chunk is the number of elements of one group of an elementwise kernel.
const chunk = 4096

// operandWalk says how an operand's index follows from the result's.
type operandWalk struct {
	same   bool // the result's own index
	single bool // one element
	stride []int
}

func lowerElementwise(l Lowering, o *ir.Op) error {
	shape := dims(o.Results[0])
	n := product(shape)
	walks := make([]operandWalk, len(o.Args))
	spec := o.Def.Name + attrSpec(o)
	nested := false
	for i, a := range o.Args {
		walks[i] = walkOf(shape, dims(a))
		nested = nested || !walks[i].same && !walks[i].single
		spec += fmt.Sprintf(" %v %v", walks[i].same, walks[i].single)
	}
	inner := []int(nil)
	if nested { // only the first extent stays out of the code
		inner = shape[1:]
		spec = fmt.Sprintf("%s inner%v", spec, inner)
		for _, w := range walks {
			spec += fmt.Sprintf(" %v", w.stride)
		}
	}
	consts := make([]*float64, len(o.Args))
	var in []Ref
	for i, a := range o.Args {
		if a.Op != nil && a.Op.Def.Name == "const" && !a.Type.DType.IsInt() {
			v := a.Op.Float("value")
			consts[i] = &v
			spec += fmt.Sprintf(" c%d=%v", i, v)
			continue
		}
		in = append(in, l.Buf(a))
	}
	l.Launch(Launch{
		Name: "ew_" + o.Def.Name, Spec: spec, Grid: (n + chunk - 1) / chunk, Work: int64(n) * 4,
		In: in, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			from := k.Mul(k.Group(), k.Int(chunk))
			left := k.Sub(ints[0], from)
			count := k.Select(k.Cmp(kernel.LT, left, k.Int(chunk)), left, k.Int(chunk))
			k.Lanes(count, func(i kernel.V) {
				at := k.Add(i, from)
				args := make([]kernel.V, len(o.Args))
				next := 0
				for j := range o.Args {
					if consts[j] != nil {
						args[j] = constValue(k, o.Args[j].Type.DType, *consts[j])
						continue
					}
					args[j] = b[next].Load(walks[j].index(k, at, inner))
					next++
				}
				b[len(b)-1].Store(at, elementwise(k, o, args))
			})
		},
	})
	return nil
}

// attrSpec lists an op's attributes.
func attrSpec(o *ir.Op) string {
	s := ""
	for _, a := range o.Attrs {
		if a.Key != "shape" { // in the extents already
			s += fmt.Sprintf(" %s=%v", a.Key, a.Val)
		}
	}
	return s
}

func constValue(k *kernel.K, dt ir.DType, v float64) kernel.V {
	switch dt {
	case ir.BF16:
		return k.RoundBF16(k.Float(v))
	case ir.F16:
		return k.RoundF16(k.Float(v))
	}
	return k.Float(v)
}

// walkOf compares an operand's extents with the result's.
func walkOf(result, operand []int) operandWalk {
	w := operandWalk{stride: make([]int, len(result))}
	if product(operand) == 1 {
		w.single = true
		return w
	}
	w.same = slices.Equal(result, operand)
	step := 1
	for i := len(result) - 1; i >= 0; i-- {
		if operand[i] != 1 {
			w.stride[i] = step
		}
		step *= operand[i]
	}
	return w
}

// index is the operand's element for the result's element at.
func (w operandWalk) index(k *kernel.K, at kernel.V, inner []int) kernel.V {
	if w.single {
		return k.Int(0)
	}
	if w.same {
		return at
	}
	sum := kernel.V{}
	first := true
	rest := at
	for i := len(inner) - 1; i >= 0; i-- {
		if d := inner[i]; d != 1 {
			if s := w.stride[i+1]; s != 0 {
				part := k.Mul(k.URem(rest, k.Int(d)), k.Int(s))
				if first {
					sum, first = part, false
				} else {
					sum = k.Add(sum, part)
				}
			}
			rest = k.UDiv(rest, k.Int(d))
		}
	}
	if s := w.stride[0]; s != 0 {
		part := k.Mul(rest, k.Int(s))
		if first {
			return part
		}
		sum = k.Add(sum, part)
	}
	return sum
}

// elementwise computes one op on loaded values. Narrow floats were widened to
// f32 and are rounded by the store; transcendentals go through f64, so that the
// rounded result is the evaluator's but for rare last bits.
func elementwise(k *kernel.K, o *ir.Op, x []kernel.V) kernel.V {
	viaDouble := func(f func(kernel.V) kernel.V) kernel.V {
		return k.Convert(f(k.Convert(x[0], kernel.F64)), kernel.F32)
	}
	one := k.Double(1)
	switch o.Def.Name {
	case "neg":
		if x[0].Float() {
			return k.Neg(x[0])
		}
		return k.Sub(k.ZeroLike(x[0]), x[0])
	case "abs":
		if x[0].Float() {
			return k.Abs(x[0])
		}
		return k.Max(x[0], k.Sub(k.ZeroLike(x[0]), x[0]))
	case "exp":
		return viaDouble(k.ExpD)
	case "log1p":
		return viaDouble(func(v kernel.V) kernel.V { return k.Log1pD(v) })
	case "sqrt":
		return k.Sqrt(x[0])
	case "rsqrt":
		return viaDouble(func(v kernel.V) kernel.V { return k.Div(one, k.Sqrt(v)) })
	case "sigmoid":
		return viaDouble(func(v kernel.V) kernel.V {
			return k.Div(one, k.Add(one, k.ExpD(k.Neg(v))))
		})
	case "cos":
		return viaDouble(func(v kernel.V) kernel.V { _, c := k.SinCosD(v); return c })
	case "sin":
		return viaDouble(func(v kernel.V) kernel.V { s, _ := k.SinCosD(v); return s })
	case "not":
		return k.Not(x[0])
	case "add":
		return k.Add(x[0], x[1])
	case "sub":
		return k.Sub(x[0], x[1])
	case "mul":
		return k.Mul(x[0], x[1])
	case "div":
		if x[0].Float() {
			return k.Div(x[0], x[1])
		}
		return k.FloorDiv(x[0], x[1])
	case "mod":
		return k.Sub(x[0], k.Mul(x[1], k.FloorDiv(x[0], x[1])))
	case "min":
		if x[0].Float() {
			return k.MinNaN(x[0], x[1])
		}
		return k.Min(x[0], x[1])
	case "max":
		if x[0].Float() {
			return k.MaxNaN(x[0], x[1])
		}
		return k.Max(x[0], x[1])
	case "and":
		return k.And(x[0], x[1])
	case "or":
		return k.Or(x[0], x[1])
	case "eq", "ne", "lt", "le", "gt", "ge":
		return k.Cmp(kernel.Pred(o.Def.Name), x[0], x[1])
	case "select":
		return k.Select(x[0], x[1], x[2])
	case "broadcast":
		return rebits(k, x[0], o.Args[0].Type.DType)
	}
	return castTo(k, x[0], o.Args[0].Type.DType, o.DType("to"))
}

// rebits turns a loaded value back into what a store of its own format takes.
func rebits(k *kernel.K, x kernel.V, dt ir.DType) kernel.V { return castTo(k, x, dt, dt) }

// castTo rounds a loaded value of format from for a store of format to.
func castTo(k *kernel.K, x kernel.V, from, to ir.DType) kernel.V {
	switch to {
	case ir.F8E4M3:
		return k.EncodeE4M3(toFloat(k, x))
	case ir.F8E4M3FNUZ:
		return k.EncodeFNUZ(toFloat(k, x))
	case ir.E8M0:
		return k.EncodeE8M0(toFloat(k, x))
	case ir.Bool:
		return k.Convert(x, kernel.Bool)
	case ir.I64:
		return k.Convert(x, kernel.I64)
	case ir.I32, ir.I8, ir.U8:
		return k.Convert(x, kernel.I32)
	}
	if from == ir.I64 || from == ir.I32 { // one rounding, from the exact integer
		return k.Convert(k.Convert(x, kernel.F64), kernel.F32)
	}
	return toFloat(k, x)
}

func toFloat(k *kernel.K, x kernel.V) kernel.V { return k.Convert(x, kernel.F32) }

func lowerConst(l Lowering, o *ir.Op) error {
	v, dt := o.Float("value"), o.DType("dtype")
	l.Launch(Launch{
		Name: "const", Spec: fmt.Sprintf("%v %s", math.Float64bits(v), dt), Grid: 1, Work: 1, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			x := k.Float(v)
			switch dt {
			case ir.I64:
				x = k.Int(int(v))
			case ir.I32, ir.I8, ir.U8:
				x = k.Int32(int(v))
			}
			k.First(func() { b[0].Store(k.Int(0), x) })
		},
	})
	return nil
}

func lowerIota(l Lowering, o *ir.Op) error {
	shape, axis := dims(o.Results[0]), o.Int("axis")
	inner := product(shape[axis+1:])
	n := product(shape)
	// Along the first axis the extent does not enter: i/inner never wraps.
	wrap := shape[axis]
	if axis == 0 {
		wrap = 0
	}
	l.Launch(Launch{
		Name: "iota", Spec: fmt.Sprintf("inner%d wrap%d", inner, wrap), Grid: (n + chunk - 1) / chunk, Work: int64(n),
		Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			from := k.Mul(k.Group(), k.Int(chunk))
			left := k.Sub(ints[0], from)
			count := k.Select(k.Cmp(kernel.LT, left, k.Int(chunk)), left, k.Int(chunk))
			k.Lanes(count, func(i kernel.V) {
				at := k.Add(i, from)
				v := at
				if inner > 1 {
					v = k.UDiv(v, k.Int(inner))
				}
				if wrap > 0 {
					v = k.URem(v, k.Int(wrap))
				}
				b[0].Store(at, k.Convert(v, kernel.I32))
			})
		},
	})
	return nil
}
