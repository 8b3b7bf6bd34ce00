package eval

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// ropePlan is one set of rope attributes.
type ropePlan struct {
	dim                      int
	base                     float64
	orig                     int // 0: no YaRN
	factor, betaFast, betaSl float64
}

func (p ropePlan) attrs() ir.Attrs {
	return ir.A("dim", p.dim, "base", p.base, "orig", p.orig, "factor", p.factor, "beta_fast", p.betaFast, "beta_slow", p.betaSl)
}

// freqs are the frequencies by section 6 of the specification, with round
// wherever the golden run keeps an f32.
func (p ropePlan) freqs(round func(float64) float64) []float64 {
	f := make([]float64, p.dim/2)
	for i := range f {
		f[i] = round(1 / round(math.Pow(p.base, round(float64(2*i)/float64(p.dim)))))
	}
	if p.orig == 0 {
		return f
	}
	lo, hi := p.ramp()
	if lo == hi {
		hi += 0.001
	}
	for i := range f {
		ramp := round(round(float64(i)-lo) * round(1/round(hi-lo)))
		ramp = math.Max(0, math.Min(1, ramp))
		keep := round(1 - ramp)
		f[i] = round(round(round(f[i]/p.factor)*round(1-keep)) + round(f[i]*keep))
	}
	return f
}

func (p ropePlan) ramp() (lo, hi float64) {
	corr := func(turns float64) float64 {
		return float64(p.dim) * math.Log(float64(p.orig)/(turns*2*math.Pi)) / (2 * math.Log(p.base))
	}
	return math.Max(math.Floor(corr(p.betaFast)), 0), math.Min(math.Ceil(corr(p.betaSl)), float64(p.dim-1))
}

func exactly(x float64) float64 { return x }

func drawPlan(t *rapid.T) ropePlan {
	p := ropePlan{2 * rapid.IntRange(1, 32).Draw(t, "half"), rapid.SampledFrom([]float64{10000, 160000, 7.5}).Draw(t, "base"), 0, 1, 32, 1}
	if rapid.Bool().Draw(t, "yarn") {
		p.orig = rapid.SampledFrom([]int{64, 1024, 65536}).Draw(t, "orig")
		p.factor = rapid.SampledFrom([]float64{1, 4, 16, 2.5}).Draw(t, "factor")
		p.betaSl = rapid.SampledFrom([]float64{1, 2, 32}).Draw(t, "slow")
	}
	return p
}

func ropeFreqsProp(t *rapid.T) {
	p := drawPlan(t)
	got := apply1(t, "rope_freqs", p.attrs())
	wantShape(t, "rope_freqs", got, ir.F32, p.dim/2)
	wantFloats(t, "rope_freqs", got, p.freqs(r32))
}

var (
	plainPlan = ropePlan{64, 10000, 0, 1, 32, 1}
	largePlan = ropePlan{64, 160000, 65536, 16, 32, 1} // Flash, Pro
	tinyPlan  = ropePlan{64, 160000, 1024, 4, 32, 1}
)

// The table of section 6, as printed there.
func TestRopePlanTable(t *testing.T) {
	for _, c := range []struct {
		name   string
		plan   ropePlan
		lo, hi float64
		f      map[int]float64
	}{
		{"plain", plainPlan, 0, 0, map[int]float64{0: 1, 8: 1e-1, 15: 1.333521e-2, 16: 1e-2, 20: 3.162278e-3, 24: 1e-3, 25: 7.498942e-4, 31: 1.333521e-4}},
		{"large", largePlan, 15, 25, map[int]float64{0: 1, 8: 5e-2, 15: 3.635539e-3, 16: 2.265625e-3, 20: 2.969778e-4, 24: 1.953125e-5, 25: 5.372313e-6, 31: 5.680529e-7}},
		{"tiny", tinyPlan, 4, 14, map[int]float64{4: 2.236068e-1, 8: 3.5e-2, 12: 4.472136e-3, 14: 1.321714e-3, 31: 2.272212e-6}},
	} {
		got := floats(apply1(t, "rope_freqs", c.plan.attrs()))
		for i, want := range c.f {
			if math.Abs(got[i]-want) > 7e-7*want { // seven digits, and the ramp's 6e-7
				t.Errorf("%s: f_%d is %.7g, want %.7g", c.name, i, got[i], want)
			}
		}
		for i, want := range c.plan.freqs(exactly) {
			if math.Abs(got[i]-want) > 1e-6*want {
				t.Errorf("%s: f_%d is %.9g, in float64 %.9g", c.name, i, got[i], want)
			}
		}
		if c.plan.orig == 0 {
			continue
		}
		if lo, hi := c.plan.ramp(); lo != c.lo || hi != c.hi {
			t.Errorf("%s: the test's ramp is %v..%v, want %v..%v", c.name, lo, hi, c.lo, c.hi)
		}
	}
}

// cisRef is cos and sin of f32(p * f_i).
func cisRef(p int, freqs []float64) (cos, sin []float64) {
	for _, f := range freqs {
		angle := r32(float64(p) * f)
		cos, sin = append(cos, r32(math.Cos(angle))), append(sin, r32(math.Sin(angle)))
	}
	return cos, sin
}

func freqsCisProp(t *rapid.T) {
	p := drawPlan(t)
	n := rapid.IntRange(1, 40).Draw(t, "len")
	got, err := apply(t, "freqs_cis", append(ir.A("len", n), p.attrs()...))
	if err != nil {
		t.Fatal(err)
	}
	var cos, sin []float64
	for pos := range n {
		c, s := cisRef(pos, p.freqs(r32))
		cos, sin = append(cos, c...), append(sin, s...)
	}
	for i, want := range [][]float64{cos, sin} {
		wantShape(t, "freqs_cis", got[i], ir.F32, n, p.dim/2)
		wantFloats(t, "freqs_cis", got[i], want)
	}
}

func TestFreqsCisPositions(t *testing.T) {
	const n = 65536
	for name, p := range map[string]ropePlan{"plain": plainPlan, "large": largePlan} {
		got, err := apply(t, "freqs_cis", append(ir.A("len", n), p.attrs()...))
		if err != nil {
			t.Fatal(err)
		}
		half := p.dim / 2
		for _, pos := range []int{0, 1, 127, n - 1} {
			cos, sin := cisRef(pos, p.freqs(r32))
			for i, want := range [][]float64{cos, sin} {
				row := f32s(got[i].F[pos*half:(pos+1)*half], half)
				wantFloats(t, fmt.Sprintf("%s plan, position %d", name, pos), row, want)
			}
		}
	}
	// Position 0 does not rotate; position 1 rotates pair 0 by one radian.
	got, err := apply(t, "freqs_cis", append(ir.A("len", 2), plainPlan.attrs()...))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 32 {
		if got[0].F[i] != 1 || got[1].F[i] != 0 {
			t.Errorf("position 0, pair %d: cos %v, sin %v", i, got[0].F[i], got[1].F[i])
		}
	}
	if c, s := got[0].F[32], got[1].F[32]; c != 0.5403023 || s != 0.84147096 {
		t.Errorf("position 1, pair 0: cos %v, sin %v", c, s)
	}
}

// ropeRef rotates the interleaved pairs at the end of one vector.
func ropeRef(x, cos, sin []float64, inverse bool) []float64 {
	y := append([]float64{}, x...)
	start := len(x) - 2*len(cos)
	for i, c := range cos {
		s := sin[i]
		if inverse {
			s = -s
		}
		a, b := x[start+2*i], x[start+2*i+1]
		y[start+2*i] = r16(r32(r32(a*c) - r32(b*s)))
		y[start+2*i+1] = r16(r32(r32(a*s) + r32(b*c)))
	}
	return y
}

func ropeProp(t *rapid.T) {
	pairs := rapid.IntRange(1, 5).Draw(t, "pairs")
	d := 2*pairs + rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "rest")
	shape := append(drawShape(t, 1, 3), d)
	x := drawNormal(t, ir.BF16, shape...)
	cos, sin := drawNormal(t, ir.F32, shape[0], pairs), drawNormal(t, ir.F32, shape[0], pairs)
	inverse := rapid.Bool().Draw(t, "inverse")
	v, c, s := floats(x), floats(cos), floats(sin)
	perToken := size(shape[1:])
	var want []float64
	for i := 0; i < len(v); i += d {
		tok := i / perToken * pairs
		want = append(want, ropeRef(v[i:i+d], c[tok:tok+pairs], s[tok:tok+pairs], inverse)...)
	}
	got := apply1(t, "rope", ir.A("inverse", inverse), x, cos, sin)
	wantShape(t, "rope", got, ir.BF16, shape...)
	wantFloats(t, "rope", got, want)
}

// The inverse rotation undoes the rotation but for two bf16 roundings, and a
// rotation by the right angle swaps a pair.
func TestRopeInverse(t *testing.T) {
	cis, err := apply(t, "freqs_cis", append(ir.A("len", 9), tinyPlan.attrs()...))
	if err != nil {
		t.Fatal(err)
	}
	x := zeroTensor(ir.BF16, 9, 70)
	for i := range x.F {
		x.F[i] = float32(i%17) - 8
	}
	there := apply1(t, "rope", nil, x, cis[0], cis[1])
	back := apply1(t, "rope", ir.A("inverse", true), there, cis[0], cis[1])
	wantNear(t, "rope and its inverse", back, floats(x), 8*2*0x1p-7) // |x| <= 8 sqrt 2, 2^-8 relative, twice
	if difference(there, x) == "" {
		t.Error("rope changes nothing")
	}

	quarter := apply1(t, "rope", nil, bf16s([]float32{5, 2, 3}, 1, 3), f32s([]float32{0}, 1, 1), f32s([]float32{1}, 1, 1))
	wantFloats(t, "quarter turn", quarter, []float64{5, -3, 2})
}
