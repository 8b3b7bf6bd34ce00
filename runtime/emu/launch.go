package emu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// Launch describes one launch of a kernel.
type Launch struct {
	Grid  [3]int // work-groups
	Block [3]int // work-items of a group
	LDS   int    // bytes of dynamic LDS, on top of the kernel's own
	// Kernarg is the whole argument segment, hidden arguments included.
	Kernarg []byte
	// Preloaded starts the kernel as firmware that preloads arguments does, after the
	// code that loads them otherwise.
	Preloaded bool
	// Memory is what the kernel may touch.
	Memory *Space
	// Workers is the number of goroutines that run groups; 0 is one per core.
	Workers int
	// Shuffle, if it is not 0, starts the groups in an order that follows from it.
	Shuffle uint64

	// What looks at the launch; nil is not asked for.
	Sanitize *Sanitize
	Counters *Counters
	Trace    *Trace

	// goOn, if it is not nil, is asked before each share of a group's instructions; its
	// error ends the launch.
	goOn func(*group) error

	reports  *collector // nil without sanitizers
	segment  []byte     // Kernarg, with room for all preloaded words
	entry    int        // index of the first instruction
	dispatch uint64
}

// LaunchError says why a launch does not fit its kernel. Nothing was executed.
type LaunchError struct{ err error }

func (e *LaunchError) Error() string { return e.err.Error() }
func (e *LaunchError) Unwrap() error { return e.err }

// Stats says what a launch did.
type Stats struct {
	Instructions uint64 // of waves
}

// Groups take turns after so many instructions, so that one that waits for another
// in memory does not wait for ever.
const quantum = 1 << 22

// maxIdle is how many turns of all groups may pass without one of them ending
// before the launch is called hung.
const maxIdle = 64

// maxParked is the number of groups that may be under way per worker.
const maxParked = 256

// share is how many instructions a group executes between two looks for cancellation.
const share = quantum / 16

// errStopped ends the other workers of a launch that failed.
var errStopped = errors.New("stopped")

// Run launches the kernel and waits for its end. Groups run in any order, several
// at a time; the error is that of the first group, by index, among those that
// failed, joined with a *SanitizerError if sanitizers found something.
func (k *Kernel) Run(ctx context.Context, l Launch) (Stats, error) {
	if err := k.prepare(&l); err != nil {
		return Stats{}, &LaunchError{fmt.Errorf("kernel %s: %w", k.Meta.Name, err)}
	}
	args := regionOf(l.segment, "kernel arguments")
	args.readOnly = true
	packet := regionOf(k.packet(&l, args.lo), "dispatch packet")
	packet.readOnly = true
	l.dispatch = packet.lo
	rs, err := l.Memory.regions().with(append([]region{args, packet}, k.image...)...)
	if err != nil {
		return Stats{}, fmt.Errorf("kernel %s: %w", k.Meta.Name, err)
	}
	r := &execution{k: k, l: &l, regions: rs, kernarg: args.lo, total: int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])}
	if r.observers, err = l.observers(k); err != nil {
		return Stats{}, fmt.Errorf("kernel %s: %w", k.Meta.Name, err)
	}
	if len(r.observers) > 0 {
		r.watched = k.watched()
	}
	r.order = shuffled(r.total, l.Shuffle)
	workers := l.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var wg sync.WaitGroup
	for range min(int64(workers), r.total) {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Wait()
	if l.reports != nil {
		l.reports.finishing = true
	}
	for _, o := range r.observers {
		o.finish(r.err != nil)
	}
	if l.reports != nil {
		r.err = errors.Join(r.err, l.reports.err())
	}
	runtime.KeepAlive(rs) // which has the only pointers to the segment and the packet
	return Stats{Instructions: uint64(r.instructions.Load())}, r.err
}

// segmentAlign is what the argument segment's size is rounded up to. LLVM widens
// scalar loads of arguments to the next power of two of words, past the last
// argument, where the runtime's allocations have room.
const segmentAlign = 64

// ldsBytes is the LDS that a work-group can have.
var ldsBytes = map[string]int{"gfx942": 64 << 10, "gfx950": 160 << 10}

// prepare checks the launch against the kernel.
func (k *Kernel) prepare(l *Launch) error {
	for axis := range 3 {
		if l.Grid[axis] < 1 || l.Block[axis] < 1 {
			return fmt.Errorf("grid %v of blocks %v: every extent must be at least 1", l.Grid, l.Block)
		}
	}
	for axis := range 3 {
		if n := int64(l.Grid[axis]) * int64(l.Block[axis]); n > math.MaxUint32 {
			return fmt.Errorf("grid %v of blocks %v: %d work-items in a row are more than 32 bits can count", l.Grid, l.Block, n)
		}
	}
	if hi, n := bits.Mul64(uint64(l.Grid[0])*uint64(l.Grid[1]), uint64(l.Grid[2])); hi != 0 || n > math.MaxInt64 {
		return fmt.Errorf("grid %v: more work-groups than 63 bits can count", l.Grid)
	}
	items := l.Block[0] * l.Block[1] * l.Block[2]
	if max(l.Block[0], l.Block[1], l.Block[2], items) > k.Meta.MaxWorkgroup || items < 1 { // the product may wrap around
		return fmt.Errorf("a block of %v has more work-items than the %d that the kernel takes", l.Block, k.Meta.MaxWorkgroup)
	}
	for axis, n := range k.Meta.RequiredWorkgroup {
		if l.Block[axis] != n {
			return fmt.Errorf("a block of %v, the kernel requires %v", l.Block, k.Meta.RequiredWorkgroup)
		}
	}
	if len(l.Kernarg) != k.Meta.KernargBytes {
		return fmt.Errorf("%d bytes of arguments, the kernel has %d", len(l.Kernarg), k.Meta.KernargBytes)
	}
	if n := k.Meta.LDSBytes + l.LDS; l.LDS < 0 || n > ldsBytes[k.chip] {
		return fmt.Errorf("%d bytes of LDS, a work-group can have %d", n, ldsBytes[k.chip])
	}
	if l.Memory == nil {
		l.Memory = &Space{}
	}
	d := k.Meta.Descriptor
	n := max(len(l.Kernarg), 4*(d.PreloadOffset()+d.PreloadLength()), 1)
	l.segment = make([]byte, (n+segmentAlign-1)/segmentAlign*segmentAlign)
	copy(l.segment, l.Kernarg)
	if l.Preloaded {
		if d.PreloadLength() == 0 {
			return errors.New("the kernel has no preloaded arguments")
		}
		at, ok := k.at[256]
		if !ok {
			return errors.New("no instruction at +0x100, where a kernel with preloaded arguments begins")
		}
		l.entry = at
	}
	return nil
}

// execution is a launch under way.
type execution struct {
	k       *Kernel
	l       *Launch
	regions regions
	kernarg uint64
	total   int64

	observers []observer
	watched   []step            // with calls of watchers; nil without observers
	order     func(int64) int64 // the index of the group to start n-th

	next, finished, instructions atomic.Int64
	stop                         atomic.Bool

	mu      sync.Mutex
	err     error
	failing int64 // index of the group whose error err is
}

func (r *execution) fail(group int64, err error) {
	r.stop.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil || group < r.failing {
		r.err, r.failing = err, group
	}
}

// work runs groups until none is left. Groups that did not end in their turn are
// parked, and go on after others had theirs.
func (r *execution) work(ctx context.Context) {
	var parked, spare []*group
	index := map[*group]int64{}
	idle, seen := 0, int64(0)
	for !r.stop.Load() {
		var g *group
		i := int64(-1)
		if len(parked) < maxParked {
			i = r.next.Add(1) - 1
		}
		switch {
		case i >= 0 && i < r.total:
			if n := len(spare); n > 0 {
				g, spare = spare[n-1], spare[:n-1]
			} else {
				g = newGroup(r.k, r.l, r.regions, r.kernarg, r.k.steps)
				g.observe(r.observers, r.watched)
			}
			i = r.order(i)
			index[g] = i
			x, y := int64(r.l.Grid[0]), int64(r.l.Grid[1])
			g.start([3]int{int(i % x), int(i / x % y), int(i / (x * y))})
		case len(parked) > 0:
			g, parked = parked[0], parked[1:]
			i = index[g]
		default:
			return
		}
		done, err := g.turn(ctx, &r.stop)
		switch {
		case err != nil:
			if !errors.Is(err, errStopped) {
				r.fail(i, err)
			}
			return
		case done:
			for _, w := range g.waves {
				r.instructions.Add(int64(w.count))
				w.count = 0
			}
			r.finished.Add(1)
			spare = append(spare, g)
		default:
			parked = append(parked, g)
			if n := r.finished.Load(); n != seen || r.next.Load() < r.total {
				seen, idle = n, 0
			} else if idle++; idle > maxIdle*len(parked) {
				r.fail(i, g.hung(len(parked)))
				return
			}
		}
	}
}

// turn gives the group its share of instructions, and looks for cancellation.
func (g *group) turn(ctx context.Context, stop *atomic.Bool) (bool, error) {
	for range quantum / share {
		// Before the first instruction too: many short groups are not to hold up the end.
		if stop.Load() {
			return false, errStopped
		}
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("%w; %s", context.Cause(ctx), g.where())
		}
		if goOn := g.launch.goOn; goOn != nil {
			if err := goOn(g); err != nil {
				return false, err
			}
		}
		if done, err := g.run(share); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// hung reports groups that wait for what does not come.
func (g *group) hung(parked int) error {
	return fmt.Errorf("kernel %s does not end: %d work-groups had %d turns of %d instructions each without one of them ending, and none is left to start; %s",
		g.k.Meta.Name, parked, maxIdle, quantum, g.where())
}

// where says what a group is at.
func (g *group) where() string {
	for _, w := range g.waves {
		if w.status == running {
			in := g.k.insts[w.pc]
			return fmt.Sprintf("%s is at %s: %s", w.who(-1), in.place(), in.Text)
		}
	}
	return fmt.Sprintf("work-group %v waits at a barrier", g.id)
}
