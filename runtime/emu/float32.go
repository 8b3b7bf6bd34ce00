package emu

import "math"

// Functions of f32 for the generated loops. The float mode is that of Kernel.check:
// denormals are kept, IEEE mode is on. Which NaN an operation makes is up to Go's
// compiler: the ISA documents do not say either.

// fma32 is a*b + c with one rounding. The product is exact in f64, the sum may be
// rounded there; that changes the result only if it fell on the middle between two
// f32, or if the result is a denormal, whose middles have other bits.
func fma32(a, b, c float32) float32 {
	p := float64(float64(a) * float64(b))
	s := p + float64(c)
	if doubtful(s) {
		return float32(roundOdd(s, p, float64(c)))
	}
	return float32(s)
}

// doubtful tells whether rounding s once more may differ from rounding it once.
func doubtful(s float64) bool {
	r := math.Float64bits(s)
	return r&(1<<29-1) == 1<<28 || r<<1-1 < 0x381<<53-1
}

// fmaLoop is the loop of fma32.
func fmaLoop(d, a, b, c *Vec) {
	fd, fa, fb, fc := floats(d), floats(a), floats(b), floats(c)
	_, _, _, _ = fd[0], fa[0], fb[0], fc[0]
	for i := range fd {
		z := float64(fc[i])
		p := float64(float64(fa[i]) * float64(fb[i]))
		s := p + z
		if doubtful(s) {
			s = roundOdd(s, p, z)
		}
		fd[i] = float32(s)
	}
}

// roundOdd corrects s, the rounded sum p + c, to round-to-odd: the exact sum cut off,
// with the last bit set if something was cut. Rounded to a format that is two digits
// shorter, this gives what the exact sum gives.
func roundOdd(s, p, c float64) float64 {
	if math.IsInf(s, 0) || s != s {
		return s
	}
	// The error of the sum is exact (Knuth's two-sum).
	t := s - p
	e := (p - (s - t)) + (c - t)
	if e == 0 {
		return s
	}
	r := math.Float64bits(s)
	if math.Signbit(e) != math.Signbit(s) {
		r--
	}
	return math.Float64frombits(r | 1)
}

const (
	quiet32 = 1 << 22
	nan32   = 0x7fc00000
	inf32   = 0x7f800000
	sign32  = 1 << 31
)

// max32 and min32 are v_max_f32 and v_min_f32 in IEEE mode: a quiet NaN loses against
// a number, a signaling NaN wins and becomes quiet; -0 is less than 0.
func max32(a, b float32) uint32 {
	if r := max(a, b); r == r {
		return math.Float32bits(r)
	}
	return numberOr32(math.Float32bits(a), math.Float32bits(b))
}

func min32(a, b float32) uint32 {
	if r := min(a, b); r == r {
		return math.Float32bits(r)
	}
	return numberOr32(math.Float32bits(a), math.Float32bits(b))
}

// numberOr32 is the result of max or min if one of x and y is a NaN.
func numberOr32(x, y uint32) uint32 {
	switch {
	case signaling32(x):
		return x | quiet32
	case signaling32(y):
		return y | quiet32
	case isNaN32(x):
		return y
	}
	return x
}

func isNaN32(x uint32) bool { return x&^sign32 > inf32 }

func signaling32(x uint32) bool { return isNaN32(x) && x&quiet32 == 0 }

// med32 is the middle one; the least if one is a NaN.
func med32(a, b, c float32) uint32 {
	if r := max(min(a, b), min(max(a, b), c)); r == r {
		return math.Float32bits(r)
	}
	return min32(math.Float32frombits(min32(a, b)), c)
}

// mulLegacy has 0 * x = 0 for every x, infinities and NaNs included.
func mulLegacy(a, b float32) float32 {
	if a == 0 || b == 0 {
		return 0
	}
	return a * b
}

// fract32 is a - floor(a), less than 1 even where the difference rounds up to it.
func fract32(a float32) float32 {
	r := float32(float64(a) - math.Floor(float64(a)))
	if r >= 1 {
		return math.Float32frombits(0x3f7fffff)
	}
	return r
}

func fract64(a float64) float64 {
	r := a - math.Floor(a)
	if r >= 1 {
		return math.Float64frombits(0x3fefffff_ffffffff)
	}
	return r
}

// ldexp32 is a * 2^n, rounded once.
func ldexp32(a float32, n int32) float32 {
	// Beyond these the result is 0 or infinite whatever a is.
	return float32(math.Ldexp(float64(a), int(min(max(n, -400), 400))))
}

func frexpMant32(a float32) float32 {
	m, _ := math.Frexp(float64(a))
	return float32(m)
}

func frexpMant64(a float64) float64 {
	m, _ := math.Frexp(a)
	return m
}

// frexpExp is 0 for zeros, infinities and NaNs.
func frexpExp(a float64) int32 {
	if math.IsInf(a, 0) || a != a {
		return 0
	}
	_, e := math.Frexp(a)
	return int32(e)
}

const (
	quiet64 = 1 << 51
	inf64   = 0x7ff00000_00000000
	sign64  = 1 << 63
)

// max64 and min64 are max32 and min32 of f64.
func max64(a, b float64) uint64 {
	if r := max(a, b); r == r {
		return math.Float64bits(r)
	}
	return numberOr64(math.Float64bits(a), math.Float64bits(b))
}

func min64(a, b float64) uint64 {
	if r := min(a, b); r == r {
		return math.Float64bits(r)
	}
	return numberOr64(math.Float64bits(a), math.Float64bits(b))
}

func numberOr64(x, y uint64) uint64 {
	switch {
	case signaling64(x):
		return x | quiet64
	case signaling64(y):
		return y | quiet64
	case isNaN64(x):
		return y
	}
	return x
}

func isNaN64(x uint64) bool { return x&^sign64 > inf64 }

func signaling64(x uint64) bool { return isNaN64(x) && x&quiet64 == 0 }
