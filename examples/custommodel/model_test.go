package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/engine"
)

// text is n tokens.
func text(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i*i*7+i*3+5) % int32(tiny.Vocab)
	}
	return out
}

func evaluator(t *testing.T) engine.Executor {
	t.Helper()
	entries, err := graphs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	x, err := engine.NewRef(entries, nil, weights)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func session(t *testing.T, x engine.Executor) *Session {
	t.Helper()
	s, err := NewSession(x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func feed(t *testing.T, s *Session, tokens ...int32) []float32 {
	t.Helper()
	logits, err := s.Feed(tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// The graphs' text reads back as the same graphs.
func TestText(t *testing.T) {
	entries, err := graphs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range entries {
		text := ir.Text(g)
		again, err := ir.Parse(g.Name, text)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) != 1 || ir.Text(again[0]) != text {
			t.Errorf("@%s does not round-trip", g.Name)
		}
	}
}

// What does not fit is refused, with the place.
func TestBuildErrors(t *testing.T) {
	odd := tiny
	odd.Heads = 5 // does not divide Dim
	for _, tc := range []struct {
		c           Config
		entry, want string
	}{
		{tiny, "verify", `unknown entry "verify": want one of [prefill decode]`},
		{odd, Decode, "layers.0.attn"},
	} {
		if _, err := Build(tc.c, tc.entry); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.entry, err, tc.want)
		}
	}
}

// The evaluator against plain Go. With bf16 at the same places the two differ by
// float32 against float64 inside an op, which may round to another bf16 now and then:
// what limit is for. Without any rounding the difference is that of bf16 itself,
// half a unit of each of some ten values between the embedding and the logits.
func TestAgainstPlainGo(t *testing.T) {
	x := evaluator(t)
	for _, n := range []int{1, 2, 15, 16, 17, 40} {
		got := feed(t, session(t, x), text(n)...)
		for _, tc := range []struct {
			name  string
			round func(float64) float64
			allow float64
		}{
			{"bf16", toBF16, limit},
			{"float64", exactly, 3 * limit},
		} {
			want := (&reference{Config: tiny, t: t, round: tc.round}).logits(text(n))
			d := difference(got, want)
			t.Logf("%d tokens, %s: %.2g", n, tc.name, d)
			if !(d <= tc.allow) {
				t.Errorf("%d tokens: the evaluator and plain Go with %s differ by %.2g, allowed %.2g", n, tc.name, d, tc.allow)
			}
		}
	}
}

// A wrong rule is far beyond the limit.
func TestMistakesShow(t *testing.T) {
	const n = 17
	got := feed(t, session(t, evaluator(t)), text(n)...)
	for _, mistake := range []string{"no positions", "no scale", "sees the future", "does not see itself"} {
		want := (&reference{Config: tiny, t: t, round: toBF16, mistake: mistake}).logits(text(n))
		d := difference(got, want)
		t.Logf("%s: %.2g", mistake, d)
		if d < 50*limit {
			t.Errorf("%s: logits differ by %.2g only, the limit is %.2g", mistake, d, limit)
		}
	}
}

// However a text is cut into steps, the evaluator gives the same bits: prefill
// and decode are one model, padding takes no part, and state is complete.
func TestChunks(t *testing.T) {
	x := evaluator(t)
	want := feed(t, session(t, x), text(33)...)
	for _, cuts := range [][]int{{32, 1}, {1, 32}, {5, 11, 17}, {30, 1, 1, 1}} {
		s, at := session(t, x), 0
		var got []float32
		for _, n := range cuts {
			got = feed(t, s, text(33)[at:at+n]...)
			at += n
		}
		if !slices.Equal(got, want) {
			t.Errorf("in steps of %v the logits differ by %.2g", cuts, difference(got, want))
		}
	}
}

// Where a text lies in the pools, and what an earlier one left there, does not
// matter, be it NaN.
func TestPoolRows(t *testing.T) {
	x := evaluator(t)
	want := feed(t, session(t, x), text(20)...)
	s := session(t, x)
	for _, pool := range s.state.(engine.Tensors) {
		for i := range pool.F {
			pool.F[i] = float32(math.NaN())
		}
	}
	slices.Reverse(s.rows)
	if got := feed(t, s, text(20)...); !slices.Equal(got, want) {
		t.Errorf("on used pools the logits differ by %.2g", difference(got, want))
	}
}

// Padding rows have numbers too, which nobody reads: NaN would spread where a
// device adds up whole tensors, and alarm who looks for it.
func TestPadding(t *testing.T) {
	s := session(t, evaluator(t))
	in, err := s.inputs(text(3), chunk)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.device.Run(Prefill, bindings(Prefill), in, s.state)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range out["logits"].F {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			t.Fatalf("row %d has logit %v", i/tiny.Vocab, x)
		}
	}
}

func TestFeedErrors(t *testing.T) {
	s := session(t, evaluator(t))
	if _, err := s.Feed(); err == nil {
		t.Error("no tokens were accepted")
	}
	if _, err := s.Feed(text(positions + 1)...); err == nil || !strings.Contains(err.Error(), "the plans hold 64") {
		t.Errorf("error %v, want one with the number of positions", err)
	}
	for _, id := range []int32{-1, 256} {
		if _, err := s.Feed(id); err == nil || !strings.Contains(err.Error(), "outside the vocabulary of 256") {
			t.Errorf("token %d: error %v, want one about the vocabulary", id, err)
		}
	}
}
