package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// looked is an executor in buckets that lets a test look at each step.
type looked struct {
	Executor
	steps []string // entry and live rows of each
	look  func(entry string, in Tensors, run func() (Tensors, error)) (Tensors, error)
}

func (x *looked) Run(entry string, bind map[string]int, in Tensors, st State) (Tensors, error) {
	live := 0
	for _, r := range in["req"].I {
		if r != noRow {
			live++
		}
	}
	x.steps = append(x.steps, fmt.Sprintf("%s %d", entry[:1], live))
	run := func() (Tensors, error) { return x.Executor.Run(entry, bind, in, st) }
	if x.look == nil {
		return run()
	}
	return x.look(entry, in, run)
}

// scheduled is a scheduler over the oracle, in pools of canaries: 3 rings, 4 pages,
// chunks of up to 8 tokens.
type scheduled struct {
	*Scheduler
	m    *tinyModel
	exec *looked
}

func scheduler(t testing.TB, l Limits) *scheduled {
	t.Helper()
	return schedulerOf(t, withHead(t, dsv4.HeadSample), l)
}

func schedulerOf(t testing.TB, m *tinyModel, l Limits) *scheduled {
	t.Helper()
	x := &looked{Executor: &Buckets{Executor: m.ref, Decode: []int{1, 4}, Prefill: []int{4, 8}, Pages: 2}}
	e, err := New(x, m.layout, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	e.fillCanary()
	if l.SessionPages == 0 {
		l.SessionPages = 2
	}
	s, err := NewScheduler(e, l)
	if err != nil {
		t.Fatal(err)
	}
	return &scheduled{s, m, x}
}

func (s *scheduled) submit(t testing.TB, r Request, emit func(id int32) error) *Session {
	t.Helper()
	x, err := s.Submit(r, emit)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (s *scheduled) drain(t testing.TB) {
	t.Helper()
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.empty(t)
}

// empty checks that nothing waits, runs or is held.
func (s *scheduled) empty(t testing.TB) {
	t.Helper()
	if l := s.Load(); l != (Load{}) {
		t.Errorf("in the end there is %+v", l)
	}
}

// servedRequests are greedy and sampled ones, with prompts of less and more than a chunk.
func servedRequests(t testing.TB) []Request {
	t.Helper()
	ids := goldenIDs(t, "long")
	var list []Request
	for i, by := range []Sampling{{}, {Temperature: 1, Seed: 1}, {Temperature: 0.7, TopK: 5, Seed: 2}, {}, {Temperature: 1.3, TopP: 0.9, Seed: 3}} {
		list = append(list, Request{Prompt: ids[i : i+[]int{3, 18, 1, 9, 8}[i]], MaxNew: []int{5, 2, 1, 4, 3}[i], Sampling: by})
	}
	return list
}

// servedAlone is what each of them gives alone, by Generate in an engine of its own.
var servedAlone = func() func(t testing.TB) [][]int32 {
	var once sync.Once
	var want [][]int32
	return func(t testing.TB) [][]int32 {
		t.Helper()
		once.Do(func() {
			for _, r := range servedRequests(t) {
				want = append(want, generate(t, withHead(t, dsv4.HeadSample), r))
			}
		})
		return want
	}
}()

// Each request gets what it gets alone, whatever is beside it, before it and behind it,
// however its prompt is cut; and no step writes a row of the pools, which are full of
// canaries, but its own tokens'.
func TestSchedulerGivesWhatEachGetsAlone(t *testing.T) {
	reqs, want := servedRequests(t), servedAlone(t)
	for _, tc := range []struct {
		order []int
		l     Limits
	}{
		{[]int{0, 1, 2, 3, 4}, Limits{}},
		{[]int{4, 3, 2, 1, 0}, Limits{Chunk: 7}},
		{[]int{1, 4, 0, 3, 2}, Limits{Sessions: 2, Chunk: 4}},
		{[]int{1}, Limits{Chunk: 1}},
		{[]int{2, 0, 4}, Limits{Rows: 1}},
		{[]int{4, 2, 0}, Limits{Rows: 3}}, // two would take a step of four
	} {
		t.Run(fmt.Sprint(tc.order, tc.l), func(t *testing.T) {
			s := scheduler(t, tc.l)
			if n := s.StepSessions(); (n == 1) != (tc.l.Rows > 0) {
				t.Errorf("steps have %d sessions", n)
			}
			s.exec.look = s.canary(t)
			var sessions []*Session
			heard := make([][]int32, len(tc.order))
			for i, r := range tc.order {
				sessions = append(sessions, s.submit(t, reqs[r], func(id int32) error { heard[i] = append(heard[i], id); return nil }))
			}
			s.drain(t)
			for i, r := range tc.order {
				out := sessions[i].Wait()
				if out.Err != nil || !slices.Equal(out.IDs, want[r]) || !slices.Equal(heard[i], want[r]) {
					t.Errorf("request %d: %v, heard %v, error %v; alone %v", r, out.IDs, heard[i], out.Err, want[r])
				}
				if sessions[i].End() != EndLength {
					t.Errorf("request %d ended by %s", r, sessions[i].End())
				}
			}
		})
	}
}

// However a prompt is cut, what it leaves in the pools is the same, compressor state and
// compressed entries included.
func TestSchedulerChunks(t *testing.T) {
	r := Request{Prompt: goldenIDs(t, "long")[:70], MaxNew: 2}
	var want Tensors
	for _, chunk := range []int{8, 7} {
		s := scheduler(t, Limits{Chunk: chunk})
		s.submit(t, r, nil)
		s.drain(t)
		if want == nil {
			want = s.e.snapshot()
		}
		samePools(t, fmt.Sprintf("chunks of %d", chunk), want, s.e.allPools())
	}
}

// canary checks each step's writes: those of the main model's steps to its pools, those of
// the MTP block to its own, where drafts are written that no step may read.
func (s *scheduled) canary(t *testing.T) func(string, Tensors, func() (Tensors, error)) (Tensors, error) {
	return func(entry string, in Tensors, run func() (Tensors, error)) (Tensors, error) {
		before := s.e.snapshot()
		out, err := run()
		var feeds, drafted []Feed
		for b, ring := range in["ring"].I {
			if ring == noRow {
				continue
			}
			n, from := 0, 0
			for row, r := range in["req"].I {
				if r != int64(b) {
					continue
				}
				if n++; n == 1 {
					from = int(in["pos"].I[row])
				}
			}
			i := slices.IndexFunc(s.running, func(x *Session) bool { return x.seq.Ring == int(ring) })
			if i < 0 {
				t.Fatalf("ring %d of a step is no session's", ring)
			}
			seq := &Seq{Ring: int(ring), Pages: s.running[i].seq.Pages, Len: from}
			feeds = append(feeds, Feed{Seq: seq, IDs: make([]int32, n)})
			drafted = append(drafted, Feed{Seq: seq, IDs: make([]int32, 2*s.limits.Drafts)})
		}
		mtp := func(pool string) bool { return strings.HasPrefix(pool, "mtp.") }
		main := func(pool string) bool { return !mtp(pool) }
		switch {
		case entry == entryDraft:
			s.m.checkWrites(t, s.e, before, feeds, mtp, true)
			s.m.checkWrites(t, s.e, before, nil, main, false)
		case strings.HasPrefix(entry, "speculate"):
			s.m.checkWrites(t, s.e, before, feeds, main, true)
			s.m.checkWrites(t, s.e, before, drafted, mtp, false)
		default:
			s.m.checkWrites(t, s.e, before, feeds, main, true)
			s.m.checkWrites(t, s.e, before, nil, mtp, false)
		}
		return out, err
	}
}

// Chunks of prompts alternate with decode steps; one prompt is fed at a time, in the
// order of admission; a request that does not fit holds up those behind it.
func TestSchedulerPolicy(t *testing.T) {
	ids := goldenIDs(t, "long")
	s := scheduler(t, Limits{})
	s.submit(t, Request{Prompt: ids[:2], MaxNew: 6}, nil)
	s.submit(t, Request{Prompt: ids[:19], MaxNew: 2}, nil)
	s.submit(t, Request{Prompt: ids[:10], MaxNew: 150}, nil).Cancel() // before it is admitted
	s.submit(t, Request{Prompt: ids[:5], MaxNew: 1}, nil)
	s.drain(t)
	want := []string{"p 2", "d 1", "p 8", "d 1", "p 8", "d 1", "p 3", "d 2", "p 5", "d 1"}
	if diff := cmp.Diff(want, s.exec.steps); diff != "" {
		t.Errorf("steps: -want +got:\n%s", diff)
	}

	// Two pages each: the second waits for the first, the third, of one page, for both.
	s = scheduler(t, Limits{Pages: 3})
	first := s.submit(t, Request{Prompt: ids[:3], MaxNew: 130, Stop: []int32{}}, nil)
	second := s.submit(t, Request{Prompt: ids[:3], MaxNew: 130}, nil)
	third := s.submit(t, Request{Prompt: ids[:3], MaxNew: 1}, nil)
	for range 3 {
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.Load(), (Load{Waiting: 2, Running: 1, Rings: 1, Pages: 2}); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
	first.Cancel()
	if _, err := s.Step(); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Load(), (Load{Running: 2, Rings: 2, Pages: 3}); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
	second.Cancel()
	s.drain(t)
	if a, b, c := first.End(), second.End(), third.End(); a != EndCancelled || b != EndCancelled || c != EndLength {
		t.Errorf("ended by %s, %s and %s", a, b, c)
	}
}

// A request may be cancelled while it waits, between chunks of its prompt, by its own
// token and between decode steps; it ends before its next token with those that it had,
// its place is free, and the others do not notice.
func TestSchedulerCancels(t *testing.T) {
	reqs, want := servedRequests(t), servedAlone(t)
	for victim, steps := range [][]int{{0, 1, 4}, {1, 2, 3}, {0, 6}} {
		for _, after := range steps {
			s := scheduler(t, Limits{Sessions: 2, Chunk: 7})
			var sessions []*Session
			for _, r := range []int{0, 1, 4} {
				sessions = append(sessions, s.submit(t, reqs[r], nil))
			}
			for range after {
				if _, err := s.Step(); err != nil {
					t.Fatal(err)
				}
			}
			x := sessions[victim]
			ended := false
			select {
			case <-x.Done():
				ended = true
			default:
			}
			had := len(x.out.IDs)
			x.Cancel()
			s.drain(t)
			for i, r := range []int{0, 1, 4} {
				out := sessions[i].Wait()
				switch {
				case i != victim || ended:
					if out.Err != nil || !slices.Equal(out.IDs, want[r]) {
						t.Errorf("%d cancelled after %d steps: request %d gives %v, error %v; alone %v", victim, after, i, out.IDs, out.Err, want[r])
					}
				case !errors.Is(out.Err, ErrCancelled) || !slices.Equal(out.IDs, want[r][:had]) || x.End() != EndCancelled:
					t.Errorf("%d cancelled after %d steps: %v, error %v; want %v", victim, after, out.IDs, out.Err, want[r][:had])
				}
			}
		}
	}
	// By itself, as it hears of a token.
	s := scheduler(t, Limits{})
	var x *Session
	x = s.submit(t, reqs[0], func(int32) error {
		if len(x.out.IDs) == 2 {
			x.Cancel()
		}
		return nil
	})
	s.drain(t)
	if out := x.Wait(); !errors.Is(out.Err, ErrCancelled) || !slices.Equal(out.IDs, want[0][:2]) {
		t.Errorf("cancelled by itself: %v, error %v", out.IDs, out.Err)
	}
}

// A stop token, a faulty row and an emit that fails end their request alone.
func TestSchedulerEndsOne(t *testing.T) {
	reqs, want := servedRequests(t), servedAlone(t)
	s := scheduler(t, Limits{})
	full := errors.New("sink is full")
	stop := reqs[0]
	stop.Stop = want[0][2:3]
	end := slices.Index(want[0], stop.Stop[0]) + 1
	a := s.submit(t, stop, nil)
	b := s.submit(t, reqs[3], func(int32) error { return full })
	c := s.submit(t, reqs[4], nil)
	s.drain(t)
	if out := a.Wait(); out.Err != nil || !slices.Equal(out.IDs, want[0][:end]) || a.End() != EndStop {
		t.Errorf("with a stop token: %v, error %v, ended by %s", out.IDs, out.Err, a.End())
	}
	if out := b.Wait(); !errors.Is(out.Err, full) || out.Err.Error() != "position 8: sink is full" || b.End() != EndError {
		t.Errorf("with a full sink: %v, error %v, ended by %s", out.IDs, out.Err, b.End())
	}
	if out := c.Wait(); out.Err != nil || !slices.Equal(out.IDs, want[4]) {
		t.Errorf("beside them: %v, error %v", out.IDs, out.Err)
	}

	// The second row of the first decode step of two is flagged: NaN among its logits.
	s = scheduler(t, Limits{})
	flagged := false
	s.exec.look = func(entry string, _ Tensors, run func() (Tensors, error)) (Tensors, error) {
		out, err := run()
		if flags := out[sampleFlags]; entry == entryDecode && err == nil && len(flags.I) > 1 && !flagged {
			flags.I[1], flagged = ir.ArgmaxNaN, true
		}
		return out, err
	}
	var list []*Session
	for _, r := range []int{0, 3, 4} {
		list = append(list, s.submit(t, reqs[r], nil))
	}
	s.drain(t)
	var fault *RowFault
	if out := list[1].Wait(); !errors.As(out.Err, &fault) || !slices.Equal(out.IDs, want[3][:len(out.IDs)]) || len(out.IDs) == 0 {
		t.Errorf("the faulty row: %v, error %v", out.IDs, out.Err)
	}
	for i, r := range map[int]int{0: 0, 2: 4} {
		if out := list[i].Wait(); out.Err != nil || !slices.Equal(out.IDs, want[r]) {
			t.Errorf("beside a faulty row: %v, error %v", out.IDs, out.Err)
		}
	}
}

// What cannot finish is refused before anything runs.
func TestSchedulerRefuses(t *testing.T) {
	s := scheduler(t, Limits{Queue: 2})
	ids := make([]int32, 4097)
	for _, tc := range []struct {
		name string
		r    Request
		want string
	}{
		{"no prompt", Request{MaxNew: 1}, "the prompt has no tokens"},
		{"positions", Request{Prompt: ids[:4000], MaxNew: 97}, "the prompt has 4000 tokens and max_position_embeddings is 4096, so at most 96 new tokens fit, not 97"},
		{"pages", Request{Prompt: ids[:200], MaxNew: 57}, "200 prompt tokens, 57 new ones and 0 drafts need 257 positions, a session has 256 (2 pages of 128)"},
		{"vocabulary", Request{Prompt: []int32{2048}, MaxNew: 1}, "prompt token 0: id 2048 is out of vocabulary (2048)"},
		{"sampling", Request{Prompt: ids[:1], MaxNew: 1, Sampling: Sampling{Temperature: -1}}, "temperature is -1, want a finite number of at least 0"},
	} {
		wantError(t, tc.name, func() error { _, err := s.Submit(tc.r, nil); return err }, tc.want)
	}
	r := Request{Prompt: ids[:200], MaxNew: 56}
	s.submit(t, r, nil).Cancel()
	s.submit(t, r, nil).Cancel()
	wantError(t, "queue", func() error { _, err := s.Submit(r, nil); return err }, "2 requests wait already, as many as may")
	s.drain(t)
	if len(s.exec.steps) > 0 {
		t.Errorf("steps %v ran", s.exec.steps)
	}
}

func TestNewSchedulerRefuses(t *testing.T) {
	s := scheduler(t, Limits{})
	for _, tc := range []struct {
		l    Limits
		want string
	}{
		{Limits{Sessions: 4}, "scheduler: 4 sessions at a time, want at most 3"},
		{Limits{Pages: 5}, "scheduler: 5 pages, want at most 4"},
		{Limits{Pages: 1, SessionPages: 2}, "scheduler: 2 pages of a session, want at most 1"},
		{Limits{Queue: -1}, "scheduler: -1 waiting requests, want at most 2147483647"},
		{Limits{Chunk: 9}, "scheduler: 9 tokens of a prefill step, want at most 8"},
		{Limits{Drafts: 4}, "scheduler: 4 drafts, want at most 3"},
		{Limits{SessionPages: 3}, "scheduler: entry prefill: no bucket holds {T:8 B:1 O:1 P:3}"},
	} {
		wantError(t, tc.want, func() error { _, err := NewScheduler(s.e, tc.l); return err }, tc.want)
	}
	few := &Buckets{Executor: s.m.ref, Decode: []int{2}, Prefill: []int{4}, Pages: 4}
	e, err := New(few, s.m.layout, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := "scheduler: a decode step of one request has 2 rows, beyond 1, where its order class ends: results would depend on the batch"
	wantError(t, want, func() error { _, err := NewScheduler(e, Limits{Rows: 1}); return err }, want)
	want = "scheduler: entry decode: no bucket holds {T:3 B:3 O:3 P:4}"
	wantError(t, want, func() error { _, err := NewScheduler(e, Limits{}); return err }, want)
}

// The device's error ends all sessions with it, those that wait too, gives their places
// back, and nothing is taken on any more.
func TestSchedulerDeviceError(t *testing.T) {
	reqs := servedRequests(t)
	lost := errors.New("the device is lost")
	for _, at := range []int{1, 2, 4} {
		s := scheduler(t, Limits{Sessions: 2})
		s.exec.look = func(_ string, _ Tensors, run func() (Tensors, error)) (Tensors, error) {
			if len(s.exec.steps) == at {
				return nil, lost
			}
			return run()
		}
		var list []*Session
		for _, r := range []int{0, 1, 3} {
			list = append(list, s.submit(t, reqs[r], nil))
		}
		err := s.Drain(t.Context())
		if !errors.Is(err, lost) {
			t.Errorf("error %v, want the device's", err)
		}
		for i, x := range list {
			if out := x.Wait(); !errors.Is(out.Err, lost) || x.End() != EndError {
				t.Errorf("at step %d: request %d ended with error %v", at, i, out.Err)
			}
		}
		s.empty(t)
		if _, err := s.Submit(reqs[0], nil); !errors.Is(err, lost) || !strings.HasPrefix(err.Error(), "no request is taken on any more: ") {
			t.Errorf("a request after the error: %v", err)
		}
		if _, err := s.Step(); !errors.Is(err, lost) {
			t.Errorf("a step after the error: %v", err)
		}
	}
}

// Serve takes requests from other goroutines until its context ends, which ends what is
// left as cancelled.
func TestSchedulerServes(t *testing.T) {
	reqs, want := servedRequests(t), servedAlone(t)
	s := scheduler(t, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	var wg sync.WaitGroup
	for i, r := range reqs {
		wg.Go(func() {
			x, err := s.Submit(r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if out := x.Wait(); out.Err != nil || !slices.Equal(out.IDs, want[i]) {
				t.Errorf("request %d: %v, error %v; alone %v", i, out.IDs, out.Err, want[i])
			}
		})
	}
	wg.Wait()
	begun := make(chan struct{})
	long := s.submit(t, Request{Prompt: reqs[0].Prompt, MaxNew: 200}, func(int32) error { poke(begun); return nil })
	<-begun
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("serving ended with %v", err)
	}
	if long.End() != EndCancelled {
		t.Errorf("the request that was left ended by %s, %v", long.End(), long.Wait().Err)
	}
	s.empty(t)
	if _, err := s.Submit(reqs[0], nil); !errors.Is(err, ErrCancelled) {
		t.Errorf("a request after the end: %v", err)
	}
}
