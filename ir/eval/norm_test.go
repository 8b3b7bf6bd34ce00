package eval

import (
	"math"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// The references of composite ops are the formulas of the model's specification
// in float64, with r32 where an f32 value is kept and r16 where the text rounds
// to bf16. Sums are exact to float64 before their one rounding.

// invRMSRef is 1/sqrt(mean(x^2) + eps), f32.
func invRMSRef(x []float64, eps float64) float64 {
	mean := r32(r32(dotOf(x, x)) / float64(len(x)))
	return r32(1 / math.Sqrt(r32(mean+r32(eps))))
}

// rmsNormRef is b(w * (x * inv)) of one row.
func rmsNormRef(x, w []float64, eps float64) []float64 {
	inv := invRMSRef(x, eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = r16(r32(w[i] * r32(v*inv)))
	}
	return y
}

func rmsNormProp(t *rapid.T) {
	d := rapid.SampledFrom([]int{1, 2, 7, 64, 129}).Draw(t, "D")
	x := drawNormal(t, ir.BF16, append(drawShape(t, 0, 2), d)...)
	w := drawNormal(t, ir.BF16, d)
	eps := rapid.SampledFrom([]float64{0, 1e-6, 0.5}).Draw(t, "eps")
	for i := range x.F {
		if x.F[i] == 0 {
			x.F[i] = 1 // a zero row without eps has no norm
		}
	}
	v, wv := floats(x), floats(w)
	var want []float64
	for row := 0; row < len(v); row += d {
		want = append(want, rmsNormRef(v[row:row+d], wv, eps)...)
	}
	got := apply1(t, "rms_norm", ir.A("eps", eps), x, w)
	wantShape(t, "rms_norm", got, ir.BF16, x.Shape...)
	wantFloats(t, "rms_norm", got, want)
}

// headNormProp: u = b(mean_f32(b(q^2))), s = b(1/sqrt(b(u + eps))), b(q*s).
// headNormRef is head_rms_norm of one row: every step rounded to bf16.
func headNormRef(x []float64, eps float64) []float64 {
	squares := make([]float64, len(x))
	for i, a := range x {
		squares[i] = r16(a * a)
	}
	u := r16(r32(r32(sumOf(squares)) / float64(len(x))))
	s := r16(r32(1 / math.Sqrt(r16(r32(u+r32(eps))))))
	y := make([]float64, len(x))
	for i, a := range x {
		y[i] = r16(a * s)
	}
	return y
}

func headNormProp(t *rapid.T) {
	d := rapid.SampledFrom([]int{1, 3, 64, 128}).Draw(t, "D")
	shape := append(drawShape(t, 2, 2), d)
	x := drawNormal(t, ir.BF16, shape...)
	eps := rapid.SampledFrom([]float64{1e-6, 0.1}).Draw(t, "eps")
	v := floats(x)
	var want []float64
	for row := 0; row < len(v); row += d {
		want = append(want, headNormRef(v[row:row+d], eps)...)
	}
	got := apply1(t, "head_rms_norm", ir.A("eps", eps), x)
	wantShape(t, "head_rms_norm", got, ir.BF16, shape...)
	wantFloats(t, "head_rms_norm", got, want)
}
