package engine

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// draw takes the tokens at n positions from the same logits.
func draw(t testing.TB, s Sampling, logits []float32, n int) []int32 {
	t.Helper()
	ids := make([]int32, n)
	for pos := range ids {
		id, err := s.Token(logits, pos)
		if err != nil {
			t.Fatal(err)
		}
		ids[pos] = id
	}
	return ids
}

var inf = float32(math.Inf(1))

func TestGreedy(t *testing.T) {
	for _, tc := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{0}, 0},
		{[]float32{1, 3, 2}, 1},
		{[]float32{-5, -1, -1, -1}, 1}, // ties: the lowest id
		{[]float32{7, 7, 7}, 0},
		{[]float32{-inf, -inf, -3}, 2},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0}, // -0 = 0: a tie
		{[]float32{-math.MaxFloat32, math.MaxFloat32}, 1},
	} {
		if got := draw(t, Sampling{}, tc.logits, 1)[0]; got != tc.want {
			t.Errorf("greedy of %v is %d, want %d", tc.logits, got, tc.want)
		}
		if got := Argmax(tc.logits); got != tc.want {
			t.Errorf("Argmax(%v) is %d, want %d", tc.logits, got, tc.want)
		}
		for _, s := range []Sampling{{Temperature: 1, TopK: 1, Seed: 3}, {Temperature: 1.5, TopP: 1e-9, Seed: 4}} {
			for _, got := range draw(t, s, tc.logits, 20) {
				if got != tc.want {
					t.Errorf("%v of %v is %d, want the greedy %d", s, tc.logits, got, tc.want)
				}
			}
		}
	}
}

func TestLogitsThatAreNoOpinion(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		logits []float32
		want   string
	}{
		{[]float32{1, nan, 2}, "logit of token 1 is NaN: the model's output is not usable"},
		{[]float32{nan}, "logit of token 0 is NaN: the model's output is not usable"},
		{[]float32{1, 2, inf}, "logit of token 2 is +Inf: the model's output is not usable"},
		{[]float32{-inf, -inf}, "all 2 logits are -Inf: the model's output is not usable"},
		{nil, "all 0 logits are -Inf: the model's output is not usable"},
	} {
		for _, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 1, TopK: 1}} {
			wantError(t, s.String(), func() error { _, err := s.Token(tc.logits, 0); return err }, tc.want)
		}
	}
}

// A row's flags are the errors that its logits would be, of that row alone.
func TestRowFlags(t *testing.T) {
	for _, tc := range []struct {
		flags int64
		want  string // "" is a token
	}{
		{0, ""},
		{ir.ArgmaxNaN, "a logit is NaN: the model's output is not usable"},
		{ir.ArgmaxNaN | ir.ArgmaxAllNaN, "every logit is NaN: the model's output is not usable"},
		{ir.ArgmaxNaN | ir.ArgmaxHigh, "a logit is NaN: the model's output is not usable"},
		{ir.ArgmaxHigh, "a logit is +Inf: the model's output is not usable"},
		{ir.ArgmaxAllLow, "all logits are -Inf: the model's output is not usable"},
		{ir.SampleRange, "a parameter of the sampling is outside of its range"},
		{64, "the head's flags are 0x40: the model's output is not usable"},
	} {
		for _, head := range []struct{ ids, flags string }{{greedyIDs, greedyFlags}, {sampleIDs, sampleFlags}} {
			out := Tensors{}
			for name, v := range map[string][]int32{head.ids: {7, 8, 9}, head.flags: {0, int32(tc.flags), 0}} {
				var err error
				if out[name], err = eval.FromI32(v, 3); err != nil {
					t.Fatal(err)
				}
			}
			feeds := []Feed{{Seq: &Seq{}, Out: []int{0}}, {Seq: &Seq{}, Out: []int{0}}} // the third row is padding
			got, err := Choose(feeds, out)
			if err != nil || len(got) != 2 || got[0] != (Choice{ID: 7}) {
				t.Fatalf("chosen %v, error %v", got, err)
			}
			if tc.want == "" && got[1] != (Choice{ID: 8}) {
				t.Errorf("chosen %v", got)
			}
			if tc.want != "" {
				wantError(t, tc.want, func() error { return got[1].Err }, tc.want)
			}
			delete(out, head.flags)
			wantError(t, "no flags", func() error { _, err := Choose(feeds, out); return err }, "the step has the output "+head.ids+" and no "+head.flags)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	one, err := eval.FromI32([]int32{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	row, err := eval.FromF32(ir.F32, []float32{1, 2}, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	hot := Sampling{Temperature: 1}
	for _, tc := range []struct {
		feeds []Feed
		out   Tensors
		want  string
	}{
		{[]Feed{{Seq: &Seq{}, Out: []int{0}, Sampling: hot}}, Tensors{greedyIDs: one, greedyFlags: one}, errOnlyGreedy.Error()},
		{[]Feed{{Seq: &Seq{}, Out: []int{0}}}, Tensors{}, errNoLogits.Error()},
		{[]Feed{{Seq: &Seq{}, Out: []int{0, 1}}}, Tensors{sampleIDs: one, sampleFlags: one}, "output row 1 of a step with 1"},
		{[]Feed{{Seq: &Seq{}, Out: []int{0, 1}}}, Tensors{outLogits: row}, "output row 1 of a step with 1"},
	} {
		wantError(t, tc.want, func() error {
			got, err := Choose(tc.feeds, tc.out)
			for _, c := range got {
				err = errors.Join(err, c.Err)
			}
			return err
		}, tc.want)
	}
}

func TestSamplingCheck(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		s    Sampling
		want string // "" is legal
	}{
		{Sampling{}, ""},
		{Sampling{Temperature: 0.7, TopK: 5, TopP: 0.9, Seed: 1}, ""},
		{Sampling{Temperature: 1, TopP: 1}, ""},
		{Sampling{Temperature: -1}, "temperature is -1, want a finite number of at least 0"},
		{Sampling{Temperature: nan}, "temperature is NaN, want a finite number of at least 0"},
		{Sampling{Temperature: math.Inf(1)}, "temperature is +Inf, want a finite number of at least 0"},
		{Sampling{Temperature: 1e39}, "temperature is 1e+39, which no f32 number is near"},
		{Sampling{Temperature: 1e-50}, "temperature is 1e-50, which no f32 number is near"},
		{Sampling{Temperature: 1, TopP: 1e-50}, "top-p is 1e-50, which no f32 number is near"},
		{Sampling{Temperature: 1, TopK: 1 << 31}, "top-k is 2147483648, want at most 2147483647"},
		{Sampling{Temperature: 1, TopK: -1}, "top-k is -1, want at least 0"},
		{Sampling{Temperature: 1, TopP: -0.1}, "top-p is -0.1, want 0..1"},
		{Sampling{Temperature: 1, TopP: 1.1}, "top-p is 1.1, want 0..1"},
		{Sampling{Temperature: 1, TopP: nan}, "top-p is NaN, want 0..1"},
		{Sampling{TopK: 1}, "top-k, top-p and seed have no effect at temperature 0 (greedy)"},
		{Sampling{TopP: 0.5}, "top-k, top-p and seed have no effect at temperature 0 (greedy)"},
		{Sampling{Seed: 9}, "top-k, top-p and seed have no effect at temperature 0 (greedy)"},
	} {
		err := tc.s.Check()
		if _, drawn := tc.s.Token([]float32{0}, 0); (drawn == nil) != (err == nil) {
			t.Errorf("%+v: Check says %v, Token %v", tc.s, err, drawn)
		}
		if tc.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", tc.s, err)
			}
			continue
		}
		wantError(t, tc.s.String(), func() error { return err }, tc.want)
	}
}

func TestSamplingString(t *testing.T) {
	for want, s := range map[string]Sampling{
		"greedy":                {},
		"temperature 1, seed 0": {Temperature: 1},
		"temperature 0.7, top-k 5, top-p 0.9, seed 12": {Temperature: 0.7, TopK: 5, TopP: 0.9, Seed: 12},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v reads %q, want %q", s, got, want)
		}
	}
}

func TestSamplingIsDeterministic(t *testing.T) {
	logits := []float32{0.5, 1, -1, 2, 0, 1.5}
	s := Sampling{Temperature: 1, Seed: 11}
	a := draw(t, s, logits, 64)
	if b := draw(t, s, logits, 64); !slices.Equal(a, b) {
		t.Errorf("one seed gives\n%v and\n%v", a, b)
	}
	s.Seed = 12
	if b := draw(t, s, logits, 64); slices.Equal(a, b) {
		t.Errorf("two seeds give the same 64 tokens %v", a)
	}
}

// Cut-offs: which tokens can be drawn at all. Tokens 1 and 4 tie, so the lower id
// goes first.
func TestSamplingSupport(t *testing.T) {
	// Probabilities at temperature 1: 0.4, 0.2, 0.05, 0.15, 0.2.
	var logits []float32
	for _, p := range []float64{0.4, 0.2, 0.05, 0.15, 0.2} {
		logits = append(logits, float32(math.Log(p)))
	}
	for _, tc := range []struct {
		s    Sampling
		want []int32
	}{
		{Sampling{}, []int32{0, 1, 2, 3, 4}},
		{Sampling{TopK: 2}, []int32{0, 1}},
		{Sampling{TopK: 3}, []int32{0, 1, 4}},
		{Sampling{TopK: 99}, []int32{0, 1, 2, 3, 4}},
		{Sampling{TopP: 0.39}, []int32{0}},
		{Sampling{TopP: 0.41}, []int32{0, 1}},
		{Sampling{TopP: 0.79}, []int32{0, 1, 4}},
		{Sampling{TopP: 0.81}, []int32{0, 1, 3, 4}},
		{Sampling{TopP: 0.96}, []int32{0, 1, 2, 3, 4}},
		{Sampling{TopP: 1}, []int32{0, 1, 2, 3, 4}},
		{Sampling{TopK: 3, TopP: 0.55}, []int32{0, 1}},    // of the three: 0.5, 0.25, 0.25
		{Sampling{TopK: 3, TopP: 0.76}, []int32{0, 1, 4}}, // top-p counts what top-k left
	} {
		tc.s.Temperature, tc.s.Seed = 1, 5
		got := draw(t, tc.s, logits, 2000)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, tc.want) {
			t.Errorf("%v draws %v, want %v", tc.s, got, tc.want)
		}
	}
	// A token at -Inf is never drawn, however hot.
	for _, id := range draw(t, Sampling{Temperature: 1e6, Seed: 1}, []float32{-inf, 0, -inf, 1, -inf}, 2000) {
		if id != 1 && id != 3 {
			t.Fatalf("token %d has logit -Inf and was drawn", id)
		}
	}
}

// Draws follow softmax(logits / temperature), cut to top-k, then to top-p. The
// seeds are fixed, so this passes or fails always; the bound is the 99.9%
// quantile of chi-square with one degree of freedom less than there are tokens.
func TestSamplingDistribution(t *testing.T) {
	logits := []float32{1, -0.5, 2, 0, 1.25, -3, 0.5, 1}
	quantile := map[int]float64{2: 10.83, 3: 13.82, 4: 16.27, 8: 24.32}
	const n = 40000
	for _, tc := range []struct {
		s    Sampling
		kept []int32
	}{
		{Sampling{Temperature: 1, Seed: 1}, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
		{Sampling{Temperature: 1, Seed: 99}, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
		{Sampling{Temperature: 0.5, Seed: 2}, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
		{Sampling{Temperature: 3, Seed: 3}, []int32{0, 1, 2, 3, 4, 5, 6, 7}},
		{Sampling{Temperature: 1, TopK: 3, Seed: 4}, []int32{0, 2, 4}}, // 0 and 7 tie
		{Sampling{Temperature: 1, TopK: 4, Seed: 5}, []int32{0, 2, 4, 7}},
		{Sampling{Temperature: 1, TopP: 0.5, Seed: 6}, []int32{2, 4}}, // 0.38 + 0.18
		{Sampling{Temperature: 2, TopK: 4, TopP: 0.7, Seed: 7}, []int32{0, 2, 4}},
	} {
		total := 0.0
		p := map[int32]float64{}
		for _, id := range tc.kept {
			p[id] = math.Exp(float64(logits[id]) / tc.s.Temperature)
			total += p[id]
		}
		count := map[int32]int{}
		for _, id := range draw(t, tc.s, logits, n) {
			count[id]++
		}
		chi := 0.0
		for id, c := range count {
			if p[id] == 0 {
				t.Errorf("%v: token %d was cut off and drawn %d times", tc.s, id, c)
			}
		}
		for _, id := range tc.kept {
			want := n * p[id] / total
			d := float64(count[id]) - want
			chi += d * d / want
		}
		if limit := quantile[len(tc.kept)]; chi > limit {
			t.Errorf("%v: chi-square %.1f above %.2f: %v", tc.s, chi, limit, count)
		}
	}
}
