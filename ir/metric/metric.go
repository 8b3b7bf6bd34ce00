// Package metric measures how far a tensor is from its reference. It is below
// all that compares: the golden checks of a model and kiln check.
package metric

import "math"

// Metrics compare a computed tensor with its reference, element by element.
// A NaN on either side is never equal to anything, another NaN included: it
// counts in NaN and makes MaxAbs, Rel and OneMinusCos NaN. Elements that only
// one side has count in Missing and have the same effect. Equal infinities are
// identical; where anything else differs beside an infinity, there is no angle
// and OneMinusCos is NaN.
type Metrics struct {
	Count   int // elements of the longer side
	NaN     int // positions where either side is NaN
	Missing int // elements that the other side lacks

	MaxAbs      float64 // largest |got - want|
	At          int     // first index where it occurs; of the first NaN or missing element, if any
	Rel         float64 // MaxAbs / the largest finite |want|; 0 if MaxAbs is 0
	OneMinusCos float64 // 1 - cosine of the angle between the two; 1 if just one is zero

	Identical float64 // share of bit-identical elements, 0..1
	WithinULP float64 // share of elements identical or at most one bf16 step apart, 0..1
	WithinF32 float64 // share of elements so near, or at most F32Noise apart, 0..1
	WithinTwo float64 // share of elements so near, or at most TwoWeightsNoise apart, 0..1
}

// F32Noise is how far an f32 intermediate result may be from the reference's
// (docs/dsv4.md section 9). A bf16 result that cancelled to almost nothing shows
// it: there it is many steps of the result itself.
const F32Noise = 2e-6

// TwoWeightsNoise is how far it may be where f32 weights are the sums of two bf16
// numbers: the op table's liberty two-bf16-weights.
const TwoWeightsNoise = 1e-4

// Measure compares got with want. Two empty tensors have nothing identical
// about them: all shares are 0, so that an empty result passes no limit.
func Measure(got, want []float32) Metrics {
	n := min(len(got), len(want))
	m := Metrics{Count: max(len(got), len(want))}
	m.Missing = m.Count - n
	var identical, ulp, f32, two int
	var top, gg, ww float64
	bad := -1 // first NaN
	for i, g := range got[:n] {
		w := want[i]
		if g != g || w != w {
			if m.NaN++; bad < 0 {
				bad = i
			}
			continue
		}
		if math.Float32bits(g) == math.Float32bits(w) {
			identical++
			ulp++
			f32++
			two++
		} else {
			diff := math.Abs(float64(g) - float64(w))
			if diff > m.MaxAbs {
				m.MaxAbs, m.At = diff, i
			}
			step := bf16ULP(min(math.Abs(float64(g)), math.Abs(float64(w))))
			if diff <= step {
				ulp++
			}
			if diff <= max(step, F32Noise) {
				f32++
			}
			if diff <= max(step, TwoWeightsNoise) {
				two++
			}
		}
		if a := math.Abs(float64(w)); a <= math.MaxFloat32 {
			top = max(top, a)
		}
		gg += float64(g) * float64(g)
		ww += float64(w) * float64(w)
	}
	if m.Count > 0 {
		share := func(n int) float64 { return float64(n) / float64(m.Count) }
		m.Identical, m.WithinULP, m.WithinF32, m.WithinTwo = share(identical), share(ulp), share(f32), share(two)
	}
	if m.NaN > 0 || m.Missing > 0 {
		nan := math.NaN()
		m.MaxAbs, m.Rel, m.OneMinusCos = nan, nan, nan
		if m.At = n; bad >= 0 {
			m.At = bad
		}
		return m
	}
	if m.MaxAbs > 0 {
		m.Rel = m.MaxAbs / top
		m.OneMinusCos = oneMinusCos(got, want, gg, ww)
	}
	return m
}

// oneMinusCos is half the squared distance of the unit vectors, which unlike
// 1 - (g.w)/(|g||w|) does not cancel when the two are nearly parallel.
func oneMinusCos(got, want []float32, gg, ww float64) float64 {
	if gg == 0 || ww == 0 {
		return 1
	}
	g, w := 1/math.Sqrt(gg), 1/math.Sqrt(ww)
	sum := 0.0
	for i := range got {
		d := float64(got[i])*g - float64(want[i])*w
		sum += d * d
	}
	return sum / 2
}

// bf16ULP is the distance from a >= 0 to the next larger bf16: measured at the
// smaller of two numbers it tells neighbours apart from all others, also at a
// power of two.
func bf16ULP(a float64) float64 {
	const minExp, mantissa = -126, 7
	if a == 0 {
		return math.Ldexp(1, minExp-mantissa)
	}
	_, exp := math.Frexp(a) // a = f * 2^exp, f in [0.5, 1)
	return math.Ldexp(1, max(exp-1, minExp)-mantissa)
}
