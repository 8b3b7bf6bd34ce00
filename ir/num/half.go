package num

import "math"

// RoundBF16 rounds x to the nearest bfloat16 value, ties to even. Magnitudes
// past the largest finite bf16 become infinite; NaN stays NaN.
func RoundBF16(x float32) float32 { return FromBF16(BF16Bits(x)) }

// RoundBF16F64 rounds x to the nearest bfloat16 value in a single step, without
// passing through float32.
func RoundBF16F64(x float64) float32 { return RoundBF16(roundOdd(x)) }

// BF16Bits returns the bfloat16 pattern nearest to x, ties to even. A NaN keeps
// its sign and the upper part of its payload.
func BF16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if b&^f32Sign > f32Inf {
		h := uint16(b >> 16)
		if h&0x7F == 0 {
			h |= 0x40 // a payload only in the low half would turn into infinity
		}
		return h
	}
	return uint16((b + 0x7FFF + b>>16&1) >> 16)
}

// FromBF16 returns the value of a bfloat16 pattern; the conversion is exact.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// Fields of an IEEE half.
const (
	f16ManBits = 10
	f16Bias    = 15
	f16Inf     = 0x7C00
	f16ManMask = 1<<f16ManBits - 1
)

// RoundF16 rounds x to the nearest IEEE half value, ties to even. Magnitudes of
// 65520 and above become infinite; NaN stays NaN.
func RoundF16(x float32) float32 { return FromF16(F16Bits(x)) }

// RoundF16F64 rounds x to the nearest IEEE half value in a single step, without
// passing through float32.
func RoundF16F64(x float64) float32 { return RoundF16(roundOdd(x)) }

// F16Bits returns the IEEE half pattern nearest to x, ties to even, subnormals
// included. A NaN keeps its sign and the upper part of its payload.
func F16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	a := b &^ f32Sign
	sign := uint16(b >> 16 & 0x8000)
	if a > f32Inf {
		m := uint16(a >> (f32ManBits - f16ManBits) & f16ManMask)
		if m == 0 {
			m = 1 << (f16ManBits - 1) // an empty payload would read as infinity
		}
		return sign | f16Inf | m
	}
	// 2^16 rounds to exactly the infinity pattern, and so must all above it.
	return sign | uint16(encodeMagnitude(min(a, (f32Bias+16)<<f32ManBits), f16ManBits, f16Bias))
}

// FromF16 returns the value of an IEEE half pattern; the conversion is exact.
func FromF16(b uint16) float32 {
	sign := uint32(b&0x8000) << 16
	e := uint32(b) >> f16ManBits & 0x1F
	m := uint32(b & f16ManMask)
	const widen = f32ManBits - f16ManBits
	switch e {
	case 0:
		const step = 1.0 / (1 << (f16Bias - 1 + f16ManBits)) // value of one subnormal unit
		return math.Float32frombits(math.Float32bits(float32(m)*step) | sign)
	case 0x1F:
		return math.Float32frombits(sign | f32Inf | m<<widen)
	}
	return math.Float32frombits(sign | (e+f32Bias-f16Bias)<<f32ManBits | m<<widen)
}
