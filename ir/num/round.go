package num

import "math"

// Fields of a float32.
const (
	f32ManBits = 23
	f32Bias    = 127
	f32Sign    = 1 << 31
	f32Inf     = 0xFF << f32ManBits
	f32ManMask = 1<<f32ManBits - 1
)

// shiftRNE returns m / 2^n rounded to the nearest integer, ties to even.
// n is at least 1; m has at most 31 significant bits.
func shiftRNE(m uint32, n uint) uint32 {
	if n > 31 {
		// m is below 2^31, so less than half of one unit.
		return 0
	}
	return (m + 1<<(n-1) - 1 + m>>n&1) >> n
}

// encodeMagnitude rounds a finite magnitude to a small IEEE-like format with
// man mantissa bits and the given exponent bias, subnormals included, and
// returns exponent and mantissa fields packed next to each other. a is a
// float32 bit pattern with the sign cleared. A carry out of the mantissa moves
// into the exponent, which is the right result; the caller has clamped a, or
// handles a field that ran past its maximum.
func encodeMagnitude(a uint32, man, bias uint) uint32 {
	drop := f32ManBits - man
	minNormal := uint32(f32Bias - bias + 1) // float32 exponent field of the smallest normal
	e := a >> f32ManBits
	if e >= minNormal {
		return shiftRNE(a-(minNormal-1)<<f32ManBits, drop)
	}
	m := a & f32ManMask
	if e == 0 {
		e = 1 // float32 subnormals share the exponent of the first normals
	} else {
		m |= 1 << f32ManBits
	}
	return shiftRNE(m, drop+uint(minNormal-e))
}

// roundOdd narrows x to float32 by truncation, setting the lowest mantissa bit
// if anything was cut off. float32 keeps at least two bits more than bf16 and
// half at every magnitude, so rounding the result to nearest even afterwards
// equals rounding x directly; converting with float32(x) first would round
// twice and move values that land on a tie.
func roundOdd(x float64) float32 {
	f := float32(x)
	wide := float64(f)
	if wide == x || x != x {
		return f
	}
	b := math.Float32bits(f)
	if math.Abs(wide) > math.Abs(x) {
		b-- // one step towards zero; from infinity to the largest finite value
	}
	return math.Float32frombits(b | 1)
}
