package emu

import "math"

// Transcendental functions of f32: evaluated in f64 and rounded to f32. The hardware
// is allowed an error of about one unit in the last place, so it may differ there.
// They flush denormals, of the source and of the result, in every mode: LLVM scales
// around them wherever a denormal counts.

func flush32(x float32) float32 {
	b := math.Float32bits(x)
	if b&inf32 == 0 {
		return math.Float32frombits(b & sign32)
	}
	return x
}

func rcp32(x float32) float32 { return flush32(1 / flush32(x)) }

func rsq32(x float32) float32 { return float32(1 / math.Sqrt(float64(flush32(x)))) }

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(flush32(x)))) }

func exp32(x float32) float32 { return flush32(float32(math.Exp2(float64(flush32(x))))) }

func log32(x float32) float32 { return float32(math.Log2(float64(flush32(x)))) }

// sin32 and cos32 take their argument in turns.
func sin32(x float32) float32 { return float32(sinTurns(float64(flush32(x)))) }

func cos32(x float32) float32 { return float32(cosTurns(float64(flush32(x)))) }

func sinTurns(x float64) float64 {
	_, f := math.Modf(x)
	return math.Sin(2 * math.Pi * f)
}

func cosTurns(x float64) float64 {
	_, f := math.Modf(x)
	return math.Cos(2 * math.Pi * f)
}
