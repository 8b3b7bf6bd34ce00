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

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Weights go from the mapped checkpoint to a device through a ring of slots, in the
// order of the file: several goroutines fill slots, by copying or by evaluating rows of
// packed weights, while the device copies from the slots that are full. A device whose
// memory is this process's has no ring.

// What loading takes of the host, whatever the size of the model.
const (
	ringSlots   = 12
	slotBytes   = 8 << 20
	loadWorkers = 8
	// makeBytes is the most that rows which are being evaluated take at a time. The
	// garbage collector may keep as much again.
	makeBytes = 256 << 20
	// HostLimit bounds the memory of the host, mapped files, what is known of each
	// tensor and what sources without a checkpoint make not counted: 608 MiB.
	HostLimit = ringSlots*slotBytes + 2*makeBytes
	// aheadBytes is how far the system is told to read ahead.
	aheadBytes = 128 << 20
	// transferAlign is the alignment of copies in a slot.
	transferAlign = 64
)

// HostBytes is how much memory of the host loading takes at most, at most HostLimit,
// from the pack graph alone (nil if there is none): the ring, and twice what the rows
// take that are evaluated at a time. A packed weight that would take more is an error.
func HostBytes(pack *ir.Graph) (int64, error) {
	const ring = ringSlots * slotBytes
	if pack == nil {
		return ring, nil
	}
	list, err := engine.Packings(pack)
	if err != nil {
		return 0, err
	}
	var most int64
	for _, p := range list {
		if err := tooMuch(p.Host, p.Whole); err != nil {
			return 0, fmt.Errorf("weight %s: %w", p.Name, err)
		}
		most = max(most, p.Host)
	}
	return ring + 2*min(makeBytes, loadWorkers*most), nil
}

// tooMuch refuses a job that takes more memory than there is for all; whole says why
// it is not smaller, if that is known.
func tooMuch(host int64, whole error) error {
	if host <= makeBytes {
		return nil
	}
	why := ""
	if whole != nil {
		why = fmt.Sprintf(" (it is evaluated whole: %v)", whole)
	}
	return fmt.Errorf("packing it takes %d MiB of the host's memory at a time, the limit is %d MiB%s; kiln dump --entry pack shows what packs it, --disable-pass leaves a pass out", host>>20, makeBytes>>20, why)
}

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

// filler does the jobs of a batch.
type filler struct {
	l    *loader
	ctx  context.Context
	slot int // being filled; -1: none
	used int64
	out  filled
}

// job does a job. Pages of a mapped file that cannot be read are an error, not the end
// of the process.
func (w *filler) job(j *loadJob) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("the checkpoint cannot be read any more: it was cut short, or its disk failed (%w)", r)
		default:
			panic(r)
		}
	}()
	var t *eval.Tensor
	if j.Make != nil {
		if !w.l.budget.take(w.ctx, j.Host) {
			return errStopped
		}
		defer w.l.budget.give(j.Host)
		if t, err = j.Make(); err != nil {
			return err
		}
	}
	to := &w.l.weights[j.weight]
	for part, size := range j.Size {
		for at := int64(0); at < size; {
			dst, err := w.room(to, part, j.Base[part]+at, size-at)
			if err != nil {
				return err
			}
			n := int64(len(dst))
			switch {
			case t == nil:
				copy(dst, j.Copy[part][at:])
			case part == 1:
				copy(dst, t.Scales[at:])
			default:
				per := t.DType.Bits()
				if err := t.Part(int(at*8)/per, int((at+n)*8)/per).Encode(dst); err != nil {
					return err
				}
			}
			if err := finite(to.memory.typ, part, j.Base[part]+at, dst); err != nil {
				return err
			}
			at += n
		}
	}
	j.Behind()
	return nil
}

// room is where the next bytes of a weight go, up to n: its memory, or a slot. All but
// the last of a job are a multiple of transferAlign.
func (w *filler) room(to *loading, part int, offset, n int64) ([]byte, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, errStopped
	}
	if w.l.ring == nil {
		n = min(n, slotBytes)
		w.out.bytes += n
		return to.direct[part][offset:][:n], nil
	}
	if w.slot >= 0 && int64(len(w.l.ring.Slot(w.slot)))-w.used < min(n, transferAlign) {
		w.flush()
	}
	if w.slot < 0 {
		select {
		case w.slot = <-w.l.free:
		case <-w.ctx.Done():
			return nil, errStopped
		}
	}
	slot := w.l.ring.Slot(w.slot)
	from := w.used
	if left := int64(len(slot)) - from; left < n {
		n = left / transferAlign * transferAlign
	}
	w.used = (from + n + transferAlign - 1) / transferAlign * transferAlign
	w.out.list = append(w.out.list, Transfer{To: to.memory.parts[part], Offset: offset, From: from, Bytes: n})
	w.out.bytes += n
	return slot[from:][:n], nil
}

// flush passes on what is done.
func (w *filler) flush() {
	if w.out.bytes > 0 || w.slot >= 0 {
		w.out.slot = w.slot
		w.l.filled <- w.out
	}
	w.slot, w.used, w.out = -1, 0, filled{}
}

// abandon forgets what is not done.
func (w *filler) abandon() { w.out = filled{} }

// budget is memory that jobs take while they run.
type budget struct {
	mu   sync.Mutex
	cond *sync.Cond
	left int64
}

func newBudget(n int64) *budget {
	b := &budget{left: n}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// take waits until n bytes are left; false if the context is done before.
func (b *budget) take(ctx context.Context, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left < n {
		if ctx.Err() != nil {
			return false
		}
		b.cond.Wait()
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.cond.Broadcast()
}

// wake lets those that wait look at their context.
func (b *budget) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
}
