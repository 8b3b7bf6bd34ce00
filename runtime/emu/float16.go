package emu

import (
	"math"

	"github.com/kiln-project/kiln/ir/num"
)

// Functions of f16 for the generated loops; a half is the low 16 bits of a word.

// fromHalf is the value of a half.
func fromHalf(h uint32) float32 {
	// As an f32 of the same digits it is 2^-112 of its value; denormals come out right
	// by the multiplication.
	x := math.Float32bits(math.Float32frombits(h&0x7fff<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 {
		x |= inf32
	}
	return math.Float32frombits(x | h&0x8000<<16)
}

// toHalf rounds to the nearest half, ties to even. A NaN becomes quiet.
func toHalf(x float32) uint32 {
	h := uint32(num.F16Bits(x))
	if h&0x7fff > 0x7c00 {
		h |= quiet16
	}
	return h
}

// halfOf rounds an f64 to the nearest half in one step.
func halfOf(x float64) uint16 { return uint16(toHalf(num.RoundF16F64(x))) }

// fma16 is a*b + c with one rounding.
func fma16(a, b, c float32) uint16 {
	p := float64(float64(a) * float64(b))
	s := p + float64(c)
	return halfOf(roundOdd(s, p, float64(c)))
}

const quiet16 = 1 << 9

func isNaN16(x uint16) bool { return x&0x7fff > 0x7c00 }

// max16 and min16 are max32 and min32 of f16.
func max16(a, b uint16) uint16 { return pick16(a, b, max32) }

func min16(a, b uint16) uint16 { return pick16(a, b, min32) }

func pick16(a, b uint16, pick func(a, b float32) uint32) uint16 {
	switch {
	case isNaN16(a) && a&quiet16 == 0:
		return a | quiet16
	case isNaN16(b) && b&quiet16 == 0:
		return b | quiet16
	case isNaN16(a):
		return b
	case isNaN16(b):
		return a
	}
	return uint16(toHalf(math.Float32frombits(pick(fromHalf(uint32(a)), fromHalf(uint32(b))))))
}

// med16 is the middle one; the least if one is a NaN.
func med16(a, b, c uint16) uint16 {
	if isNaN16(a) || isNaN16(b) || isNaN16(c) {
		return min16(min16(a, b), c)
	}
	return max16(min16(a, b), min16(max16(a, b), c))
}

func fract16(a float32) uint16 {
	r := halfOf(float64(a) - math.Floor(float64(a)))
	if r == 0x3c00 {
		return 0x3bff
	}
	return r
}
