package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Weights go from the mapped checkpoint to a device through a ring of slots, in the
// order of the file: several goroutines fill slots, by copying or by evaluating rows of
// packed weights, while the device copies from the slots that are full. A device whose
// memory is this process's has no ring.

// loadJob is a job of a weight.
type loadJob struct {
	engine.Job
	weight int // in the list of the loader
}

// loading is a weight that is being loaded.
type loading struct {
	name   string
	memory stored
	direct [2][]byte // the memory itself, if it is this process's
}

// loader does the jobs of some weights.
type loader struct {
	weights  []loading
	batches  [][]loadJob // in the order of the checkpoint
	total    int64
	progress func(done, total int64) // may be nil

	ring   Ring // nil: all memory is this process's
	slots  int
	free   chan int
	filled chan filled
	budget *budget

	mu     sync.Mutex
	next   int // batch that nobody has taken
	ahead  int // batch that the system was not told of
	told   int64
	failed int // the first batch that failed, or their number
	err    error
}

// filled is a part of a batch that is done: in its memory, or in a slot.
type filled struct {
	slot  int // -1: in its memory
	list  []Transfer
	bytes int64
}

// newLoader plans the jobs of weights, whose memory is there.
func newLoader(dev Device, list []loading, src eval.WeightSource, progress func(done, total int64)) (*loader, error) {
	l := &loader{weights: list, progress: progress, budget: newBudget(makeBytes)}
	var all []loadJob
	direct := true
	for i := range list {
		w := &list[i]
		jobs, err := engine.Jobs(src, w.name, w.memory.typ, slotBytes)
		if err != nil {
			return nil, fmt.Errorf("weight %s: %w", w.name, err)
		}
		for _, j := range jobs {
			if err := tooMuch(j.Host, j.Whole); err != nil {
				return nil, fmt.Errorf("weight %s: %w", w.name, err)
			}
			if j.Alone {
				j.Host = makeBytes // nothing else is evaluated beside it
			}
			all = append(all, loadJob{j, i})
			l.total += j.Size[0] + j.Size[1]
		}
		for part, p := range w.memory.parts {
			if p != nil {
				w.direct[part] = p.Bytes()
				direct = direct && w.direct[part] != nil
			}
		}
	}
	slices.SortStableFunc(all, func(a, b loadJob) int { return cmp.Compare(a.At, b.At) })
	l.batch(all)
	l.failed = len(l.batches)
	if direct || l.total == 0 {
		return l, nil
	}
	// A small model needs no large ring.
	l.slots = int(min(ringSlots, (l.total+slotBytes-1)/slotBytes+1))
	bytes := min(slotBytes, (l.total+4095)/4096*4096+transferAlign*int64(len(all)+1))
	var err error
	if l.ring, err = NewRing(dev, l.slots, bytes); err != nil {
		return nil, err
	}
	l.free = make(chan int, l.slots)
	for i := range l.slots {
		l.free <- i
	}
	return l, nil
}

// batch puts together jobs that are done one after the other: what fills a slot.
func (l *loader) batch(all []loadJob) {
	var bytes int64
	from := 0
	for i := range all {
		n := all[i].Size[0] + all[i].Size[1]
		if i > from && bytes+n > slotBytes {
			l.batches = append(l.batches, all[from:i])
			from, bytes = i, 0
		}
		bytes += n
	}
	if from < len(all) {
		l.batches = append(l.batches, all[from:])
	}
}

// run does the jobs. It returns when nothing of it goes on any more: after an error,
// the first in the order of the checkpoint, or when the context is done, too.
func (l *loader) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, l.budget.wake)()
	workers := min(loadWorkers, runtime.GOMAXPROCS(0), len(l.batches))
	if l.ring != nil {
		workers = min(workers, l.slots-1)
	}
	l.filled = make(chan filled)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { l.work(ctx) })
	}
	go func() {
		wg.Wait()
		close(l.filled)
	}()
	var done int64
	var sent []int // slots whose copies may be under way
	for f := range l.filled {
		if f.slot >= 0 {
			sent = append(sent, f.slot)
			err := l.ring.Send(f.slot, f.list)
			// Every worker can have a slot while these are in use.
			for err == nil && len(sent) > l.slots-workers {
				if err = l.ring.Wait(sent[0]); err == nil {
					l.free <- sent[0]
					sent = sent[1:]
				}
			}
			if err != nil {
				cancel(err)
				continue
			}
		}
		done += f.bytes
		if l.progress != nil {
			l.progress(done, l.total)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.err
}

// close frees the ring, after its copies.
func (l *loader) close() error {
	if l.ring == nil {
		return nil
	}
	return l.ring.Close()
}

// take is the number of the next batch; ok is false if there is none, or one before it
// failed.
func (l *loader) take() (at int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next >= l.failed {
		return 0, false
	}
	at = l.next
	l.next++
	l.told -= bytesOf(l.batches[at])
	for ; l.ahead < len(l.batches) && l.told < aheadBytes; l.ahead++ {
		for i := range l.batches[l.ahead] {
			l.batches[l.ahead][i].Ahead()
		}
		l.told += bytesOf(l.batches[l.ahead])
	}
	return at, true
}

func bytesOf(batch []loadJob) int64 {
	var n int64
	for i := range batch {
		n += batch[i].Size[0] + batch[i].Size[1]
	}
	return n
}

// fail keeps the error of the first batch.
func (l *loader) fail(batch int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if batch < l.failed {
		l.failed, l.err = batch, err
	}
}

// errStopped ends a worker whose work nobody wants any more.
var errStopped = errors.New("stopped")

// work does batches until there are none.
func (l *loader) work(ctx context.Context) {
	debug.SetPanicOnFault(true)
	for ctx.Err() == nil {
		at, ok := l.take()
		if !ok {
			return
		}
		w := &filler{l: l, ctx: ctx, slot: -1}
		for i := range l.batches[at] {
			j := &l.batches[at][i]
			if err := w.job(j); err != nil {
				if err != errStopped {
					l.fail(at, fmt.Errorf("weight %s: %w", l.weights[j.weight].name, err))
				}
				w.abandon()
				break
			}
		}
		w.flush()
	}
}
