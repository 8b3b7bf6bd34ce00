package emu

import (
	"math"
)

// Conversions for the generated loops. Those to integers cut off and saturate; NaN
// gives 0.

func toI32(x float64) uint32 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x <= math.MinInt32:
		return 1 << 31
	}
	return uint32(int32(x))
}

func toU32(x float64) uint32 {
	switch {
	case x != x || x <= 0:
		return 0
	case x >= math.MaxUint32:
		return math.MaxUint32
	}
	return uint32(int64(x))
}

func toI16(x float32) uint16 {
	if x != x {
		return 0
	}
	return uint16(int16(min(max(x, math.MinInt16), math.MaxInt16)))
}

func toU16(x float32) uint16 {
	if x != x {
		return 0
	}
	return uint16(min(max(x, 0), math.MaxUint16))
}

// toBF16 rounds the bits of an f32 to the nearest bf16, ties to even. A NaN becomes
// quiet.
func toBF16(x uint32) uint32 {
	if isNaN32(x) {
		return x>>16 | 1<<6
	}
	return (x + 0x7fff + x>>16&1) >> 16
}

// toHalfTowardZero cuts off; what is too large is the largest half, only an infinity
// stays one.
func toHalfTowardZero(x float32) uint32 {
	h := toHalf(x)
	if back := fromHalf(h); math.Abs(float64(back)) > math.Abs(float64(x)) {
		h-- // one step towards zero
	}
	return h
}
