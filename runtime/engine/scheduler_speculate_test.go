package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// speculating is the tiny checkpoint with whole speculative steps of 1 to 3 drafts, and
// heads that sample.
var speculating = func() func(t testing.TB) *tinyModel {
	var once sync.Once
	var h *tinyModel
	var err error
	return func(t testing.TB) *tinyModel {
		t.Helper()
		m := tiny(t, dsv4.Production)
		once.Do(func() {
			o := tinyOptions(dsv4.Production)
			o.Head, o.Taps = dsv4.HeadSample, false
			h, err = buildSpeculating(m.cfg, o, CheckpointSource{m.file}, []int{1, 2, 3}, dsv4.Prefill, dsv4.Decode, dsv4.Draft)
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}()

// draftedRequests are the served ones with more tokens, so that there are drafts of all
// kinds, and what each gives alone by plain steps.
var draftedRequests = func() func(t testing.TB) ([]Request, [][]int32) {
	var once sync.Once
	var reqs []Request
	var want [][]int32
	return func(t testing.TB) ([]Request, [][]int32) {
		t.Helper()
		once.Do(func() {
			reqs = servedRequests(t)
			for i := range reqs {
				if reqs[i].MaxNew > 1 {
					reqs[i].MaxNew += 5
				}
				want = append(want, generate(t, withHead(t, dsv4.HeadSample), reqs[i]))
			}
		})
		return reqs, want
	}
}()

// Requests that speculate beside each other get what each gets alone by plain steps, by
// whole steps and by separate ones, whatever is beside them; no step writes a row of the
// pools that is not its own; and what each drafted and what of it was right is what it
// drafts alone.
func TestSchedulerSpeculates(t *testing.T) {
	reqs, want := draftedRequests(t)
	whole, separate := speculating(t), tiny(t, dsv4.Production)
	alone := map[string]Outcome{} // by drafts and request
	right, wrong := 0, 0
	type servedCase struct {
		m     *tinyModel
		order []int
		l     Limits
	}
	cases := []servedCase{
		{whole, []int{0, 1, 2, 3, 4}, Limits{Drafts: 1}},
		{whole, []int{4, 3, 2, 1, 0}, Limits{Drafts: 2, Chunk: 7, Sessions: 2}},
		{whole, []int{1, 4, 0, 3}, Limits{Drafts: 3, Chunk: 4, Rows: 15}}, // two would take 16 rows
		{separate, []int{4, 0}, Limits{Drafts: 2}},
	}
	if exhaustive {
		cases = append(cases,
			servedCase{whole, []int{0, 1, 2, 3, 4}, Limits{Drafts: 2}},
			servedCase{whole, []int{3, 0}, Limits{Drafts: 3, Sessions: 1, Rows: 4}},
			servedCase{separate, []int{4, 0, 3, 2}, Limits{Drafts: 3}})
	}
	for _, tc := range cases {
		t.Run(fmt.Sprint(tc.order, tc.l), func(t *testing.T) {
			s := schedulerOf(t, tc.m, tc.l)
			s.exec.look = s.canary(t)
			var sessions []*Session
			heard := make([][]int32, len(tc.order))
			for i, r := range tc.order {
				sessions = append(sessions, s.submit(t, reqs[r], func(id int32) error { heard[i] = append(heard[i], id); return nil }))
			}
			s.drain(t)
			total := newDraftStats(tc.l.Drafts)
			for i, r := range tc.order {
				out := sessions[i].Wait()
				if out.Err != nil || !slices.Equal(out.IDs, want[r]) || !slices.Equal(heard[i], want[r]) {
					t.Errorf("request %d: %v, heard %v, error %v; alone %v", r, out.IDs, heard[i], out.Err, want[r])
				}
				for n := range total.Drafted {
					total.Drafted[n] += out.Drafts.Drafted[n]
					total.Accepted[n] += out.Drafts.Accepted[n]
				}
				key := fmt.Sprint(tc.l.Drafts, r)
				before, known := alone[key]
				if alone[key] = out; known && (before.Steps != out.Steps || fmt.Sprint(before.Drafts) != fmt.Sprint(out.Drafts)) {
					t.Errorf("request %d: %d steps and drafts %v, among others %d and %v", r, out.Steps, out.Drafts, before.Steps, before.Drafts)
				}
			}
			st := s.Stats()
			if fmt.Sprint(st.Drafts) != fmt.Sprint(total) {
				t.Errorf("in all %v, of the requests %v", st.Drafts, total)
			}
			right += total.Accepted[0]
			wrong += total.Drafted[0] - total.Accepted[0]
			steps := 0
			for _, entry := range s.exec.steps {
				if strings.HasPrefix(entry, "s") || strings.HasPrefix(entry, "v") {
					steps++
				}
			}
			if st.Steps != steps || steps == 0 {
				t.Errorf("%d steps of the main model, counted %d", steps, st.Steps)
			}
		})
	}
	if right < 10 || wrong < 5 {
		t.Errorf("of the first drafts %d were right and %d wrong, want a variety", right, wrong)
	}
	// Alone, without a scheduler.
	e := whole.engine(t, 1, onePages)
	seq, err := e.NewSeq(0, onePages)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := e.Speculate(t.Context(), []*Seq{seq}, reqs[:1], 1, nil, nobody)
	if among := alone["1 0"]; err != nil || out[0].Steps != among.Steps || fmt.Sprint(out[0].Drafts) != fmt.Sprint(among.Drafts) {
		t.Errorf("alone %d steps and drafts %v (error %v), among others %d and %v", out[0].Steps, out[0].Drafts, err, among.Steps, among.Drafts)
	}
}

// A session holds room for its drafts beyond its last token, and never feeds one there:
// the last position of its steps is that before its last token.
func TestSchedulerDraftsStayInside(t *testing.T) {
	r := Request{Prompt: []int32{0, 303, 222, 17, 5}, MaxNew: 9}
	for name, m := range map[string]*tinyModel{"whole": speculating(t), "separate": tiny(t, dsv4.Production)} {
		for k := 1; k <= 3; k++ {
			s := schedulerOf(t, m, Limits{Drafts: k})
			most := map[string]int64{}
			s.exec.look = func(entry string, in Tensors, run func() (Tensors, error)) (Tensors, error) {
				most[entry] = max(most[entry], slices.Max(in["pos"].I))
				return run()
			}
			x := s.submit(t, r, nil)
			s.drain(t)
			if out := x.Wait(); out.Err != nil || len(out.IDs) != r.MaxNew {
				t.Fatalf("%s, %d drafts: %d tokens, error %v", name, k, len(out.IDs), out.Err)
			}
			last := int64(len(r.Prompt) + r.MaxNew - 2)
			if top := slices.Max(slices.Collect(maps.Values(most))); top != last || int(last) >= s.positions(r) {
				t.Errorf("%s, %d drafts: the largest positions are %v, want %d of %d", name, k, most, last, s.positions(r))
			}
		}
	}
}

// A session that is cancelled at any stage ends before its next token, among the tokens
// of one step too; the others do not notice.
func TestSchedulerSpeculateCancels(t *testing.T) {
	reqs, want := draftedRequests(t)
	order := []int{1, 0, 3}
	for victim, after := range []int{1, 4, 5} {
		s := schedulerOf(t, speculating(t), Limits{Drafts: 2, Chunk: 7})
		var sessions []*Session
		for _, r := range order {
			sessions = append(sessions, s.submit(t, reqs[r], nil))
		}
		for range after {
			if _, err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}
		x := sessions[victim]
		select {
		case <-x.Done():
			t.Fatalf("request %d has ended after %d steps", victim, after)
		default:
		}
		had := len(x.out.IDs)
		x.Cancel()
		s.drain(t)
		for i, r := range order {
			out := sessions[i].Wait()
			if i == victim {
				if !errors.Is(out.Err, ErrCancelled) || !slices.Equal(out.IDs, want[r][:had]) {
					t.Errorf("cancelled after %d steps: %v, error %v; want %v", after, out.IDs, out.Err, want[r][:had])
				}
			} else if out.Err != nil || !slices.Equal(out.IDs, want[r]) {
				t.Errorf("beside one that was cancelled after %d steps: request %d gives %v, error %v; alone %v", after, r, out.IDs, out.Err, want[r])
			}
		}
	}
	// By itself, at each of its tokens.
	for n := 1; n < len(want[0]); n++ {
		s := schedulerOf(t, speculating(t), Limits{Drafts: 3})
		var x *Session
		x = s.submit(t, reqs[0], func(int32) error {
			if len(x.out.IDs) == n {
				x.Cancel()
			}
			return nil
		})
		s.drain(t)
		if out := x.Wait(); !errors.Is(out.Err, ErrCancelled) || !slices.Equal(out.IDs, want[0][:n]) {
			t.Errorf("cancelled by itself at token %d: %v, error %v", n, out.IDs, out.Err)
		}
	}
}

// A stop token among accepted drafts, an emit that fails, a faulty row of the head and a
// faulty draft end their request alone; that the device accepts something else than is
// right ends all.
func TestSchedulerSpeculateEnds(t *testing.T) {
	reqs, want := draftedRequests(t)
	stop := reqs[0]
	stop.Stop = want[0][2:3]
	end := slices.Index(want[0], stop.Stop[0]) + 1
	full := errors.New("sink is full")
	for _, tc := range []struct {
		name string
		r    Request
		emit func(n int) error
		look func(out Tensors)
		want string // of the error; "" for none
		ids  []int32
	}{
		{"stop", stop, nil, nil, "", want[0][:end]},
		{"emit", reqs[0], func(n int) error {
			if n == 3 {
				return full
			}
			return nil
		}, nil, "position 4: sink is full", want[0][:3]},
		{"row", reqs[0], nil, func(out Tensors) { out[sampleFlags].I[0] = ir.ArgmaxNaN }, "a logit is NaN", want[0][:1]},
		{"draft", reqs[0], nil, func(out Tensors) { out[outDraftFlags].I[0] = ir.ArgmaxHigh }, "the MTP block: a logit is +Inf", nil},
	} {
		s := schedulerOf(t, speculating(t), Limits{Drafts: 2})
		armed := tc.look
		s.exec.look = func(entry string, in Tensors, run func() (Tensors, error)) (Tensors, error) {
			out, err := run()
			if strings.HasPrefix(entry, "speculate") && armed != nil && err == nil && in["req"].I[3] == 1 {
				armed(out)
				armed = nil
			}
			return out, err
		}
		n := 0
		x := s.submit(t, tc.r, func(int32) error {
			if n++; tc.emit == nil {
				return nil
			}
			return tc.emit(n)
		})
		beside := s.submit(t, reqs[4], nil)
		// Both are past their prompts, and the steps have both.
		for len(beside.out.IDs) == 0 {
			if s.fed && x.seq != nil && len(x.out.IDs) > 0 {
				s.fed = false // another chunk rather than a step of the first alone
			}
			if _, err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}
		s.drain(t)
		out := x.Wait()
		if tc.want == "" && out.Err != nil || tc.want != "" && (out.Err == nil || !strings.Contains(out.Err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want %q", tc.name, out.Err, tc.want)
		}
		if tc.ids == nil {
			tc.ids = want[0][:len(out.IDs)]
		}
		if !slices.Equal(out.IDs, tc.ids) || len(out.IDs) == 0 {
			t.Errorf("%s: %v, want %v", tc.name, out.IDs, tc.ids)
		}
		if out := beside.Wait(); out.Err != nil || !slices.Equal(out.IDs, want[4]) {
			t.Errorf("%s: beside it %v, error %v", tc.name, out.IDs, out.Err)
		}
	}

	s := schedulerOf(t, speculating(t), Limits{Drafts: 2})
	s.exec.look = func(entry string, _ Tensors, run func() (Tensors, error)) (Tensors, error) {
		out, err := run()
		if strings.HasPrefix(entry, "speculate") && err == nil {
			out[outAcceptLen].I[0] = 7
		}
		return out, err
	}
	list := []*Session{s.submit(t, reqs[0], nil), s.submit(t, reqs[3], nil)}
	err := s.Drain(t.Context())
	if err == nil || !strings.Contains(err.Error(), "speculative step of ") || !strings.Contains(err.Error(), "accepted 7 drafts, of its own tokens ") {
		t.Errorf("error %v", err)
	}
	for i, x := range list {
		if out := x.Wait(); out.Err == nil || x.End() != EndError {
			t.Errorf("request %d ended with %v", i, out.Err)
		}
	}
	s.empty(t)
}

// What cannot speculate is refused.
func TestNewSchedulerRefusesDrafts(t *testing.T) {
	m := speculating(t)
	x := &Buckets{Executor: m.ref, Decode: []int{4}, Prefill: []int{4, 8}, Pages: 2}
	e, err := New(x, m.layout, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	plain := scheduler(t, Limits{})
	for _, tc := range []struct {
		e    *Engine
		l    Limits
		want string
	}{
		{e, Limits{Drafts: 4}, "scheduler: 4 drafts, want at most 3"},
		{plain.e, Limits{Drafts: 1, SessionPages: 2}, "scheduler: the model has no draft entry (no MTP block)"},
		{e, Limits{Drafts: 3, Rows: 3, SessionPages: 2}, "scheduler: a step with 3 drafts has 4 rows of a request, beyond 3, where its order class ends: results would depend on the batch"},
		{e, Limits{Drafts: 3, Rows: 15, SessionPages: 2}, "scheduler: a speculate3 step of one request has 16 rows, beyond 15, where its order class ends: results would depend on the batch"},
		{e, Limits{Drafts: 1, SessionPages: 3}, "scheduler: entry prefill: no bucket holds {T:8 B:1 O:1 P:3}"},
	} {
		wantError(t, tc.want, func() error { _, err := NewScheduler(tc.e, tc.l); return err }, tc.want)
	}
	s, err := NewScheduler(e, Limits{Drafts: 3, SessionPages: 2})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, 4097)
	for want, r := range map[string]Request{
		"4000 prompt tokens, 95 new ones and 3 drafts need 4098 positions, max_position_embeddings is 4096":  {Prompt: ids[:4000], MaxNew: 95},
		"200 prompt tokens, 54 new ones and 3 drafts need 257 positions, a session has 256 (2 pages of 128)": {Prompt: ids[:200], MaxNew: 54},
	} {
		wantError(t, want, func() error { _, err := s.Submit(r, nil); return err }, want)
	}
}
