package num

import (
	"math"
	"math/bits"
)

// Special e8m0 bytes.
const (
	// ScaleNaN is the only e8m0 byte that is not a number.
	ScaleNaN byte = 255
	// scaleMin is the value of e8m0 byte 0, 2^-127: a subnormal float32, not zero.
	scaleMin = 1.0 / (1 << 127)
)

// FromE8M0 returns 2^(b-127), or NaN for byte 255.
func FromE8M0(b byte) float32 {
	switch b {
	case 0:
		return scaleMin
	case ScaleNaN:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << f32ManBits)
}

// E8M0 returns the e8m0 byte of x, which must be a power of two from 2^-127 to
// 2^127, or NaN (ScaleNaN, true). All else, e8m0 having neither zero, sign nor
// infinity, returns (ScaleNaN, false).
func E8M0(x float32) (byte, bool) {
	b := math.Float32bits(x)
	switch {
	case b&^f32Sign > f32Inf:
		return ScaleNaN, true
	case x == scaleMin:
		return 0, true
	case b&f32ManMask != 0 || b == 0 || b >= f32Inf: // the last holds for every negative x too
		return ScaleNaN, false
	}
	return byte(b >> f32ManBits), true
}

// Pow2Ceil returns the smallest power of two that is at least x, read off the
// bit pattern. Above 2^127 that is +Inf. Zero, negative numbers, infinities and
// NaN have no such power and are returned as they are.
func Pow2Ceil(x float32) float32 {
	b := math.Float32bits(x)
	switch e := b >> f32ManBits; {
	case b == 0 || b >= f32Inf || b&f32ManMask == 0:
		return x
	case e == 0:
		return math.Float32frombits(1 << bits.Len32(b-1)) // subnormals count in units of 2^-149
	default:
		return math.Float32frombits((e + 1) << f32ManBits)
	}
}

// Floors of the block maximum in the dynamic quantisation of activations. They
// keep the scale of an all-zero block a normal number.
const (
	// FloorE4M3 is the floor of the fp8 blocks; the smallest scale is 2^-22.
	FloorE4M3 float32 = 1e-4
	// FloorE2M1 is the floor of the fp4 blocks; the smallest scale is 2^-126.
	FloorE2M1 float32 = 6.0 / (1 << 126)
)

// QuantizeBlock quantises one block x to format f with a dynamic power-of-two
// scale, and returns the scale's e8m0 byte:
//
//	a = max(amax|x|, floor)
//	t = f32(a * f32(1/Max))
//	s = the smallest power of two >= t
//	codes[i] = Encode(clamp(x[i]/s, ±Max))
//
// codes must be at least as long as x and gets one code per byte, fp4 included.
// If any x is NaN or infinite (or f is not Valid, or floor is not finite) no
// finite scale exists: the scale is ScaleNaN and the codes are 0, so that the
// whole block decodes to NaN instead of hiding the fault. Scales below 2^-127,
// possible only with a floor below FloorE2M1, are raised to it.
func QuantizeBlock(codes []byte, x []float32, f Format, floor float32) (scale byte) {
	codes = codes[:len(x)]
	a := floor
	for _, v := range x {
		a = max(a, float32(math.Abs(float64(v)))) // max passes NaN on
	}
	if !f.Valid() || !(a <= math.MaxFloat32) {
		clear(codes)
		return ScaleNaN
	}
	sp := &specs[f]
	inv := 1 / sp.max
	s := max(Pow2Ceil(a*inv), scaleMin)
	scale, _ = E8M0(s) // a power of two from 2^-127 to 2^126 by construction
	recip := 1 / s     // exact, so the product rounds as the quotient does
	for i, v := range x {
		codes[i] = sp.encode(v * recip)
	}
	return scale
}
