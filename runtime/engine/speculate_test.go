package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

// seen is an executor that keeps the rows of an entry's outputs by ring and position,
// the last ones of each, and may pad steps.
type seen struct {
	Executor
	requests int // steps have so many at least
	rows     map[string]map[[2]int]map[string][]float32
}

func (x *seen) Fit(entry string, s Shape) (Shape, error) {
	if n := max(s.B, x.requests); n > s.B && entry != entryPrefill {
		s.T, s.O, s.B = s.T/s.B*n, s.O/s.B*n, n
	}
	return x.Executor.Fit(entry, s)
}

func (x *seen) Run(entry string, bind map[string]int, in Tensors, st State) (Tensors, error) {
	out, err := x.Executor.Run(entry, bind, in, st)
	if err != nil {
		return nil, err
	}
	if x.rows[entry] == nil {
		x.rows[entry] = map[[2]int]map[string][]float32{}
	}
	for r, p := range in["pos"].I {
		if p < 0 {
			continue
		}
		at := [2]int{int(in["ring"].I[in["req"].I[r]]), int(p)}
		rows := map[string][]float32{}
		for name, v := range out {
			if strings.HasPrefix(name, "hidden") {
				width := v.Len() / v.Shape[0]
				rows[name] = v.F[r*width : (r+1)*width]
			}
		}
		x.rows[entry][at] = rows
	}
	return out, nil
}

// seenEngine is an engine whose rows are seen.
func (m *tinyModel) seenEngine(t *testing.T, rings, requests int) (*Engine, *seen) {
	t.Helper()
	x := &seen{Executor: m.ref, requests: requests, rows: map[string]map[[2]int]map[string][]float32{}}
	e, err := New(x, m.layout, rings, rings*onePages)
	if err != nil {
		t.Fatal(err)
	}
	return e, x
}

func nobody(int, int32) error { return nil }

// plainIDs are the greedy tokens of a request.
func plainIDs(t *testing.T, m *tinyModel, r Request) []int32 {
	t.Helper()
	e, s := m.one(t)
	ids, _, err := e.Generate(t.Context(), s, r, nil, func(int32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// After each step everything outside of what later steps may read is NaN, and half of
// the steps verify wrong drafts: every row of the main model, and of the MTP block at
// its true inputs, still has the bits of a run that never drafted. Requests accept
// different numbers of drafts.
func TestSpeculateLeavesNoTrace(t *testing.T) {
	m, ids := tiny(t, dsv4.Production), goldenIDs(t, "long")
	reqs := []Request{{Prompt: ids[:59], MaxNew: 14}, {Prompt: ids[3:124], MaxNew: 12}}
	const k = 3
	s := newRun(t, m, reqs, k, 1)
	e, x, seqs := s.e, s.e.exec.(*seen), []*Seq{s.all[0].seq, s.all[1].seq}
	lens := map[int]bool{}         // numbers of tokens that steps gave
	last := make([]int, len(reqs)) // where the last step of a request began: no step of the MTP block is behind it
	for n := 0; len(s.live) > 0; n++ {
		for i, d := range s.live {
			if place := (n + i) % (k + 1); place < len(d.drafts) {
				copy(d.drafts[place:], wrongIDs(d.drafts[place:], len(d.drafts)-place))
			}
		}
		m.poisonDead(e, seqs)
		before := []int{seqs[0].Len, seqs[1].Len}
		for _, d := range s.live {
			last[d.request] = d.seq.Len
		}
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		for i := range seqs {
			lens[seqs[i].Len-before[i]] = true
		}
	}
	if len(lens) < 3 {
		t.Errorf("steps accepted %v tokens, want a variety", lens)
	}
	for i, d := range s.all {
		want := plainIDs(t, m, reqs[i])
		if d.out.Err != nil || !slices.Equal(d.out.IDs, want) {
			t.Fatalf("request %d: %v and error %v, want %v", i, d.out.IDs, d.out.Err, want)
		}
		stream := append(slices.Clone(reqs[i].Prompt), d.out.IDs...)
		clean := feedAll(t, m, stream, len(stream)-1, 32)
		for p := len(reqs[i].Prompt); p < len(stream)-1; p++ {
			got := x.rows[entryVerify][[2]int{i, p}]
			for name, v := range got {
				sameBits(t, fmt.Sprintf("request %d, position %d: %s", i, p, name), clean.rows[name][p*len(v):(p+1)*len(v)], v)
			}
			if len(got) != m.cfg.Layers {
				t.Fatalf("request %d, position %d: %d outputs", i, p, len(got))
			}
		}
		for p := range last[i] {
			v := x.rows[entryDraft][[2]int{i, p}]["hidden"]
			sameBits(t, fmt.Sprintf("request %d, MTP block at position %d", i, p), clean.rows["draft.hidden"][p*len(v):(p+1)*len(v)], v)
		}
	}
}

// poisonDead fills with NaN what no later step of the sequences may read.
func (m *tinyModel) poisonDead(e *Engine, seqs []*Seq) {
	for name, v := range e.allPools() {
		p, width := m.rows(name), v.Shape[1]
		alive := map[int]bool{}
		for _, s := range seqs {
			from, to := m.live(p, s.Len)
			for i := from; i < to; i++ {
				alive[p.at(s, i)] = true
			}
		}
		for row := range v.Shape[0] {
			if alive[row] {
				continue
			}
			spoil(v, row*width, (row+1)*width)
		}
	}
}

// Padding rows and idle requests of speculative steps touch no byte of a pool, and
// change no token.
func TestSpeculatePadding(t *testing.T) {
	m := tiny(t, dsv4.Production)
	r := Request{Prompt: goldenIDs(t, "short")[:9], MaxNew: 9}
	want := plainIDs(t, m, r)
	e, _ := m.seenEngine(t, 4, 4)
	e.fillCanary()
	s, err := e.NewSeq(2, onePages)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := e.Speculate(t.Context(), []*Seq{s}, []Request{r}, 2, nil, nobody)
	if err != nil || !slices.Equal(got[0].IDs, want) {
		t.Fatalf("%v and error %v, want %v", got, err, want)
	}
	for name, v := range e.allPools() {
		p, width := m.rows(name), v.Shape[1]
		own := map[int]bool{}
		end := s.Len + m.layout.MaxDraft // rejected drafts
		from, to := p.written(0, end)
		for i := from; i < to; i++ {
			own[p.at(s, i)] = true
		}
		written := 0
		for row := range v.Shape[0] {
			touched := false
			for i := row * width; i < (row+1)*width; i++ {
				touched = touched || !isSpoiled(v, i)
			}
			if touched {
				written++
			}
			if touched && !own[row] {
				t.Errorf("%s: row %d is not of the request and was written", name, row)
			}
		}
		if written == 0 && to > from && p.ratio != 128 {
			t.Errorf("%s: nothing was written", name)
		}
	}
}

// Requests end by themselves: by a stop token among accepted drafts, by their number
// of tokens, by what emit says. Sampled requests are those of plain steps, token for
// token.
func TestSpeculateRagged(t *testing.T) {
	m := tiny(t, dsv4.Production)
	ids := goldenIDs(t, "short")
	full := errors.New("sink is full")
	reqs := []Request{
		{Prompt: ids[:5], MaxNew: 12},
		{Prompt: ids[2:9], MaxNew: 1},
		{Prompt: ids[:4], MaxNew: 8, Sampling: Sampling{Temperature: 1.2, TopP: 0.9, Seed: 5}},
		{Prompt: ids[1:7], MaxNew: 10},
	}
	want := make([][]int32, len(reqs))
	for i, r := range reqs {
		want[i] = plainIDs(t, m, r)
	}
	reqs[0].Stop = []int32{want[0][6]}
	want[0] = want[0][:slices.Index(want[0], reqs[0].Stop[0])+1]
	want[3] = want[3][:4]
	for _, k := range []int{1, 3} {
		e := m.engine(t, len(reqs), len(reqs)*onePages)
		var seqs []*Seq
		for i := range reqs {
			s, err := e.NewSeq(i, onePages)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		emitted := make([][]int32, len(reqs))
		got, st, err := e.Speculate(t.Context(), seqs, reqs, k, nil, func(i int, id int32) error {
			emitted[i] = append(emitted[i], id)
			if i == 3 && len(emitted[i]) == 4 {
				return full
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range got {
			if !slices.Equal(o.IDs, want[i]) || !slices.Equal(emitted[i], want[i]) {
				t.Errorf("K=%d, request %d: %v, emitted %v, want %v", k, i, o.IDs, emitted[i], want[i])
			}
			if (i == 3) != errors.Is(o.Err, full) || i != 3 && o.Err != nil {
				t.Errorf("K=%d, request %d: error %v", k, i, o.Err)
			}
			if i < 3 && seqs[i].Len != len(reqs[i].Prompt)+len(want[i])-1 {
				t.Errorf("K=%d, request %d: %d positions", k, i, seqs[i].Len)
			}
		}
		d := st.Drafts
		if st.Steps < 1 || st.Steps >= 12 || st.Prefill <= 0 || st.Decode <= 0 || len(d.Acceptance()) != k || d.Drafted[0] == 0 {
			t.Errorf("K=%d: %+v", k, st)
		}
		for i := range k {
			if d.Accepted[i] > d.Drafted[i] || i > 0 && (d.Accepted[i] > d.Accepted[i-1] || d.Drafted[i] > d.Drafted[i-1]) {
				t.Errorf("K=%d: counts %+v", k, d)
			}
		}
	}
}

// A prompt in several chunks is heard of, and leaves the MTP block's window as one in a
// single chunk: the drafts are as good.
func TestSpeculatePrompt(t *testing.T) {
	e, s := tiny(t, dsv4.Production).one(t)
	var done []int
	ctx, cancel := context.WithCancel(t.Context())
	r := Request{Prompt: goldenIDs(t, "long")[:70], MaxNew: 8}
	got, _, err := e.Speculate(ctx, []*Seq{s}, []Request{r}, 1, func(i, n int) { done = append(done, n) }, func(i int, id int32) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(got) != 1 || len(got[0].IDs) != 1 {
		t.Errorf("cancelled at the first token: %v, error %v", got, err)
	}
	if !slices.Equal(done, []int{32, 64, 70}) {
		t.Errorf("progress %v, want 32 64 70", done)
	}
	m := tiny(t, dsv4.Production)
	clean := feedAll(t, m, append(slices.Clone(r.Prompt), got[0].IDs...), 70, 70)
	e2, s2 := m.one(t)
	e2.restore(clean.pools)
	s2.Len = 70
	sameRows(t, "pools behind the prompt", m.liveRows(e2, s2), m.liveRows(e, s))
}

// nanDrafts makes the MTP block's logits NaN.
type nanDrafts struct{ Executor }

func (x nanDrafts) Run(entry string, bind map[string]int, in Tensors, st State) (Tensors, error) {
	out, err := x.Executor.Run(entry, bind, in, st)
	if l := out[outLogits]; entry == entryDraft && l != nil {
		out[outLogits] = &eval.Tensor{DType: l.DType, Shape: l.Shape, F: slices.Repeat([]float32{canary}, l.Len())}
	}
	return out, err
}

func TestSpeculateRefuses(t *testing.T) {
	m := tiny(t, dsv4.Production)
	ok := Request{Prompt: []int32{3}, MaxNew: 4}
	run := func(e *Engine, s *Seq, r Request, k int) error {
		list, _, err := e.Speculate(t.Context(), []*Seq{s}, []Request{r}, k, nil, nobody)
		if len(list) > 0 && err == nil {
			err = list[0].Err
		}
		return err
	}
	e, s := m.one(t)
	before := e.snapshot()
	for _, tc := range []struct {
		name string
		r    Request
		k    int
		want string
	}{
		{"too many", ok, 4, "4 drafts, the rings have room for 3"},
		{"none", ok, 0, "0 drafts, want at least 1"},
		{"negative", ok, -1, "-1 drafts, want at least 1"},
		{"request", Request{MaxNew: 1}, 1, "the prompt has no tokens"},
		{"pages", Request{Prompt: make([]int32, 380), MaxNew: 6}, 1, "385 positions do not fit the sequence's 3 pages of 128 tokens"},
	} {
		wantError(t, tc.name, func() error { return run(e, s, tc.r, tc.k) }, tc.want)
	}
	wantError(t, "sequences", func() error {
		_, _, err := e.Speculate(t.Context(), nil, []Request{ok}, 1, nil, nobody)
		return err
	}, "1 requests on 0 sequences")
	samePools(t, "after what was refused", before, e.allPools())

	bad, err := New(nanDrafts{m.ref}, m.layout, 1, onePages)
	if err != nil {
		t.Fatal(err)
	}
	s, err = bad.NewSeq(0, onePages)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(bad, s, ok, 1); err == nil || !strings.Contains(err.Error(), "position 0: the MTP block: ") || !strings.Contains(err.Error(), "not usable") {
		t.Errorf("logits of drafts are NaN: %v", err)
	}

	o := tinyOptions(dsv4.Production)
	o.Taps = false
	for _, tc := range []struct {
		entries []dsv4.Entry
		want    string
	}{
		{[]dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Verify}, "the model has no draft entry (no MTP block)"},
		{[]dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Draft}, "the model has no entry that verifies 1 drafts"},
	} {
		part, err := buildModel(m.cfg, o, CheckpointSource{m.file}, tc.entries...)
		if err != nil {
			t.Fatal(err)
		}
		e, s := part.one(t)
		wantError(t, tc.want, func() error { return run(e, s, ok, 1) }, tc.want)
	}
}

// A whole speculative step in one run of one entry gives the tokens, the accept lengths
// and the drafts of separate runs, and leaves the same live rows of the pools, for
// every number of drafts, with padding, and with wrong drafts among them. One request
// ends before the others; heads are greedy or sample.
func TestWholeStep(t *testing.T) {
	m := tiny(t, dsv4.Production)
	ids := goldenIDs(t, "short")
	drafts := map[dsv4.Head][]int{dsv4.HeadGreedy: {1, 3}, dsv4.HeadSample: {2}}
	for _, head := range []dsv4.Head{dsv4.HeadGreedy, dsv4.HeadSample} {
		reqs := []Request{{Prompt: ids[:5], MaxNew: 9}, {Prompt: ids[2:7], MaxNew: 5}, {Prompt: ids[3:8], MaxNew: 8}}
		if head == dsv4.HeadSample {
			reqs[2].Sampling = Sampling{Temperature: 0.7, Seed: 4}
		}
		o := tinyOptions(dsv4.Production)
		o.Head, o.Taps = head, false
		whole, err := buildSpeculating(m.cfg, o, CheckpointSource{m.file}, drafts[head])
		if err != nil {
			t.Fatal(err)
		}
		separate, err := buildModel(m.cfg, o, CheckpointSource{m.file})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range drafts[head] {
			t.Run(fmt.Sprintf("%v K=%d", head, k), func(t *testing.T) {
				a, b := newRun(t, separate, reqs, k, 0), newRun(t, whole, reqs, k, 4)
				if a.whole || !b.whole {
					t.Fatalf("one run: %t and %t", a.whole, b.whole)
				}
				for n := 0; len(a.live) > 0; n++ {
					for i := range a.live {
						x, y := a.live[i], b.live[i]
						if !slices.Equal(x.drafts, y.drafts) || x.seq.Len != y.seq.Len || x.request != y.request {
							t.Fatalf("step %d: request %d at %d with drafts %v, request %d at %d with drafts %v", n, x.request, x.seq.Len, x.drafts, y.request, y.seq.Len, y.drafts)
						}
						if place := (n + i) % (k + 2); place < len(x.drafts) {
							copy(x.drafts[place:], wrongIDs(x.drafts[place:], 1))
							copy(y.drafts, x.drafts)
						}
					}
					for _, s := range []*speculation{a, b} {
						if err := s.step(); err != nil {
							t.Fatal(err)
						}
					}
					for i := range reqs {
						if !slices.Equal(a.all[i].out.IDs, b.all[i].out.IDs) {
							t.Fatalf("step %d, request %d: %v and %v", n, i, a.all[i].out.IDs, b.all[i].out.IDs)
						}
						if slices.Contains(a.live, a.all[i]) {
							sameRows(t, fmt.Sprintf("step %d, request %d", n, i), m.liveRows(a.e, a.all[i].seq), m.liveRows(b.e, b.all[i].seq))
						}
					}
				}
				if len(b.live) > 0 || !slices.Equal(a.stats.Drafts.Accepted, b.stats.Drafts.Accepted) || a.stats.Steps != b.stats.Steps {
					t.Errorf("%+v and %+v", a.stats, b.stats)
				}
			})
		}
	}
}

// newRun is a speculation behind its prompts; steps have so many requests at least.
func newRun(t *testing.T, m *tinyModel, reqs []Request, k, requests int) *speculation {
	t.Helper()
	e, _ := m.seenEngine(t, len(reqs)+1, requests)
	var seqs []*Seq
	for i := range reqs {
		s, err := e.NewSeq(i, onePages)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	s, _, err := e.newSpeculation(seqs, reqs, k, nobody)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reqs {
		if err := s.prompt(t.Context(), i, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.chain(); err != nil {
		t.Fatal(err)
	}
	return s
}
