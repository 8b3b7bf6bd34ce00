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

// exp32 is 2^x.
func exp32(x float32) float32 {
	if !(x > -127 && x < 128) {
		return flush32(float32(math.Exp2(float64(x)))) // 0, an infinity or NaN, or just a denormal
	}
	// 2^x = 2^(k/64) * 2^r, the former from a table, the latter, with |r| <= 1/128, by
	// a polynomial. Adding the constant leaves k in the low bits.
	const round = 3 << (51 - 6)
	t := float64(x) + round
	k := int64(math.Float64bits(t)) << 12 >> 12
	r := (float64(x) - (t - round)) * math.Ln2
	p := float64(r*(1.0/24)) + 1.0/6
	p = float64(p*r) + 1.0/2
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return flush32(float32(float64(p*exp2Table[k&63]) * math.Float64frombits(uint64(1023+k>>6)<<52)))
}

// exp2Table are the values 2^(i/64).
var exp2Table = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()

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
