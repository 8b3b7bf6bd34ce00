package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// Pools and buckets of a served model: fewer pages than rings, so that either may be
// what a request waits for.
const servedRings, servedPages, servedTable = 16, 14, 2

var servedBatches, servedChunks = []int{1, 2, 4, 8, 16}, []int{16, 32, 64}

// servedModel is the tiny checkpoint compiled for requests beside each other, with heads
// that sample, and with whole speculative steps of some numbers of drafts.
type servedModel struct {
	code    *bundle.Code
	weights eval.WeightSource
	layout  engine.Layout
}

func buildServed(t testing.TB, c *codegen.Compiler, chip string, drafts ...int) *servedModel {
	t.Helper()
	m, err := compileServed(t, c, chip, drafts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func compileServed(t testing.TB, c *codegen.Compiler, chip string, drafts []int) (*servedModel, error) {
	const dir = "../../testdata/tiny-dsv4"
	tg, err := target.Lookup(chip)
	if err != nil {
		return nil, err
	}
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadSample
	mod := &passes.Module{Target: tg.ForPasses()}
	for _, e := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Draft} {
		g, err := dsv4.Build(cfg, e, o)
		if err != nil {
			return nil, err
		}
		mod.Entries = append(mod.Entries, g)
	}
	for _, k := range drafts {
		g, err := dsv4.BuildSpeculate(cfg, k, o)
		if err != nil {
			return nil, err
		}
		mod.Entries = append(mod.Entries, g)
	}
	m := &servedModel{}
	if m.layout, err = engine.LayoutOf(mod.Entries[0]); err != nil {
		return nil, err
	}
	if err := passes.Run(mod); err != nil {
		return nil, err
	}
	var buckets []passes.Bucket
	add := func(entry string, t, b int) {
		bind := map[string]int{"T": t, "B": b, "O": b, "R": servedRings, "P": servedTable, "N": servedPages}
		buckets = append(buckets, passes.Bucket{Entry: entry, Bind: bind})
	}
	for _, n := range servedChunks {
		add("prefill", n, 1)
		add("draft", n, 1)
	}
	for _, n := range servedBatches {
		add("decode", n, n)
		for _, k := range drafts {
			add(string(dsv4.SpeculateEntry(k)), n*(k+1), n)
		}
	}
	m.code, m.weights, err = buildBound(t, c, tg, mod, buckets, dir)
	return m, err
}

// buildBound compiles a module on which the passes on graphs ran, and binds a
// checkpoint's weights to the code.
func buildBound(t testing.TB, c *codegen.Compiler, tg *target.Target, m *passes.Module, buckets []passes.Bucket, dir string) (*bundle.Code, eval.WeightSource, error) {
	files, _, err := c.Build(context.Background(), tg, m, buckets, codegen.Emit{})
	if err != nil {
		return nil, nil, err
	}
	code, err := files.Decode(tg.Name)
	if err != nil {
		return nil, nil, err
	}
	pack, err := code.PackGraph()
	if err != nil {
		return nil, nil, err
	}
	file, err := weights.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { file.Close() })
	bound, err := engine.BindPack(pack, engine.CheckpointSource{File: file})
	return code, bound, err
}

// servedRun is a served model on a device.
type servedRun struct {
	*device.Executor
	m      *servedModel
	states []*device.State
}

func (m *servedModel) start(t testing.TB, open func() (device.Device, error)) *servedRun {
	t.Helper()
	dev, err := open()
	if err != nil {
		t.Fatal(err)
	}
	x, err := device.NewExecutor(t.Context(), dev, m.code.Object, m.code.Module, m.weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &servedRun{Executor: x, m: m}
}

// NewState implements engine.Executor, and keeps the states.
func (r *servedRun) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := r.Executor.NewState(entry, bind)
	if s, ok := st.(*device.State); ok && err == nil {
		r.states = append(r.states, s)
	}
	return st, err
}

// scheduler makes an engine with pools of its own, full of canaries, and a scheduler.
func (r *servedRun) scheduler(t testing.TB, l engine.Limits) *engine.Scheduler {
	t.Helper()
	e, err := engine.New(r, r.m.layout, servedRings, servedPages)
	if err != nil {
		t.Fatal(err)
	}
	st := r.states[len(r.states)-1]
	for _, name := range st.Names() {
		b := PoolBytes(t, st, name)
		for i := range b {
			b[i] = canary
		}
		check(t, st.SetBytes(name, b))
	}
	l.SessionPages = servedTable
	s, err := engine.NewScheduler(e, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// close closes states and device, or says what of it fails.
func (r *servedRun) close() error {
	var errs []error
	for _, st := range r.states {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, r.Executor.Close())...)
}

// servedKind is a request, and what it gives alone.
type servedKind struct {
	engine.Request
	want []int32
}

// kinds makes n requests of 1 to 64 prompt tokens and 1 to 16 new ones, greedy and sampled
// ones, each run alone in chunks of 7 tokens on one core.
func (m *servedModel) kinds(t testing.TB, open func() (device.Device, error), n int) []servedKind {
	t.Helper()
	cores := runtime.GOMAXPROCS(1)
	run := m.start(t, open)
	runtime.GOMAXPROCS(cores)
	s := run.scheduler(t, engine.Limits{Sessions: 1, Chunk: 7})
	ids := Prompt(64 + n)
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]servedKind, n)
	for i := range list {
		k := &list[i]
		k.Prompt, k.MaxNew = ids[i:i+1+r.IntN(64)], 1+r.IntN(16)
		if i%2 == 1 {
			k.Sampling = engine.Sampling{Temperature: 0.5 + r.Float64(), TopK: r.IntN(50), Seed: r.Uint64()}
		}
		x, err := s.Submit(k.Request, nil)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s.Drain(t.Context()))
		out := x.Wait()
		if out.Err != nil || len(out.IDs) != k.MaxNew {
			t.Fatalf("request %d alone: %v, error %v", i, out.IDs, out.Err)
		}
		k.want = out.IDs
	}
	check(t, run.close())
	return list
}

// heap is the memory of what is reachable.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// servedHeap is how much the heap may grow from a fifth of a soak to its end: less than
// what a request leaves behind that is not let go, times the requests of a short soak.
const servedHeap = 1 << 20

// Soak serves requests from several goroutines, a fifth of which are cancelled at some
// stage: each gives what it gives alone by plain steps, and nothing is left of it. Some run
// by plain steps, and behind them some by speculative ones.
func Soak(t *testing.T, chip string, open func() (device.Device, error), plain, speculative int) {
	const k = 2
	m := buildServed(t, Compiler(t), chip, k)
	kinds := m.kinds(t, open, 24)
	t.Run("plain", func(t *testing.T) { m.soak(t, open, kinds, plain, 0) })
	t.Run("speculative", func(t *testing.T) { m.soak(t, open, kinds, speculative, k) })
}

// soak is one of both, with that many drafts a step.
func (m *servedModel) soak(t *testing.T, open func() (device.Device, error), kinds []servedKind, requests, drafts int) {
	const clients, ahead = 4, 8 // requests that a client waits for
	goroutines := runtime.NumGoroutine()
	f := newCPUFaults()
	run := m.start(t, f.opener(open))
	s := run.scheduler(t, engine.Limits{Queue: clients * ahead, Drafts: drafts})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	var mu sync.Mutex
	ended := map[engine.Ending]int{}
	client := func(seed uint64, n int) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		var wg sync.WaitGroup
		defer wg.Wait()
		places := make(chan struct{}, ahead)
		for range n {
			k := &kinds[r.IntN(len(kinds))]
			after := -1 // tokens until it is cancelled
			if r.IntN(5) == 0 {
				after = r.IntN(k.MaxNew + 1)
			}
			places <- struct{}{}
			heard, self := 0, make(chan *engine.Session, 1)
			x, err := s.Submit(k.Request, func(int32) error {
				if heard++; heard == after {
					(<-self).Cancel()
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			self <- x
			if after == 0 {
				x.Cancel()
			}
			wg.Go(func() {
				out := x.Wait()
				switch {
				case out.Err != nil && (after < 0 || !errors.Is(out.Err, engine.ErrCancelled)):
					t.Errorf("a request ended with %v", out.Err)
				case out.Err == nil && !slices.Equal(out.IDs, k.want), !slices.Equal(out.IDs, k.want[:len(out.IDs)]):
					t.Errorf("a request gives %v (error %v), alone %v", out.IDs, out.Err, k.want)
				}
				mu.Lock()
				ended[x.End()]++
				mu.Unlock()
				<-places
			})
		}
	}
	serve := func(seed uint64, n int) int64 {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { client(seed+uint64(i), n/clients) })
		}
		wg.Wait()
		return heap()
	}
	before := serve(1, requests/5)
	after := serve(100, requests-requests/5)
	if after-before > servedHeap {
		t.Errorf("the heap grows from %d to %d bytes", before, after)
	}
	if l := s.Load(); l != (engine.Load{}) {
		t.Errorf("in the end there is %+v", l)
	}
	if st := s.Stats(); st.Steps == 0 || drafts > 0 && (st.Drafts.Accepted[0] == 0 || st.Drafts.Accepted[0] == st.Drafts.Drafted[0]) {
		t.Errorf("in all %+v", st)
	}
	n := ended[engine.EndLength]
	if c := ended[engine.EndCancelled]; n+c != requests/clients*clients || c < requests/10 || c > requests/3 {
		t.Errorf("of %d requests %v", requests, ended)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("serving ended with %v", err)
	}
	check(t, run.close())
	if left := f.left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	awaitGoroutines(t, goroutines)
}

// awaitGoroutines waits for those that have been told to end.
func awaitGoroutines(t testing.TB, n int) {
	t.Helper()
	for start := time.Now(); runtime.NumGoroutine() > n; runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), n)
		}
	}
}

// ServedFaults lets things go wrong while requests are beside each other, after some
// steps. What is the device's ends all with its error, and nothing is left; what is a
// request's, or another state's, changes nothing of the others.
func ServedFaults(t *testing.T, chip string, open func() (device.Device, error)) {
	const k = 2
	m := buildServed(t, Compiler(t), chip, k)
	kinds := m.kinds(t, open, 6)
	for _, l := range []engine.Limits{{Sessions: 4}, {Sessions: 4, Drafts: k}} {
		m.faultsServed(t, open, kinds, l)
	}
}

// faultsServed is each of the faults, with and without drafts.
func (m *servedModel) faultsServed(t *testing.T, open func() (device.Device, error), kinds []servedKind, l engine.Limits) {
	for _, after := range []int{0, 5} {
		for _, tc := range []struct {
			kind FaultKind
			arm  func(f *cpuFaults)
		}{
			{FaultLaunch, func(f *cpuFaults) { f.launch = 5 }},
			{FaultLost, func(f *cpuFaults) { f.dies = true }},
			{FaultMemory, func(f *cpuFaults) { f.allocs = 2 }},
		} {
			t.Run(fmt.Sprintf("%d drafts, %s after %d steps", l.Drafts, tc.kind, after), func(t *testing.T) {
				goroutines := runtime.NumGoroutine()
				m.faultServed(t, open, kinds, l, tc.kind, tc.arm, after)
				awaitGoroutines(t, goroutines)
			})
		}
	}
	t.Run(fmt.Sprintf("%d drafts, NaN", l.Drafts), func(t *testing.T) { m.spoilServed(t, open, kinds, l) })
}

func submitAll(t testing.TB, s *engine.Scheduler, kinds []servedKind) []*engine.Session {
	t.Helper()
	var list []*engine.Session
	for _, k := range kinds {
		x, err := s.Submit(k.Request, nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	return list
}

func steps(t testing.TB, s *engine.Scheduler, n int) {
	t.Helper()
	for range n {
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
	}
}

// allAlone checks that sessions gave what each gives alone.
func allAlone(t testing.TB, when string, list []*engine.Session, kinds []servedKind) {
	t.Helper()
	for i, x := range list {
		if out := x.Wait(); out.Err != nil || !slices.Equal(out.IDs, kinds[i].want) {
			t.Errorf("%s: request %d gives %v (error %v), alone %v", when, i, out.IDs, out.Err, kinds[i].want)
		}
	}
}

func (m *servedModel) faultServed(t *testing.T, open func() (device.Device, error), kinds []servedKind, l engine.Limits, kind FaultKind, arm func(*cpuFaults), after int) {
	f := newCPUFaults()
	run := m.start(t, f.opener(open))
	s := run.scheduler(t, l)
	list := submitAll(t, s, kinds)
	steps(t, s, after)
	arm(f)
	if kind == FaultMemory { // for another state
		states := len(run.states)
		if _, err := engine.New(run, m.layout, servedRings, servedPages); !errors.Is(err, ErrInjected) || len(run.states) != states {
			t.Errorf("an engine without memory: error %v", err)
		}
		check(t, s.Drain(t.Context()))
		allAlone(t, "after the fault", list, kinds)
	} else {
		err := s.Drain(t.Context())
		if !errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), "plan ") {
			t.Errorf("error %v, want the device's, with the plan", err)
		}
		for i, x := range list {
			out, want := x.Wait(), kinds[i].want
			if ended := out.Err == nil; ended && !slices.Equal(out.IDs, want) || !ended && !errors.Is(out.Err, ErrInjected) || !slices.Equal(out.IDs, want[:len(out.IDs)]) {
				t.Errorf("request %d gives %v (error %v), alone %v", i, out.IDs, out.Err, want)
			}
		}
		if _, err := s.Submit(kinds[0].Request, nil); !errors.Is(err, ErrInjected) {
			t.Errorf("a request after the fault: error %v", err)
		}
	}
	if l := s.Load(); l != (engine.Load{}) {
		t.Errorf("after the fault there is %+v", l)
	}
	if kind == FaultLost {
		if err := run.close(); err != nil && !errors.Is(err, ErrInjected) {
			t.Error(err)
		}
		return
	}
	again := run.scheduler(t, engine.Limits{Drafts: l.Drafts})
	list = submitAll(t, again, kinds)
	check(t, again.Drain(t.Context()))
	allAlone(t, "in other pools after the fault", list, kinds)
	check(t, run.close())
	if left := f.left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// spoilServed makes NaN of the window of the first session, which has ring 0, while four
// run: its next token is none, and the others are as ever.
func (m *servedModel) spoilServed(t *testing.T, open func() (device.Device, error), kinds []servedKind, l engine.Limits) {
	run := m.start(t, open)
	s := run.scheduler(t, l)
	kinds = slices.Clone(kinds)
	long := engine.Request{Prompt: kinds[0].Prompt, MaxNew: 30}
	kinds[0].Request = long
	list := submitAll(t, s, kinds)
	steps(t, s, 9)
	st := run.states[0]
	for _, name := range st.Names() {
		if b := PoolBytes(t, st, name); strings.HasSuffix(name, ".window") {
			for i := range b[:len(b)/servedRings] {
				b[i] = 0xff // NaN of bf16
			}
			check(t, st.SetBytes(name, b))
		}
	}
	check(t, s.Drain(t.Context()))
	var fault *engine.RowFault
	if out := list[0].Wait(); !errors.As(out.Err, &fault) || fault.Flags&ir.ArgmaxNaN == 0 || len(out.IDs) == 0 {
		t.Errorf("the request with NaN gives %v (error %v)", out.IDs, out.Err)
	}
	allAlone(t, "beside NaN", list[1:], kinds[1:])
	check(t, run.close())
}

// ServedSpeculates serves random requests by speculative steps of 1 to 3 drafts, 1, 3 and 8
// at a time, which arrive between steps in random order; a fifth is cancelled at some
// stage. Each gives what it gives alone by plain steps, and drafts and accepts what it does
// among any others.
func ServedSpeculates(t *testing.T, chip string, open func() (device.Device, error), requests int) {
	m := buildServed(t, Compiler(t), chip, 1, 2, 3)
	kinds := m.kinds(t, open, 16)
	run := m.start(t, open)
	for k := 1; k <= 3; k++ {
		alone := map[int]engine.Outcome{} // by kind
		for _, batch := range []int{1, 3, 8} {
			t.Run(fmt.Sprintf("K=%d, %d at a time", k, batch), func(t *testing.T) {
				m.serveRandom(t, run, kinds, engine.Limits{Sessions: batch, Drafts: k, Queue: requests}, requests, alone)
			})
		}
	}
	t.Run("as many drafts as a step has rows for", func(t *testing.T) {
		m.serveRandom(t, run, kinds, engine.Limits{Sessions: 8, Drafts: 3, Rows: 16, Queue: requests}, requests, nil)
	})
	check(t, run.close())
}

// serveRandom is one of them. alone has, by kind, steps and drafts of an earlier request;
// it is nil where those depend on what runs beside it.
func (m *servedModel) serveRandom(t *testing.T, run *servedRun, kinds []servedKind, l engine.Limits, requests int, alone map[int]engine.Outcome) {
	s := run.scheduler(t, l)
	r := rand.New(rand.NewPCG(uint64(l.Drafts), uint64(l.Sessions)))
	var list []*engine.Session
	var which []int
	cancelled := map[int]bool{}
	for len(list) < requests || s.Load() != (engine.Load{}) {
		for n := r.IntN(4); n > 0 && len(list) < requests; n-- {
			i, at := r.IntN(len(kinds)), len(list)
			after := -1 // tokens until it is cancelled
			if r.IntN(5) == 0 {
				after, cancelled[at] = r.IntN(kinds[i].MaxNew+1), true
			}
			heard := 0
			x, err := s.Submit(kinds[i].Request, func(int32) error {
				if heard++; heard == after {
					list[at].Cancel()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if list, which = append(list, x), append(which, i); after == 0 {
				x.Cancel()
			}
		}
		steps(t, s, 1+r.IntN(3))
	}
	for at, x := range list {
		out, want := x.Wait(), kinds[which[at]].want
		switch {
		case out.Err != nil && (!cancelled[at] || !errors.Is(out.Err, engine.ErrCancelled)):
			t.Errorf("request %d ended with %v", at, out.Err)
		case out.Err == nil && !slices.Equal(out.IDs, want), !slices.Equal(out.IDs, want[:len(out.IDs)]):
			t.Errorf("request %d gives %v (error %v), alone %v", at, out.IDs, out.Err, want)
		}
		if out.Err != nil || alone == nil {
			continue
		}
		before, known := alone[which[at]]
		if alone[which[at]] = out; known && (before.Steps != out.Steps || fmt.Sprint(before.Drafts) != fmt.Sprint(out.Drafts)) {
			t.Errorf("request %d: %d steps, drafts %v, among others %d and %v", at, out.Steps, out.Drafts, before.Steps, before.Drafts)
		}
	}
	st := s.Stats()
	for i, n := range st.Drafts.Accepted {
		if n == 0 || n == st.Drafts.Drafted[i] {
			t.Errorf("drafts %v, want right and wrong ones at each place", st.Drafts)
		}
	}
	t.Logf("%d steps, acceptance %.3f", st.Steps, st.Drafts.Acceptance())
}
