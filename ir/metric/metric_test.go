package metric

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir/num"
)

func TestMeasure(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	fnan, finf := float32(nan), float32(inf)
	negZero := float32(math.Copysign(0, -1))
	for _, tc := range []struct {
		name      string
		got, want []float32
		m         Metrics
	}{
		{"equal", []float32{1, -2}, []float32{1, -2}, Metrics{Count: 2, Identical: 1, WithinULP: 1, WithinF32: 1, WithinTwo: 1}},
		{"one bf16 step", []float32{1, 1}, []float32{1, 1 + 0x1p-7},
			Metrics{Count: 2, MaxAbs: 0x1p-7, At: 1, Rel: 0x1p-7 / (1 + 0x1p-7), OneMinusCos: 7.568e-6, Identical: 0.5, WithinULP: 1, WithinF32: 1, WithinTwo: 1}},
		{"a step below a power of two", []float32{1}, []float32{1 - 0x1p-8},
			Metrics{Count: 1, MaxAbs: 0x1p-8, Rel: 0x1p-8 / (1 - 0x1p-8), WithinULP: 1, WithinF32: 1, WithinTwo: 1}},
		{"two steps below a power of two", []float32{1}, []float32{1 - 0x1p-7},
			Metrics{Count: 1, MaxAbs: 0x1p-7, Rel: 0x1p-7 / (1 - 0x1p-7)}},
		{"many steps near zero", []float32{1e-6}, []float32{2e-6},
			Metrics{Count: 1, MaxAbs: float64(float32(2e-6)) - float64(float32(1e-6)), Rel: 0.5, WithinF32: 1, WithinTwo: 1}},
		{"more steps near zero", []float32{1e-5}, []float32{9e-5},
			Metrics{Count: 1, MaxAbs: 8e-5, Rel: 0.8888, WithinTwo: 1}},
		{"zeros of both signs", []float32{0}, []float32{negZero}, Metrics{Count: 1, WithinULP: 1, WithinF32: 1, WithinTwo: 1}},
		{"against zero", []float32{1, 0}, []float32{0, 0}, Metrics{Count: 2, MaxAbs: 1, Rel: inf, OneMinusCos: 1, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"opposite", []float32{2}, []float32{-2}, Metrics{Count: 1, MaxAbs: 4, Rel: 2, OneMinusCos: 2}},
		{"orthogonal", []float32{3, 0}, []float32{0, 3}, Metrics{Count: 2, MaxAbs: 3, Rel: 1, OneMinusCos: 1}},
		{"NaN on both sides", []float32{1, fnan}, []float32{1, fnan},
			Metrics{Count: 2, NaN: 1, MaxAbs: nan, At: 1, Rel: nan, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"NaN in got", []float32{fnan, 1}, []float32{1, 1},
			Metrics{Count: 2, NaN: 1, MaxAbs: nan, Rel: nan, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"NaN in want", []float32{1, 1}, []float32{1, fnan},
			Metrics{Count: 2, NaN: 1, MaxAbs: nan, At: 1, Rel: nan, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"too short", []float32{1}, []float32{1, 1},
			Metrics{Count: 2, Missing: 1, MaxAbs: nan, At: 1, Rel: nan, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"too long", []float32{1, 1}, []float32{1},
			Metrics{Count: 2, Missing: 1, MaxAbs: nan, At: 1, Rel: nan, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"nothing", nil, nil, Metrics{}},
		{"equal infinities", []float32{finf, 1}, []float32{finf, 1}, Metrics{Count: 2, Identical: 1, WithinULP: 1, WithinF32: 1, WithinTwo: 1}},
		{"infinity beside a difference", []float32{finf, 1}, []float32{finf, 2},
			Metrics{Count: 2, MaxAbs: 1, At: 1, Rel: 0.5, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
		{"infinity against a number", []float32{finf, 1}, []float32{2, 1},
			Metrics{Count: 2, MaxAbs: inf, Rel: inf, OneMinusCos: nan, Identical: 0.5, WithinULP: 0.5, WithinF32: 0.5, WithinTwo: 0.5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.m, Measure(tc.got, tc.want), cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-3, 1e-15)); d != "" {
				t.Errorf("Measure(%v, %v) (-want +got):\n%s", tc.got, tc.want, d)
			}
		})
	}
}

func TestMeasureProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Float32Range(-1e3, 1e3), 1, 20).Draw(t, "want")
		got := make([]float32, len(want))
		for i, w := range want {
			got[i] = w
			if rapid.Bool().Draw(t, "other") {
				got[i] = rapid.Float32Range(-1e3, 1e3).Draw(t, "got")
			}
		}
		m, back := Measure(got, want), Measure(want, got)
		if m.MaxAbs != back.MaxAbs || m.Identical != back.Identical || m.WithinULP != back.WithinULP || m.WithinF32 != back.WithinF32 || m.WithinTwo != back.WithinTwo {
			t.Fatalf("exchanging the sides changes %+v to %+v", m, back)
		}
		if !(0 <= m.Identical && m.Identical <= m.WithinULP && m.WithinULP <= m.WithinF32 && m.WithinF32 <= m.WithinTwo && m.WithinTwo <= 1) {
			t.Fatalf("shares are not ordered: %+v", m)
		}
		if !(m.OneMinusCos >= 0 && m.OneMinusCos <= 2+1e-12) {
			t.Fatalf("no angle has 1-cos %v", m.OneMinusCos)
		}
		if same := m.Identical == 1; same != (Measure(got, want) == Metrics{Count: len(want), Identical: 1, WithinULP: 1, WithinF32: 1, WithinTwo: 1}) {
			t.Fatalf("identical is %t, metrics are %+v", same, m)
		}
		got[rapid.IntRange(0, len(got)-1).Draw(t, "at")] = float32(math.NaN())
		if m := Measure(got, want); m.Identical == 1 || m.WithinULP == 1 || m.WithinF32 == 1 || m.WithinTwo == 1 {
			t.Fatalf("a NaN passes as equal: %+v", m)
		}
	})
}

// Neighbouring bf16 numbers are one step apart, next but one are not.
func TestBF16ULP(t *testing.T) {
	for bits := range uint16(0x7f7e) { // up to the last number with two above it
		a, b, c := num.FromBF16(bits), num.FromBF16(bits+1), num.FromBF16(bits+2)
		if m := Measure([]float32{a, -b}, []float32{b, -a}); m.WithinULP != 1 {
			t.Fatalf("%g and %g are neighbours, yet %+v", a, b, m)
		}
		if m := Measure([]float32{a, -c}, []float32{c, -a}); m.WithinULP != 0 {
			t.Fatalf("%g and %g are two steps apart, yet %+v", a, c, m)
		}
	}
}
