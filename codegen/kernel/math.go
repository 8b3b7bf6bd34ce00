package kernel

import (
	"math"
)

func (k *K) un(name string, x V) V {
	t := k.typeOf(x.t, x.uniform)
	return V{t: x.t, uniform: x.uniform, v: k.intrinsic("llvm."+name+"."+mangle(t), t, k.raw(x))}
}

// Abs is |x| of a float.
func (k *K) Abs(x V) V { return k.un("fabs", x) }

// Sqrt is correctly rounded.
func (k *K) Sqrt(x V) V { return k.un("sqrt", x) }

// Floor rounds down to an integer.
func (k *K) Floor(x V) V { return k.un("floor", x) }

// RoundEven rounds to the nearest integer, ties to even.
func (k *K) RoundEven(x V) V { return k.un("rint", x) }

// Min returns the smaller; y if x is NaN.
func (k *K) Min(x, y V) V { return k.Select(k.Cmp(LT, x, y), x, y) }

// Max returns the larger; y if x is NaN.
func (k *K) Max(x, y V) V { return k.Select(k.Cmp(GT, x, y), x, y) }

// MinNaN returns the smaller float, or NaN if either operand is NaN; -0 is below
// +0.
func (k *K) MinNaN(x, y V) V { return k.extreme("minimum", x, y) }

// MaxNaN returns the larger float, or NaN if either operand is NaN; -0 is below
// +0.
func (k *K) MaxNaN(x, y V) V { return k.extreme("maximum", x, y) }

func (k *K) extreme(name string, x, y V) V {
	a, b, out := k.pair(name, x, y)
	t := a.Type()
	out.v = k.intrinsic("llvm."+name+"."+mangle(t), t, a, b)
	return out
}

// Rsqrt is 1/sqrt(x), each step correctly rounded.
func (k *K) Rsqrt(x V) V { return k.Div(k.constLike(x, 1), k.Sqrt(x)) }

func (k *K) constLike(x V, c float64) V {
	if x.t == F64 {
		return k.Double(c)
	}
	return k.Float(c)
}

// polynomial evaluates c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
func (k *K) polynomial(x V, c ...float64) V {
	y := k.constLike(x, c[len(c)-1])
	for i := len(c) - 2; i >= 0; i-- {
		y = k.FMA(y, x, k.constLike(x, c[i]))
	}
	return y
}

// Exp is e^x in f32, within 2 ulp for normal results; results below 2^-126 are
// zero, NaN stays NaN.
func (k *K) Exp(x V) V {
	n := k.RoundEven(k.Mul(x, k.Float(math.Log2E)))
	n = k.Min(k.Max(n, k.Float(-126)), k.Float(128)) // keeps the shifts in range
	// ln2 in two parts: the first has few bits, so n*hi is exact.
	const hi, lo = 0.693359375, -2.12194440054690583e-4
	r := k.Sub(k.Sub(x, k.Mul(n, k.Float(hi))), k.Mul(n, k.Float(lo)))
	p := k.polynomial(r, 1, 1, 0.5, 1.0/6, 1.0/24, 1.0/120, 1.0/720, 1.0/5040)
	// 2^n in two halves: for the largest results it is no f32.
	whole := k.Convert(n, I32)
	half := k.AShr(whole, k.Int32(1))
	power := func(n V) V { return k.Bits(k.Shl(k.Add(n, k.Int32(127)), k.Int32(23))) }
	y := k.Mul(k.Mul(p, power(half)), power(k.Sub(whole, half)))
	y = k.Select(k.Cmp(LT, x, k.Float(-87.3365447)), k.Float(0), y)
	y = k.Select(k.Cmp(GT, x, k.Float(88.7228391)), k.Float(math.Inf(1)), y)
	return k.Select(k.Cmp(NE, x, x), x, y)
}

// Sigmoid is 1/(1+e^-x) in f32, within 3 ulp.
func (k *K) Sigmoid(x V) V {
	one := k.Float(1)
	return k.Div(one, k.Add(one, k.Exp(k.Sub(k.Float(0), x))))
}

// Log1p is ln(1+x) in f32 for x >= 0, computed in f64.
func (k *K) Log1p(x V) V {
	return k.Convert(k.Log1pD(k.Convert(x, F64)), F32)
}

// LogD is ln(x) in f64, within a few ulp: x = m 2^e with m in [sqrt(1/2), sqrt(2)),
// ln m = 2 atanh((m-1)/(m+1)) as a series. Zero gives -Inf, a negative number NaN.
func (k *K) LogD(x V) V {
	u := k.Bits(x)
	// Shift the exponent so that m comes out around 1.
	const half = 0x3FE6A09E667F3BCD // sqrt(1/2)
	e := k.AShr(k.Sub(u, k.Int(half)), k.Int(52))
	m := k.Bits(k.Sub(u, k.Shl(e, k.Int(52))))
	s := k.Div(k.Sub(m, k.Double(1)), k.Add(m, k.Double(1)))
	z := k.Mul(s, s)
	series := k.polynomial(z, 2, 2.0/3, 2.0/5, 2.0/7, 2.0/9, 2.0/11, 2.0/13, 2.0/15, 2.0/17, 2.0/19, 2.0/21)
	y := k.Add(k.Mul(k.Convert(e, F64), k.Double(math.Ln2)), k.Mul(s, series))
	y = k.Select(k.Cmp(EQ, x, k.Double(math.Inf(1))), x, y)
	y = k.Select(k.Cmp(EQ, x, k.Double(0)), k.Double(math.Inf(-1)), y)
	return k.Select(k.Cmp(GE, x, k.Double(0)), y, k.Double(math.NaN()))
}

// ExpD is e^x in f64, within a few ulp; results below 2^-1022 are zero.
func (k *K) ExpD(x V) V {
	n := k.RoundEven(k.Mul(x, k.Double(math.Log2E)))
	n = k.Min(k.Max(n, k.Double(-1022)), k.Double(1023))
	const hi, lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	r := k.Sub(k.Sub(x, k.Mul(n, k.Double(hi))), k.Mul(n, k.Double(lo)))
	c := make([]float64, 14)
	f := 1.0
	for i := range c {
		if i > 0 {
			f /= float64(i)
		}
		c[i] = f
	}
	y := k.polynomial(r, c...)
	scale := k.Bits(k.Shl(k.Add(k.Convert(n, I64), k.Int(1023)), k.Int(52)))
	y = k.Mul(y, scale)
	y = k.Select(k.Cmp(LT, x, k.Double(-708.39)), k.Double(0), y)
	y = k.Select(k.Cmp(GT, x, k.Double(709.78)), k.Double(math.Inf(1)), y)
	return k.Select(k.Cmp(NE, x, x), x, y)
}

// SinCosD is sin and cos in f64, to f32's precision and more, of an x that is an
// f32 number: NaN for infinities and NaN. Small angles are reduced by pi/2 in
// three parts, large ones with as many bits of 2/pi as they need.
func (k *K) SinCosD(x V) (sin, cos V) {
	const border = 1 << 20
	small := k.Cmp(LT, k.Abs(x), k.Double(border))
	near := k.Select(small, x, k.Double(0))
	n := k.RoundEven(k.Mul(near, k.Double(2/math.Pi)))
	const p1, p2, p3 = 1.57079632673412561417e+00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
	r := k.Sub(k.Sub(k.Sub(near, k.Mul(n, k.Double(p1))), k.Mul(n, k.Double(p2))), k.Mul(n, k.Double(p3)))
	r = k.Select(k.Cmp(EQ, near, k.Double(0)), near, r) // the sign of zero
	farQ, farR := k.reduceLarge(x)
	q := k.Select(small, k.Convert(n, I64), farQ)
	r = k.Select(small, r, farR)
	z := k.Mul(r, r)
	s := k.Mul(r, k.polynomial(z, 1, -1.0/6, 1.0/120, -1.0/5040, 1.0/362880, -1.0/39916800, 1.0/6227020800, -1.0/1307674368000))
	c := k.polynomial(z, 1, -0.5, 1.0/24, -1.0/720, 1.0/40320, -1.0/3628800, 1.0/479001600, -1.0/87178291200, 1.0/20922789888000)
	odd := k.Cmp(NE, k.And(q, k.Int(1)), k.Int(0))
	negSin := k.Cmp(NE, k.And(q, k.Int(2)), k.Int(0))
	negCos := k.Cmp(NE, k.And(k.Add(q, k.Int(1)), k.Int(2)), k.Int(0))
	sin, cos = k.Select(odd, c, s), k.Select(odd, s, c)
	finite := k.Cmp(LT, k.Abs(x), k.Double(math.Inf(1)))
	sign := func(flip, v V) V {
		return k.Select(finite, k.Select(flip, k.Neg(v), v), k.Double(math.NaN()))
	}
	return sign(negSin, sin), sign(negCos, cos)
}

// twoOverPi are the first bits of 2/pi = 0.1010..., 64 to a word, behind 10 zeros: 2
// bits for the quadrant, and 8 because reduceLarge counts exponents from -8.
var twoOverPi = [4]uint64{0x0028BE60DB939105, 0x4A7F09D5F47D4D37, 0x7036D8A5664F10E4, 0x107F9458EAF7AEF1}

// reduceLarge gives quadrant and rest of x = q pi/2 + r, |r| <= pi/4, for an f32
// number of at least 2^16, exact to 2^-60 or so. x is m 2^e with a whole 24-bit
// m; the product of m and the bits of 2/pi from 2^(2-e) down is x 2/pi but for
// whole turns, in fixed point with 62 bits behind the point.
func (k *K) reduceLarge(x V) (q, r V) {
	u := k.Convert(k.Bits(k.Convert(x, F32)), I64)
	m := k.Or(k.And(u, k.Int(0x7FFFFF)), k.Int(0x800000))
	at := k.Sub(k.And(k.LShr(u, k.Int(23)), k.Int(0xFF)), k.Int(150-8)) // e + 8
	at = k.Select(k.Cmp(LT, at, k.Int(0)), k.Int(0), at)                // smaller x: of no use, but in range
	second := k.Cmp(GE, at, k.Int(64))
	shift := k.And(at, k.Int(63))
	word := func(i int) V {
		return k.Select(second, k.Int(int(twoOverPi[i+1])), k.Int(int(twoOverPi[i])))
	}
	window := func(hi, lo V) V { // two shifts, since one by 64 would be undefined
		return k.Or(k.Shl(hi, shift), k.LShr(k.LShr(lo, k.Int(1)), k.Sub(k.Int(63), shift)))
	}
	a, b, c := word(0), word(1), word(2)
	high, low := window(a, b), window(b, c)
	// 2^64 wraps whole turns away. Of low its upper half is enough.
	p := k.Add(k.Mul(m, high), k.LShr(k.Mul(m, k.LShr(low, k.Int(32))), k.Int(32)))
	q = k.LShr(k.Add(p, k.Int(1<<61)), k.Int(62))
	rest := k.Convert(k.Sub(p, k.Shl(q, k.Int(62))), F64)
	r = k.Mul(rest, k.Double(math.Pi/2*0x1p-62))
	negative := k.Cmp(LT, x, k.Double(0))
	return k.Select(negative, k.Sub(k.Int(0), q), q), k.Select(negative, k.Neg(r), r)
}

// Float reports whether x is a float.
func (x V) Float() bool { return x.t.float() }

// ZeroLike is a uniform zero of x's type.
func (k *K) ZeroLike(x V) V { return k.zero(x.t) }

// Neg flips the sign of a float, of zero and NaN too.
func (k *K) Neg(x V) V {
	return V{t: x.t, uniform: x.uniform, v: k.b.NewFNeg(k.raw(x))}
}

// FloorDiv rounds the quotient of integers down. The quotient by 0, and of the
// smallest number by -1, is some number: a CPU would stop the process there, and
// lanes that do not act divide too.
func (k *K) FloorDiv(x, y V) V {
	one := k.one(x.t)
	minus := k.Cmp(EQ, y, k.Sub(k.zero(x.t), one))
	safe := k.Select(k.Or(minus, k.Cmp(EQ, y, k.zero(x.t))), one, y)
	q := k.Div(x, safe)
	r := k.Sub(x, k.Mul(q, safe))
	wrong := k.And(k.Cmp(NE, r, k.zero(x.t)), k.Cmp(LT, k.Xor(r, safe), k.zero(x.t)))
	return k.Select(minus, k.Sub(k.zero(x.t), x), k.Select(wrong, k.Sub(q, one), q))
}

func (k *K) one(t Elem) V {
	if t == I64 {
		return k.Int(1)
	}
	return k.Int32(1)
}

// Log1pD is ln(1+x) in f64: with u = 1+x rounded, ln(u) * x/(u-1) corrects what
// the addition lost (Kahan); x itself where u is 1.
func (k *K) Log1pD(x V) V {
	one := k.Double(1)
	u := k.Add(one, x)
	d := k.Sub(u, one)
	y := k.Mul(k.LogD(u), k.Div(x, d))
	y = k.Select(k.Cmp(EQ, d, k.Double(0)), x, y)
	return k.Select(k.Cmp(EQ, x, k.Double(math.Inf(1))), x, y)
}
