package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

// generate runs a request in a fresh engine and checks that emit saw the result.
func generate(t testing.TB, m *tinyModel, r Request) []int32 {
	t.Helper()
	e, s := m.one(t)
	var emitted []int32
	ids, _, err := e.Generate(t.Context(), s, r, nil, func(id int32) error {
		emitted = append(emitted, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, emitted) {
		t.Errorf("returned %v, emitted %v", ids, emitted)
	}
	return ids
}

// Greedy generation is a loop of steps and Argmax, over more than one chunk of
// prompt.
func TestGenerateIsTheManualLoop(t *testing.T) {
	m := tiny(t, dsv4.Production)
	prompt := goldenIDs(t, "short")[:37]
	const n = 10
	e, s := m.one(t)
	f := Feed{Seq: s, IDs: prompt, Out: []int{len(prompt) - 1}}
	out, err := e.Step(entryPrefill, []Feed{f}, ShapeOf([]Feed{f}))
	if err != nil {
		t.Fatal(err)
	}
	Commit([]Feed{f})
	var want []int32
	for len(want) < n {
		next := Argmax(out["logits"].F)
		want = append(want, next)
		if out, err = e.DecodeOne(s, next); err != nil {
			t.Fatal(err)
		}
		s.Len++
	}
	got := generate(t, m, Request{Prompt: prompt, MaxNew: n})
	if !slices.Equal(got, want) {
		t.Errorf("generated %v, want %v", got, want)
	}
	// Stop tokens end it and are kept; others do not matter.
	other := int32(0)
	for slices.Contains(want, other) {
		other++
	}
	stop := want[4]
	end := slices.Index(want, stop) + 1
	if got := generate(t, m, Request{Prompt: prompt, MaxNew: n, Stop: []int32{other, stop}}); !slices.Equal(got, want[:end]) {
		t.Errorf("with stop token %d: %v, want %v", stop, got, want[:end])
	}
	if got := generate(t, m, Request{Prompt: prompt, MaxNew: n, Stop: []int32{other}}); !slices.Equal(got, want) {
		t.Errorf("with a stop token that never comes: %v, want %v", got, want)
	}
	if got := generate(t, m, Request{Prompt: prompt, MaxNew: 1}); !slices.Equal(got, want[:1]) {
		t.Errorf("one new token: %v, want %v", got, want[:1])
	}
}

func TestGenerateSampled(t *testing.T) {
	m := tiny(t, dsv4.Production)
	r := Request{Prompt: goldenIDs(t, "short")[:5], MaxNew: 12}
	greedy := generate(t, m, r)
	r.Sampling = Sampling{Temperature: 1, TopK: 1, Seed: 8}
	if got := generate(t, m, r); !slices.Equal(got, greedy) {
		t.Errorf("top-k 1 gives %v, greedy %v", got, greedy)
	}
	r.Sampling = Sampling{Temperature: 1.5, Seed: 8}
	a, b := generate(t, m, r), generate(t, m, r)
	if !slices.Equal(a, b) {
		t.Errorf("one seed gives %v and %v", a, b)
	}
	r.Sampling.Seed = 9
	if c := generate(t, m, r); slices.Equal(a, c) {
		t.Errorf("two seeds give %v", a)
	}
}

func TestGenerateProgressAndStats(t *testing.T) {
	e, s := tiny(t, dsv4.Production).one(t)
	var done []int
	_, st, err := e.Generate(t.Context(), s, Request{Prompt: goldenIDs(t, "long")[:70], MaxNew: 3},
		func(n int) { done = append(done, n) }, func(int32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(done, []int{32, 64, 70}) {
		t.Errorf("progress %v, want 32 64 70", done)
	}
	if st.Prefill <= 0 || st.Decode <= 0 {
		t.Errorf("times %+v, want both above 0", st)
	}
	if want := 70 + 2; s.Len != want { // the last token was not fed
		t.Errorf("the sequence holds %d positions, want %d", s.Len, want)
	}
}

func TestGenerateStops(t *testing.T) {
	m := tiny(t, dsv4.Production)
	r := Request{Prompt: goldenIDs(t, "long")[:40], MaxNew: 5}
	full := errors.New("sink is full")
	e, s := m.one(t)
	var n int
	ids, _, err := e.Generate(t.Context(), s, r, nil, func(int32) error {
		if n++; n == 2 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || len(ids) != 2 {
		t.Errorf("ids %v, error %v; want two ids and the sink's error", ids, err)
	}

	e, s = m.one(t)
	ctx, cancel := context.WithCancel(t.Context())
	ids, _, err = e.Generate(ctx, s, r, nil, func(int32) error {
		if n++; n == 5 { // the third of this run
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(ids) != 3 {
		t.Errorf("cancelled while decoding: ids %v, error %v; want three ids and %v", ids, err, context.Canceled)
	}

	e, s = m.one(t)
	ctx, cancel = context.WithCancel(t.Context())
	ids, _, err = e.Generate(ctx, s, r, func(int) { cancel() }, func(int32) error { return nil })
	if !errors.Is(err, context.Canceled) || len(ids) != 0 || s.Len != 0 {
		t.Errorf("cancelled in the first chunk: ids %v, length %d, error %v; want none, 0 and %v", ids, s.Len, err, context.Canceled)
	}
}

// What cannot finish is refused before anything runs.
func TestGenerateRefuses(t *testing.T) {
	m := tiny(t, dsv4.Production)
	filler := func(n int) []int32 { return make([]int32, n) }
	for _, tc := range []struct {
		name string
		r    Request
		want string
	}{
		{"empty prompt", Request{MaxNew: 1}, "the prompt has no tokens"},
		{"nothing to make", Request{Prompt: filler(1)}, "max new tokens is 0, want at least 1"},
		{"negative", Request{Prompt: filler(1), MaxNew: -3}, "max new tokens is -3, want at least 1"},
		{"prompt too long", Request{Prompt: filler(4097), MaxNew: 1}, "the prompt has 4097 tokens, max_position_embeddings is 4096"},
		{"too much to make", Request{Prompt: filler(4000), MaxNew: 97}, "the prompt has 4000 tokens and max_position_embeddings is 4096, so at most 96 new tokens fit, not 97"},
		{"no room at all", Request{Prompt: filler(4096), MaxNew: 1}, "the prompt has 4096 tokens and max_position_embeddings is 4096, so at most 0 new tokens fit, not 1"},
		{"vocabulary", Request{Prompt: []int32{3, 2048}, MaxNew: 1}, "prompt token 1: id 2048 is out of vocabulary (2048)"},
		{"negative id", Request{Prompt: []int32{-1}, MaxNew: 1}, "prompt token 0: id -1 is out of vocabulary (2048)"},
		{"sampling", Request{Prompt: filler(1), MaxNew: 1, Sampling: Sampling{TopK: 2}}, "top-k, top-p and seed have no effect at temperature 0 (greedy)"},
		{"pages", Request{Prompt: filler(380), MaxNew: 6}, "385 positions do not fit the sequence's 3 pages of 128 tokens"},
	} {
		e, s := m.one(t)
		before := e.snapshot()
		wantError(t, tc.name, func() error {
			_, _, err := e.Generate(t.Context(), s, tc.r, nil, func(int32) error { return nil })
			return err
		}, tc.want)
		samePools(t, tc.name, before, e.allPools())
	}
	// The last token of a generation is not fed, so 380 + 5 tokens need 384 places.
	if err := m.layout.room(&Seq{Pages: []int{0, 1, 2}}, 380+5-1); err != nil {
		t.Error(err)
	}
	e, s := m.one(t)
	s.Len = 4
	wantError(t, "used sequence", func() error {
		_, _, err := e.Generate(t.Context(), s, Request{Prompt: filler(1), MaxNew: 1}, nil, func(int32) error { return nil })
		return err
	}, "the sequence already holds 4 positions, a generation starts at 0")
}

// poisoned serves a checkpoint with one weight turned into NaN: every float, or
// every block scale.
type poisoned struct {
	base CheckpointSource
	name string
	hit  bool
}

func (p *poisoned) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	w, err := p.base.Weight(name, t)
	if err != nil || name != p.name {
		return w, err
	}
	p.hit = true
	w = w.Clone()
	for i := range w.F {
		w.F[i] = canary
	}
	for i := range w.Scales {
		w.Scales[i] = 255
	}
	return w, nil
}

// A weight that is NaN gives the sampler's error, never a token. All weights are
// in long_test.go.
func TestNaNWeights(t *testing.T) {
	m := tiny(t, dsv4.Production)
	for _, name := range []string{
		"embed", "norm", "hc_head_scale", "layers.0.attn.wo_a", "layers.1.attn.attn_sink",
		"layers.2.attn.compressor.wkv", "layers.4.ffn.experts.*.w2",
	} {
		t.Run(name, func(t *testing.T) {
			for _, head := range heads {
				checkPoison(t, m, name, 9, head)
			}
		})
	}
}

var heads = []dsv4.Head{dsv4.HeadLogits, dsv4.HeadSample, dsv4.HeadGreedy}

// checkPoison generates from a prompt of n tokens with one weight NaN.
func checkPoison(t *testing.T, m *tinyModel, name string, n int, head dsv4.Head) {
	t.Helper()
	src := &poisoned{base: CheckpointSource{m.file}, name: name}
	o := tinyOptions(dsv4.Production)
	o.Head = head
	bad, err := buildModel(m.cfg, o, src, dsv4.Prefill, dsv4.Decode)
	if err != nil {
		t.Fatal(err)
	}
	e, s := bad.one(t)
	ids, _, err := e.Generate(t.Context(), s, Request{Prompt: goldenIDs(t, "long")[:n], MaxNew: 2}, nil, func(id int32) error {
		t.Errorf("head %v: token %d was emitted", head, id)
		return nil
	})
	if !src.hit {
		t.Fatalf("no weight %s was asked for", name)
	}
	want := fmt.Sprintf("position %d: ", n-1)
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "is NaN: the model's output is not usable") || len(ids) != 0 {
		t.Errorf("head %v: ids %v, error %v; want none and one about NaN at position %d", head, ids, err, n-1)
	}
}
