package emu

import (
	"math"
	"math/big"
	"math/bits"
)

// Division in steps: v_div_scale brings numerator and denominator into a range where
// Newton's iteration is exact, v_div_fmas undoes it in the last step, v_div_fixup puts
// in the special cases. They are right if LLVM's sequence of them gives the correctly
// rounded quotient, which a test asks.

func exponent32(x uint32) int { return int(x >> 23 & 0xff) }

func denormal32(x float64) bool { a := math.Abs(x); return a > 0 && a < 0x1p-126 }

// divScale32 scales s0, which is the denominator s1 or the numerator s2. The flag
// tells v_div_fmas to scale the quotient.
func divScale32(s0, s1, s2 float32) (float32, bool) {
	n, d := float64(s2), float64(s1)
	x, y := math.Float32bits(s2), math.Float32bits(s1)
	scale := func(by float64) float32 { return float32(float64(s0) * by) }
	denominator := math.Float32bits(s0) == y
	numerator := math.Float32bits(s0) == x
	switch {
	case n == 0 || d == 0:
		return math.Float32frombits(nan32), false
	case exponent32(x)-exponent32(y) >= 96: // the quotient is near the largest number
		if denominator {
			return scale(0x1p64), true
		}
		return s0, true
	case denormal32(d):
		return scale(0x1p64), false
	case denormal32(1/d) && denormal32(n/d):
		if denominator {
			return scale(0x1p-64), true
		}
		return s0, true
	case denormal32(1 / d):
		return scale(0x1p-64), false
	case denormal32(n / d):
		if numerator {
			return scale(0x1p64), true
		}
		return s0, true
	case exponent32(x) <= 23: // the numerator is tiny
		return scale(0x1p64), false
	}
	return s0, false
}

// divFmas32 is fma, times 2^64 or 2^-64 if the flag is set: the scale that brings the
// quotient c back. It is rounded once.
func divFmas32(a, b, c float32, flag bool) float32 {
	if !flag {
		return fma32(a, b, c)
	}
	p := float64(float64(a) * float64(b))
	s := roundOdd(p+float64(c), p, float64(c))
	if exponent32(math.Float32bits(c)) > 127 {
		return float32(s * 0x1p64)
	}
	return float32(s * 0x1p-64)
}

// divFixup32 is the quotient q of n and d with the special cases put in.
func divFixup32(q, d, n uint32) uint32 {
	sign := (n ^ d) & sign32
	an, ad := n&^sign32, d&^sign32
	switch {
	case isNaN32(n):
		return n | quiet32
	case isNaN32(d):
		return d | quiet32
	case an == 0 && ad == 0, an == inf32 && ad == inf32:
		return sign32 | nan32
	case ad == 0, an == inf32:
		return sign | inf32
	case ad == inf32, an == 0, exponent32(n)-exponent32(d) < -150:
		return sign
	case isNaN32(q):
		return sign | inf32
	}
	return sign | q&^sign32
}

// divFixupLoop is the loop of divFixup32: the quotient with the right sign, unless
// something is special.
func divFixupLoop(r, q, d, n *Vec) {
	for i := range r {
		q, d, n := q[i], d[i], n[i]
		en, ed := n>>23&0xff, d>>23&0xff
		if en-1 < 0xfe && ed-1 < 0xfe && en+150 >= ed && q&^sign32 <= inf32 {
			r[i] = (n^d)&sign32 | q&^sign32
		} else {
			r[i] = divFixup32(q, d, n)
		}
	}
}

// divScaleLoop is the loop of divScale32. Away from the ends of the range nothing is
// scaled.
func divScaleLoop(r, s, d, n *Vec) (flags uint64) {
	for i := range r {
		s, d, n := s[i], d[i], n[i]
		en, ed := n>>23&0xff, d>>23&0xff
		flags >>= 1
		if en-24 <= 254-24 && ed-1 <= 252-1 && en-ed+125 <= 125+95 {
			r[i] = s
			continue
		}
		x, flag := divScale32(math.Float32frombits(s), math.Float32frombits(d), math.Float32frombits(n))
		r[i] = math.Float32bits(x)
		flags |= uint64(b2u(flag)) << 63
	}
	return flags
}

// divFmasLoop is the loop of divFmas32.
func divFmasLoop(d, a, b, c *Vec, flags uint64) {
	fmaLoop(d, a, b, c)
	for m := flags; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m) & 63
		d[i] = math.Float32bits(divFmas32(math.Float32frombits(a[i]), math.Float32frombits(b[i]), math.Float32frombits(c[i]), true))
	}
}

// divFixup16 is divFixup32 of f16.
func divFixup16(q, d, n uint16) uint16 {
	const sign16, inf16 = 1 << 15, 0x7c00
	sign := (n ^ d) & sign16
	an, ad := n&^sign16, d&^sign16
	switch {
	case isNaN16(n):
		return n | quiet16
	case isNaN16(d):
		return d | quiet16
	case an == 0 && ad == 0, an == inf16 && ad == inf16:
		return 0xfe00
	case ad == 0, an == inf16:
		return sign | inf16
	case ad == inf16, an == 0:
		return sign
	}
	return sign | q&^sign16
}

func exponent64(x uint64) int { return int(x >> 52 & 0x7ff) }

func denormal64(x float64) bool { a := math.Abs(x); return a > 0 && a < 0x1p-1022 }

// divScale64 is divScale32 of f64; the scale is 2^128.
func divScale64(s0, s1, s2 float64) (float64, bool) {
	x, y := math.Float64bits(s2), math.Float64bits(s1)
	denominator := math.Float64bits(s0) == y
	numerator := math.Float64bits(s0) == x
	switch {
	case s2 == 0 || s1 == 0:
		return math.NaN(), false
	case exponent64(x)-exponent64(y) >= 768:
		if denominator {
			return s0 * 0x1p128, true
		}
		return s0, true
	case denormal64(s1):
		return s0 * 0x1p128, false
	case denormal64(1/s1) && denormal64(s2/s1):
		if denominator {
			return s0 * 0x1p-128, true
		}
		return s0, true
	case denormal64(1 / s1):
		return s0 * 0x1p-128, false
	case denormal64(s2 / s1):
		if numerator {
			return s0 * 0x1p128, true
		}
		return s0, true
	case exponent64(x) <= 53:
		return s0 * 0x1p128, false
	}
	return s0, false
}

// divFmas64 is divFmas32 of f64.
func divFmas64(a, b, c float64, flag bool) float64 {
	s := math.FMA(a, b, c)
	switch {
	case !flag:
		return s
	case exponent64(math.Float64bits(c)) > 1023:
		return s * 0x1p128
	case math.IsInf(s, 0) || s != s || s == 0 || math.Abs(s) >= 0x1p-890:
		return s * 0x1p-128
	}
	// The result may be a denormal: it must not be rounded before.
	exact := func(x float64) *big.Float { return new(big.Float).SetPrec(0).SetFloat64(x) }
	const enough = 4096 // digits
	sum := new(big.Float).SetPrec(enough).Mul(exact(a), exact(b))
	sum.Add(sum, exact(c))
	r, _ := sum.SetMantExp(sum, -128).Float64()
	return r
}

// divFixup64 is divFixup32 of f64.
func divFixup64(q, d, n uint64) uint64 {
	sign := (n ^ d) & sign64
	an, ad := n&^sign64, d&^sign64
	switch {
	case isNaN64(n):
		return n | quiet64
	case isNaN64(d):
		return d | quiet64
	case an == 0 && ad == 0, an == inf64 && ad == inf64:
		return sign64 | inf64 | quiet64
	case ad == 0, an == inf64:
		return sign | inf64
	case ad == inf64, an == 0, exponent64(n)-exponent64(d) < -1075:
		return sign
	case isNaN64(q):
		return sign | inf64
	}
	return sign | q&^sign64
}
