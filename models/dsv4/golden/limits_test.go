package golden

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Whatever else a tensor holds, a NaN in it is beyond every limit.
func TestNoNaNPasses(t *testing.T) {
	m := metric.Measure([]float32{1, float32(math.NaN())}, []float32{1, 2})
	for _, l := range Limits {
		held := 0
		for _, b := range l.Bounds {
			if b.holds(b.Metric.of(m)) {
				held++
			}
		}
		if held == len(l.Bounds) {
			t.Errorf("a NaN passes limit %s", l.Name)
		}
	}
}

// The limit of rope tables is the op table's.
func TestRopeTableLimit(t *testing.T) {
	d, err := ir.Lookup("freqs_cis")
	if err != nil {
		t.Fatal(err)
	}
	if b := Limits[ropeTableLimit].Bounds[0]; d.Limit.Kind != ir.AbsF32 || b.Metric != MaxAbs || b.Value != d.Limit.Bound {
		t.Errorf("limit %s is %v, the op table says %v", Limits[ropeTableLimit].Name, b, d.Limit)
	}
}

// Every other bound stands as a number in the recommended limits of section 9.
func TestLimitsAreSection9(t *testing.T) {
	data, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\nRecommended limits:\n")
	if !ok {
		t.Fatalf("%s has no recommended limits", specFile)
	}
	text = strings.Join(strings.Fields(text), " ")
	for i, l := range Limits {
		if i == ropeTableLimit {
			continue
		}
		if !strings.HasPrefix(l.Source, section9) {
			t.Errorf("limit %s has source %q, want %q", l.Name, l.Source, section9)
		}
		for _, b := range l.Bounds {
			// The words of the text that state the bound.
			want := map[Bound]string{
				{MaxAbs, 2e-6}:      `hc, sinkhorn, gate weights in f32: abs 2e-6`,
				{Identical, 1}:      `\(quantisation codes, scales, gate indices\): exact`,
				{Identical, 0.995}:  `at least 99\.5% identical`,
				{WithinULP, 1}:      `the rest within one bf16 ulp`,
				{WithinF32, 1}:      `the rest within one bf16 ulp`,
				{MaxAbs, 1e-4}:      `hc's f32 results to 1e-4`,
				{Identical, 0.99}:   `hc's bf16 results at least 99% identical`,
				{WithinTwo, 1}:      `the rest within one bf16 ulp or 1e-4`,
				{OneMinusCos, 5e-4}: map[int]string{attentionOpBF16Limit: `with bf16 probabilities 5e-4`, layerBF16Limit: `one layer with bf16 probabilities to 5e-4, as its attention operator`}[i],
				{OneMinusCos, 5e-5}: map[int]string{attentionLimit: `own goldens: 1-cos <= 5e-5 and rel <= 2e-2`, layerLimit: `one layer on golden inputs, own goldens: 1-cos <= 5e-5`}[i],
				{Rel, 2e-2}:         `1-cos <= 5e-5 and rel <= 2e-2`,
				{OneMinusCos, 2e-3}: `prefill logits 1-cos <= 2e-3`,
				{OneMinusCos, 5e-3}: `decode logits <= 5e-3`,
				{OneMinusCos, 9e-3}: `those of decode steps to 9e-3: 5e-3, times 1\.8`,
				{FlipMargin, 0.5}:   `argmax must agree wherever the golden margin exceeds 0\.5`,
				{GreedyMargin, 0.5}: `greedy ids must agree up to the first step with margin below 0\.5`,
			}[b]
			if want == "" || !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("limit %s: bound %v is not in section 9", l.Name, b)
			}
		}
	}
}

// The limits of liberties are the op table's, but that of a layer, which is no op.
func TestLibertyLimits(t *testing.T) {
	of := func(op, liberty string, result int) ir.Limit {
		d, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		y := d.Liberty(liberty)
		if y == nil {
			t.Fatalf("%s has no liberty %s", op, liberty)
		}
		return y.LimitOf(result)
	}
	for _, tc := range []struct {
		row  int
		want ir.Limit
		have ir.Limit
	}{
		{hcF32TwoLimit, of("hc_pre", twoWeights, 1), ir.Limit{Kind: ir.AbsF32, Bound: Limits[hcF32TwoLimit].Bounds[0].Value}},
		{hcTwoLimit, of("hc_pre", twoWeights, 0), ir.Limit{Kind: ir.BF16ULP, Bound: Limits[hcTwoLimit].Bounds[0].Value, Abs: metric.TwoWeightsNoise}},
		{attentionOpBF16Limit, of("sparse_attention", bf16Probabilities, 0), ir.Limit{Kind: ir.OneMinCos, Bound: Limits[attentionOpBF16Limit].Bounds[0].Value}},
	} {
		if tc.have != tc.want {
			t.Errorf("limit %s is %v, the op table says %v", Limits[tc.row].Name, tc.have, tc.want)
		}
	}
}

type takes struct {
	engine.Executor
	liberties []string
}

func (x takes) Liberties() []string { return x.liberties }

// A liberty moves the limits that are its own, of an executor that takes it, and no
// others.
func TestInPlaceOf(t *testing.T) {
	none, two, both := takes{}, takes{liberties: []string{twoWeights}}, takes{liberties: []string{"another", bf16Probabilities, twoWeights}}
	for limit := range Limits {
		want := map[int]int{f32Limit: hcF32TwoLimit, hcLimit: hcTwoLimit}
		for _, x := range []engine.Executor{nil, none, two, both} {
			expected := limit
			if x, ok := x.(takes); ok && len(x.liberties) > 0 {
				if len(x.liberties) > 1 {
					want[bf16Limit], want[layerLimit] = attentionOpBF16Limit, layerBF16Limit
				}
				if w, ok := want[limit]; ok {
					expected = w
				}
			}
			if got := inPlaceOf(limit, x); got != expected {
				t.Errorf("%s of %v: %s, want %s", Limits[limit].Name, x, Limits[got].Name, Limits[expected].Name)
			}
		}
	}
}

func TestBoundHolds(t *testing.T) {
	for _, tc := range []struct {
		b    Bound
		got  float64
		want bool
	}{
		{Bound{MaxAbs, 1}, 1, true}, {Bound{MaxAbs, 1}, 1.1, false}, {Bound{MaxAbs, 1}, math.NaN(), false},
		{Bound{Identical, 1}, 1, true}, {Bound{Identical, 1}, 0.999, false}, {Bound{Identical, 1}, math.NaN(), false},
		{Bound{FlipMargin, 0.5}, 0.5, true}, {Bound{FlipMargin, 0.5}, 0.6, false},
		{Bound{GreedyMargin, 0.5}, 0.5, false}, {Bound{GreedyMargin, 0.5}, 0.4, true}, {Bound{GreedyMargin, 0.5}, math.NaN(), false},
	} {
		if got := tc.b.holds(tc.got); got != tc.want {
			t.Errorf("%v holds for %v: %t, want %t", tc.b, tc.got, got, tc.want)
		}
	}
}

func TestGreedyMargin(t *testing.T) {
	margins := []float32{2, 0.3, 1}
	for _, tc := range []struct {
		name      string
		got, want []int32
		least     float64
		ok        bool
	}{
		{"equal", []int32{7, 8, 9}, []int32{7, 8, 9}, 0, true},
		{"other at the first, sure step", []int32{6, 8, 9}, []int32{7, 8, 9}, 2, false},
		{"other at the unsure step", []int32{7, 5, 9}, []int32{7, 8, 9}, float64(margins[1]), true},
		{"other after the unsure step", []int32{7, 8, 1}, []int32{7, 8, 9}, float64(margins[1]), true},
		{"too few before the unsure step", nil, []int32{7, 8, 9}, 2, false},
	} {
		least, note := greedyMargin(tc.got, tc.want, margins)
		if ok := Limits[greedyLimit].Bounds[0].holds(least); least != tc.least || ok != tc.ok {
			t.Errorf("%s: margin %v (%s), within the limit: %t; want %v, %t", tc.name, least, note, ok, tc.least, tc.ok)
		}
	}
}

func TestFlipMargin(t *testing.T) {
	want := [][]float32{{0, 3, 1}, {5, 4.75, 1}, {2, 2, 0}}
	for _, tc := range []struct {
		name   string
		got    [][]float32
		margin float64
	}{
		{"agree", [][]float32{{0, 1, 0}, {1, 0, 0}, {1, 0, 0}}, 0},
		{"flip of the surest row", [][]float32{{9, 1, 0}, {0, 1, 0}, {1, 0, 0}}, 2},
		{"flip of a near tie", [][]float32{{0, 1, 0}, {0, 1, 0}, {1, 0, 0}}, 0.25},
		{"flip of a tie", [][]float32{{0, 1, 0}, {1, 0, 0}, {0, 1, 0}}, 0},
	} {
		if margin, note := flipMargin(tc.got, want); margin != tc.margin {
			t.Errorf("%s: margin %v (%s), want %v", tc.name, margin, note, tc.margin)
		}
	}
}
