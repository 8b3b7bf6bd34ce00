package kernel

import (
	"fmt"

	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Elem is the type of a computed value. Memory formats are converted on load
// and store.
type Elem uint8

// The element types.
const (
	Bool Elem = iota
	I32
	I64
	F32
	F64
)

var elemTypes = [...]types.Type{Bool: types.I1, I32: types.I32, I64: types.I64, F32: types.Float, F64: types.Double}

func (e Elem) float() bool { return e >= F32 }

// V is a value: uniform, or one per lane.
type V struct {
	t       Elem
	uniform bool
	v       value.Value
	// On the host, a varying i64 that is base + lane*stride is kept in that form
	// until something needs the vector: it tells contiguous memory accesses.
	base   value.Value
	stride int64
}

func (k *K) typeOf(t Elem, uniform bool) types.Type {
	if uniform || k.T.GPU() {
		return elemTypes[t]
	}
	return types.NewVector(uint64(k.T.Lanes), elemTypes[t])
}

// raw is the LLVM value of x.
func (k *K) raw(x V) value.Value {
	if x.v == nil { // a lane index that was not needed as a vector yet
		return k.b.NewAdd(k.splatValue(x.base), iota64(k.T.Lanes, x.stride))
	}
	return x.v
}

// vary is the LLVM value of x as a varying one.
func (k *K) vary(x V) value.Value {
	if !x.uniform || k.T.GPU() {
		return k.raw(x)
	}
	return k.splatValue(x.v)
}

func (k *K) splatValue(s value.Value) value.Value {
	vt := types.NewVector(uint64(k.T.Lanes), s.Type())
	if c, ok := s.(constant.Constant); ok {
		return splat(vt, c)
	}
	one := k.b.NewInsertElement(constant.NewPoison(vt), s, constant.NewInt(types.I32, 0))
	return k.b.NewShuffleVector(one, constant.NewPoison(vt), constant.NewZeroInitializer(types.NewVector(uint64(k.T.Lanes), types.I32)))
}

// Constants.

// Int is a uniform i64 constant: the type of indices and extents.
func (k *K) Int(n int) V { return V{t: I64, uniform: true, v: constant.NewInt(types.I64, int64(n))} }

// Int32 is a uniform i32 constant.
func (k *K) Int32(n int) V { return V{t: I32, uniform: true, v: constant.NewInt(types.I32, int64(n))} }

// Float is a uniform f32 constant; the number is rounded to f32.
func (k *K) Float(x float64) V {
	return V{t: F32, uniform: true, v: floatConst(types.Float, float64(float32(x)))}
}

// Double is a uniform f64 constant.
func (k *K) Double(x float64) V { return V{t: F64, uniform: true, v: floatConst(types.Double, x)} }

// pair brings two operands to one shape.
func (k *K) pair(op string, x, y V) (a, b value.Value, out V) {
	if x.t != y.t {
		k.fail("%s: operand types differ: %v and %v", op, x.t, y.t)
		y = V{t: x.t, uniform: true, v: constant.NewZeroInitializer(elemTypes[x.t])}
	}
	out = V{t: x.t, uniform: x.uniform && y.uniform}
	if out.uniform {
		return k.raw(x), k.raw(y), out
	}
	return k.vary(x), k.vary(y), out
}

// laneForm reports whether x is a lane index in base + stride form.
func (x V) laneForm() bool { return x.base != nil }

// Add returns x + y.
func (k *K) Add(x, y V) V {
	if y.laneForm() && !x.laneForm() {
		x, y = y, x
	}
	if x.laneForm() && y.uniform && y.t == I64 {
		return V{t: I64, base: k.b.NewAdd(x.base, y.v), stride: x.stride}
	}
	a, b, out := k.pair("add", x, y)
	if x.t.float() {
		out.v = k.b.NewFAdd(a, b)
	} else {
		out.v = k.b.NewAdd(a, b)
	}
	return out
}

// Sub returns x - y.
func (k *K) Sub(x, y V) V {
	if x.laneForm() && y.uniform && y.t == I64 {
		return V{t: I64, base: k.b.NewSub(x.base, y.v), stride: x.stride}
	}
	a, b, out := k.pair("sub", x, y)
	if x.t.float() {
		out.v = k.b.NewFSub(a, b)
	} else {
		out.v = k.b.NewSub(a, b)
	}
	return out
}

// Mul returns x * y.
func (k *K) Mul(x, y V) V {
	if y.laneForm() && !x.laneForm() {
		x, y = y, x
	}
	if c, ok := constInt(y); ok && x.laneForm() {
		return V{t: I64, base: k.b.NewMul(x.base, y.v), stride: x.stride * c}
	}
	a, b, out := k.pair("mul", x, y)
	if x.t.float() {
		out.v = k.b.NewFMul(a, b)
	} else {
		out.v = k.b.NewMul(a, b)
	}
	return out
}

func constInt(x V) (int64, bool) {
	c, ok := x.v.(*constant.Int)
	if !ok || !x.uniform {
		return 0, false
	}
	return c.X.Int64(), true
}

// Div returns x / y: IEEE for floats, truncating for integers.
func (k *K) Div(x, y V) V {
	a, b, out := k.pair("div", x, y)
	if x.t.float() {
		out.v = k.b.NewFDiv(a, b)
	} else {
		out.v = k.b.NewSDiv(a, b)
	}
	return out
}

// UDiv and URem divide non-negative integers.
func (k *K) UDiv(x, y V) V {
	return k.integer("udiv", x, y, func(a, b value.Value) value.Value { return k.b.NewUDiv(a, b) })
}

// URem is the remainder of non-negative integers.
func (k *K) URem(x, y V) V {
	return k.integer("urem", x, y, func(a, b value.Value) value.Value { return k.b.NewURem(a, b) })
}

// FMA returns x*y + z, fused where the machine can: use it only where the op
// table leaves the order of a sum free.
func (k *K) FMA(x, y, z V) V {
	if !k.T.FMA {
		return k.Add(k.Mul(x, y), z)
	}
	out := V{t: x.t, uniform: x.uniform && y.uniform && z.uniform}
	arg := k.vary
	if out.uniform {
		arg = k.raw
	}
	t := k.typeOf(out.t, out.uniform)
	out.v = k.intrinsic("llvm.fma."+mangle(t), t, arg(x), arg(y), arg(z))
	return out
}

// integer appends a two-operand instruction that has one form for all operands.
func (k *K) integer(name string, x, y V, emit func(a, b value.Value) value.Value) V {
	a, b, out := k.pair(name, x, y)
	out.v = emit(a, b)
	return out
}

// And, Or, Xor, Shl, LShr, AShr act on integers and, the first three, on bools.
func (k *K) And(x, y V) V {
	return k.integer("and", x, y, func(a, b value.Value) value.Value { return k.b.NewAnd(a, b) })
}

// Or is the bitwise or.
func (k *K) Or(x, y V) V {
	return k.integer("or", x, y, func(a, b value.Value) value.Value { return k.b.NewOr(a, b) })
}

// Xor is the bitwise exclusive or.
func (k *K) Xor(x, y V) V {
	return k.integer("xor", x, y, func(a, b value.Value) value.Value { return k.b.NewXor(a, b) })
}

// Shl shifts left.
func (k *K) Shl(x, y V) V {
	return k.integer("shl", x, y, func(a, b value.Value) value.Value { return k.b.NewShl(a, b) })
}

// LShr shifts right, filling with zeros.
func (k *K) LShr(x, y V) V {
	return k.integer("lshr", x, y, func(a, b value.Value) value.Value { return k.b.NewLShr(a, b) })
}

// AShr shifts right, filling with the sign.
func (k *K) AShr(x, y V) V {
	return k.integer("ashr", x, y, func(a, b value.Value) value.Value { return k.b.NewAShr(a, b) })
}

// Not negates a bool.
func (k *K) Not(x V) V { return k.Xor(x, V{t: Bool, uniform: true, v: constant.True}) }

// Pred names a comparison.
type Pred string

// The comparisons. Float comparisons are false when an operand is NaN, except NE.
const (
	EQ Pred = "eq"
	NE Pred = "ne"
	LT Pred = "lt"
	LE Pred = "le"
	GT Pred = "gt"
	GE Pred = "ge"
)

var intPred = map[Pred]enum.IPred{EQ: enum.IPredEQ, NE: enum.IPredNE, LT: enum.IPredSLT, LE: enum.IPredSLE, GT: enum.IPredSGT, GE: enum.IPredSGE}
var floatPred = map[Pred]enum.FPred{EQ: enum.FPredOEQ, NE: enum.FPredUNE, LT: enum.FPredOLT, LE: enum.FPredOLE, GT: enum.FPredOGT, GE: enum.FPredOGE}

// Cmp compares; integers are signed.
func (k *K) Cmp(p Pred, x, y V) V {
	a, b, out := k.pair(string(p), x, y)
	out.t = Bool
	if x.t.float() {
		out.v = k.b.NewFCmp(floatPred[p], a, b)
	} else {
		out.v = k.b.NewICmp(intPred[p], a, b)
	}
	return out
}

// Select returns x where cond, else y.
func (k *K) Select(cond, x, y V) V {
	a, b, out := k.pair("select", x, y)
	if cond.uniform {
		if !k.T.GPU() && !out.uniform {
			out.v = k.b.NewSelect(cond.v, a, b)
			return out
		}
		out.v = k.b.NewSelect(k.raw(cond), a, b)
		return out
	}
	if out.uniform {
		a, b = k.vary(x), k.vary(y)
		out.uniform = false
	}
	out.v = k.b.NewSelect(k.raw(cond), a, b)
	return out
}

// Convert changes the element type: floats to integers toward zero, integers to
// floats to nearest even, bool to 0 and 1.
func (k *K) Convert(x V, to Elem) V {
	if x.t == to {
		return x
	}
	out := V{t: to, uniform: x.uniform}
	v, t := k.raw(x), k.typeOf(to, x.uniform)
	switch {
	case x.t == Bool && to.float():
		out.v = k.b.NewUIToFP(v, t)
	case x.t == Bool:
		out.v = k.b.NewZExt(v, t)
	case to == Bool:
		return k.Cmp(NE, x, k.zero(x.t))
	case x.t == F32 && to == F64:
		out.v = k.b.NewFPExt(v, t)
	case x.t == F64 && to == F32:
		out.v = k.b.NewFPTrunc(v, t)
	case x.t.float():
		out.v = k.b.NewFPToSI(v, t)
	case to.float():
		out.v = k.b.NewSIToFP(v, t)
	case to == I64:
		out.v = k.b.NewSExt(v, t)
	default:
		out.v = k.b.NewTrunc(v, t)
	}
	return out
}

// Bits reinterprets f32 as i32 and back.
func (k *K) Bits(x V) V {
	to := map[Elem]Elem{F32: I32, I32: F32, F64: I64, I64: F64}[x.t]
	return V{t: to, uniform: x.uniform, v: k.b.NewBitCast(k.raw(x), k.typeOf(to, x.uniform))}
}

func (k *K) zero(t Elem) V {
	return V{t: t, uniform: true, v: constant.NewZeroInitializer(elemTypes[t])}
}

// Uniform reports whether x is the same for all lanes by construction.
func (x V) Uniform() bool { return x.uniform }

func (e Elem) String() string {
	return [...]string{"bool", "i32", "i64", "f32", "f64"}[e]
}

var _ fmt.Stringer = Elem(0)
