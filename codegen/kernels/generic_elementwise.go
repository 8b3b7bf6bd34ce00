package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// Elementwise primitives: a group takes a run of elements or some rows, lanes
// along them.

func init() {
	for _, op := range []string{"neg", "abs", "exp", "log1p", "sqrt", "rsqrt", "sigmoid", "cos", "sin", "not",
		"add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "eq", "ne", "lt", "le", "gt", "ge", "select"} {
		register(&Form{Name: "generic_" + op, Op: op, Match: always, Lower: lowerElementwise, Joins: true})
		elementwiseOps[op] = true
	}
	register(
		&Form{Name: "generic_cast", Op: "cast", Match: matchCast, Lower: lowerCast, Joins: true},
		&Form{Name: "generic_const", Op: "const", Match: always, Lower: lowerConst, Joins: true},
		&Form{Name: "generic_iota", Op: "iota", Match: always, Lower: lowerIota, Joins: true},
	)
}

// matchCast refuses what the evaluator refuses: codes become integers by way of
// f32.
func matchCast(o *ir.Op, _ *target.Target) string {
	from, to := o.Args[0].Type.DType, o.DType("to")
	if to.IsInt() && !from.IsInt() && !from.IsFloat() && from != ir.Bool {
		return fmt.Sprintf("cast from %s to %s: go through f32", from, to)
	}
	return ""
}

// elementwiseOps are the ops that elementwise computes.
var elementwiseOps = map[string]bool{"cast": true}

// Elementwise reports whether an op is one of the generic elementwise kernels', on
// formats whose values a register holds as memory does.
func Elementwise(o *ir.Op) bool {
	return elementwiseOps[o.Def.Name] && rounds(o.Results[0].Type.DType)
}

// rounds reports whether roundTo knows a format.
func rounds(dt ir.DType) bool {
	switch dt {
	case ir.F32, ir.BF16, ir.F16, ir.I32, ir.I64, ir.Bool:
		return true
	}
	return false
}

// roundTo gives a computed value the bits that a store as dt and a load would.
func roundTo(k *kernel.K, x kernel.V, dt ir.DType) kernel.V {
	switch dt {
	case ir.BF16:
		return k.RoundBF16(x)
	case ir.F16:
		return k.RoundF16(x)
	}
	return x
}

// Inlines reports whether op can run inside of user: element by element, so that
// nothing is computed twice.
func Inlines(op, user *ir.Op) bool {
	return product(dims(op.Results[0])) == product(dims(user.Results[0]))
}

// term is an elementwise expression: an op on terms, a constant or an operand.
type term struct {
	op   *ir.Op
	args []*term
	val  *float64 // constant of format dt
	dt   ir.DType
	leaf int // operand
}

// terms builds expressions and numbers the operands.
type terms struct {
	l      Lowering
	leaves []*ir.Value
}

func (t *terms) of(o *ir.Op) *term {
	out := &term{op: o}
	for _, a := range o.Args {
		out.args = append(out.args, t.operand(a))
	}
	return out
}

func (t *terms) operand(v *ir.Value) *term {
	if v.Op != nil && v.Op.Def.Name == "const" {
		x := v.Op.Float("value")
		return &term{val: &x, dt: v.Type.DType}
	}
	if t.l.Inlined(v) {
		return t.of(v.Op)
	}
	at := slices.Index(t.leaves, v)
	if at < 0 {
		at = len(t.leaves)
		t.leaves = append(t.leaves, v)
	}
	return &term{leaf: at}
}

// spec is the expression as text.
func (t *term) spec() string {
	switch {
	case t.val != nil:
		return fmt.Sprintf("%v:%s", *t.val, t.dt)
	case t.op == nil:
		return fmt.Sprintf("$%d", t.leaf)
	}
	list := make([]string, len(t.args))
	for i, a := range t.args {
		list[i] = a.spec()
	}
	return fmt.Sprintf("%s%s:%s(%s)", t.op.Def.Name, attrSpec(t.op), t.op.Results[0].Type.DType, strings.Join(list, ","))
}

// eval computes the expression; only its last op is not rounded, which the store
// does.
func (t *term) eval(k *kernel.K, load func(leaf int) kernel.V) kernel.V {
	args := make([]kernel.V, len(t.args))
	for i, a := range t.args {
		switch {
		case a.val != nil:
			args[i] = constValue(k, a.dt, *a.val)
		case a.op == nil:
			args[i] = load(a.leaf)
		default:
			args[i] = roundTo(k, a.eval(k, load), a.op.Results[0].Type.DType)
		}
	}
	return elementwise(k, t.op, args)
}

func lowerElementwise(l Lowering, o *ir.Op) error {
	shape := dims(o.Results[0])
	build := terms{l: l}
	expr := build.of(o)
	var strides [][]int
	var in []Ref
	for _, v := range build.leaves {
		in = append(in, l.Buf(v))
		strides = append(strides, repeated(dims(v), len(shape)))
	}
	w := walkOver(l.Target(), shape, 4, strides...)
	spec, vectors := expr.spec()+" "+w.spec(), build.vectors(w, expr, o.Results[0].Type.DType)
	if vectors {
		spec, w.inner, w.size = spec+" vectors", w.inner/vectorRun, max(w.size/vectorRun, l.Target().Lanes)
	}
	l.Launch(Launch{
		Name: "ew_" + o.Def.Name, Spec: spec, Grid: w.grid(), Work: int64(product(shape)) * 4,
		In: in, Out: []Ref{l.Buf(o.Results[0])}, Ints: w.ints(),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			w.each(k, ints, func(first []kernel.V) func(col, at kernel.V) {
				x := make([]kernel.V, len(in)) // of the operands that are fixed along a row
				for j := range in {
					if w.fixed(j) {
						x[j] = b[j].LoadAny(first[j])
					}
				}
				if vectors {
					return func(_, at kernel.V) { expr.evalRun(k, b, k.Mul(at, k.Int(vectorRun)), x, w.fixed) }
				}
				return func(col, at kernel.V) {
					loaded := make([]*kernel.V, len(in))
					b[len(b)-1].Store(at, expr.eval(k, func(j int) kernel.V {
						if w.fixed(j) {
							return x[j]
						}
						if loaded[j] == nil {
							v := b[j].LoadAny(w.index(k, ints, j, first[j], col, at))
							loaded[j] = &v
						}
						return *loaded[j]
					}))
				}
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

// lowerCast rounds; f4e2m1 is packed two to a byte.
func lowerCast(l Lowering, o *ir.Op) error {
	if o.DType("to") != ir.F4E2M1 {
		return lowerElementwise(l, o)
	}
	n := product(dims(o.Args[0])) / 2
	s := spreadOver(l.Target(), 1, n, 16)
	y := l.Buf(o.Results[0])
	y.DT = ir.U8
	from := o.Args[0].Type.DType
	l.Launch(Launch{
		Name: "ew_pack", Spec: fmt.Sprintf("%s %s", from, s.mode), Grid: s.grid(), Work: int64(n) * 16,
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{y}, Ints: s.ints(),
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			s.each(k, ints, func(kernel.V) func(col, at kernel.V) {
				return func(_, at kernel.V) {
					b[1].StoreBits(at, packPair(k, func(i int) kernel.V {
						x := b[0].LoadAny(k.Add(k.Mul(at, k.Int(2)), k.Int(i)))
						return k.EncodeE2M1(toFloat(k, x))
					}))
				}
			})
		},
	})
	return nil
}

// packPair is the byte of two 4-bit codes, the first in its low half.
func packPair(k *kernel.K, code func(i int) kernel.V) kernel.V {
	return k.Or(code(0), k.Shl(code(1), k.Int32(4)))
}

// constValue is a constant rounded once to its dtype, as a load of it would give.
func constValue(k *kernel.K, dt ir.DType, v float64) kernel.V {
	switch dt {
	case ir.BF16:
		v = float64(num.RoundBF16F64(v))
	case ir.F16:
		v = float64(num.RoundF16F64(v))
	case ir.I64:
		return k.Int(int(v))
	case ir.I32, ir.I8, ir.U8:
		return k.Int32(int(v))
	}
	return k.Float(v)
}

// elementwise computes one op on loaded values. Narrow floats were widened to
// f32 and are rounded by the store; transcendentals go through f64, so that the
// rounded result is the evaluator's but for rare last bits. What the evaluator
// refuses, integers that overflow or are divided by zero and floats outside the
// integers' range, gives some number.
func elementwise(k *kernel.K, o *ir.Op, x []kernel.V) kernel.V {
	viaDouble := func(f func(kernel.V) kernel.V) kernel.V {
		return k.Narrow(f(k.Convert(x[0], kernel.F64)), o.Results[0].Type.DType)
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
		return viaDouble(k.Log1pD)
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
	}
	return castTo(k, x[0], o.Args[0].Type.DType, o.DType("to"))
}

// castTo rounds a loaded value of format from for a store of format to.
func castTo(k *kernel.K, x kernel.V, from, to ir.DType) kernel.V {
	switch to {
	case ir.F8E4M3:
		return k.EncodeE4M3(toFloat(k, x))
	case ir.F8E4M3FNUZ:
		return k.EncodeFNUZ(toFloat(k, x))
	case ir.E8M0:
		return k.EncodeE8M0(toFloat(k, x))
	case ir.I64:
		return k.Convert(x, kernel.I64)
	case ir.I32, ir.I8, ir.U8:
		return k.Convert(x, kernel.I32)
	}
	if from == ir.I64 || from == ir.I32 { // one rounding, from the exact integer
		return k.Narrow(k.Convert(x, kernel.F64), to)
	}
	return toFloat(k, x)
}

func toFloat(k *kernel.K, x kernel.V) kernel.V { return k.Convert(x, kernel.F32) }

func lowerConst(l Lowering, o *ir.Op) error {
	v, dt := o.Float("value"), o.DType("dtype")
	l.Launch(Launch{
		Name: "const", Spec: fmt.Sprintf("%v %s", v, dt), Grid: 1, Work: 1, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			k.First(func() { b[0].Store(k.Int(0), constValue(k, dt, v)) })
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
