package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// A step works on two blocks, both of 64-bit words, each part aligned to plan.Align.
//
// The host's is pinned memory, which kernels read and write in place:
//
//	the step's number, which is written after the inputs
//	inputs
//	outputs: first, for each group of the prologue, the number that it has read
//	a number for each group of the epilogue, which leaves it after its outputs
//
// The device's is memory of the device:
//
//	numbers of the step that was started last and of the one that was finished last
//	for each group of the prologue the number that it has read
//	rows of the prologue, then of the epilogue, of stepRow words
//
// Kernels and rows are codegen/kernels/step.go's.
const (
	wordBytes   = 8
	stepRow     = 4 // address on the device, word of the host's block, bytes, word of the number that the group leaves
	stepStarted = 0
	stepCounts  = 2 // started and finished
)

// maxOutput is the most bytes that the epilogue brings of one output. Beyond, the
// copy engine is worth its call.
const maxOutput = 64 << 10

// stepLayout says where the parts of both blocks lie, in words.
type stepLayout struct {
	in, out            []int // in the host's block; -1: an output that the epilogue leaves
	seenOnHost, stamps int   // in the host's block
	seen, rows         int   // in the device's block
	prologue, epilogue []stepCopy
	onHost, onDevice   int // words of the blocks
}

// stepCopy is a row before addresses are known.
type stepCopy struct {
	address uint64
	own     bool // the address is an offset into the device's block
	word    int
	bytes   int64
}

// cut adds the copies of a region, for groups that copy so many bytes at once.
func cut(list []stepCopy, c stepCopy, chunk int64) []stepCopy {
	for from := int64(0); from < c.bytes; from += chunk {
		list = append(list, stepCopy{c.address + uint64(from), c.own, c.word + int(from)/wordBytes, min(chunk, c.bytes-from)})
	}
	return list
}

// place takes the next words of a block.
func place(end *int, words int) int {
	const line = plan.Align / wordBytes
	from := *end
	*end += (words + line - 1) / line * line
	return from
}

// wordsOf is how many words hold so many bytes.
func wordsOf(bytes int64) int { return int((bytes + wordBytes - 1) / wordBytes) }

func layoutStep(s *device.StepLaunches, chunk int64) *stepLayout {
	l := &stepLayout{}
	place(&l.onHost, 1)
	for _, r := range s.In {
		at := place(&l.onHost, wordsOf(r.Bytes))
		l.in = append(l.in, at)
		l.prologue = cut(l.prologue, stepCopy{r.Address, false, at, r.Bytes}, chunk)
	}
	if len(l.prologue) == 0 { // somebody has to count
		l.prologue = []stepCopy{{}}
	}
	place(&l.onDevice, stepCounts)
	l.seen, l.seenOnHost = place(&l.onDevice, len(l.prologue)), place(&l.onHost, len(l.prologue))
	l.epilogue = cut(nil, stepCopy{uint64(l.seen * wordBytes), true, l.seenOnHost, int64(len(l.prologue) * wordBytes)}, chunk)
	for _, r := range s.Out {
		if r.Bytes > maxOutput {
			l.out = append(l.out, -1)
			continue
		}
		at := place(&l.onHost, wordsOf(r.Bytes))
		l.out = append(l.out, at)
		l.epilogue = cut(l.epilogue, stepCopy{r.Address, false, at, r.Bytes}, chunk)
	}
	l.stamps = place(&l.onHost, len(l.epilogue))
	l.rows = place(&l.onDevice, stepRow*(len(l.prologue)+len(l.epilogue)))
	return l
}

// table is the device's block as it begins: no step has run.
func (l *stepLayout) table(base uint64) []byte {
	b := make([]byte, l.onDevice*wordBytes)
	at := l.rows * wordBytes
	put := func(v uint64) {
		binary.LittleEndian.PutUint64(b[at:], v)
		at += wordBytes
	}
	rows := func(list []stepCopy, stamps int) {
		for g, c := range list {
			if c.own {
				c.address += base
			}
			put(c.address)
			put(uint64(c.word))
			put(uint64(c.bytes))
			put(uint64(stamps + g))
		}
	}
	rows(l.prologue, l.seen)
	rows(l.epilogue, l.stamps)
	return b
}

// step is a sequence between a prologue and an epilogue.
type step struct {
	sequence
	host   *driver.Pinned
	device *driver.Buffer

	in, out      [][]byte
	number       *uint64  // what the prologue reads
	seen, stamps []uint64 // what groups have left

	count  uint64       // runs
	unsure bool         // the device's count may be another
	once   func() error // a run, on the device's thread
}

var _ device.StepLibrary = (*library)(nil)

// PrepareStep implements device.StepLibrary.
func (l *library) PrepareStep(in device.StepLaunches) (device.Step, error) {
	s := &step{sequence: sequence{d: l.d, around: true}}
	lay := layoutStep(&in, int64(in.Prologue.Block)*wordBytes)
	err := l.d.DoWithin(l.d.opts.Watchdog, func() error {
		err := s.setUp(l, in, lay)
		if err != nil {
			err = errors.Join(err, s.Close())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// setUp allocates the blocks and gives the launches to the driver, on the device's
// thread.
func (s *step) setUp(l *library, in device.StepLaunches, lay *stepLayout) error {
	d := l.d
	var err error
	if s.host, err = d.AllocatePinned(int64(lay.onHost * wordBytes)); err != nil {
		return fmt.Errorf("inputs and outputs of a step: %w", err)
	}
	if s.device, err = d.Allocate(int64(lay.onDevice * wordBytes)); err != nil {
		return fmt.Errorf("the table of a step: %w", err)
	}
	if err := s.device.Write(0, lay.table(s.device.Address())); err != nil {
		return err
	}
	all := s.host.Bytes()
	part := func(word int, bytes int64) []byte { return all[word*wordBytes:][:bytes:bytes] }
	words := func(word, n int) []uint64 {
		return unsafe.Slice((*uint64)(unsafe.Pointer(&all[word*wordBytes])), n)
	}
	for i, w := range lay.in {
		s.in = append(s.in, part(w, in.In[i].Bytes))
	}
	for i, w := range lay.out {
		if w < 0 {
			s.out = append(s.out, nil)
			continue
		}
		s.out = append(s.out, part(w, in.Out[i].Bytes))
	}
	s.number, s.seen, s.stamps = &words(0, 1)[0], words(lay.seenOnHost, len(lay.prologue)), words(lay.stamps, len(lay.epilogue))

	base := s.device.Address()
	args := func(first int, mode plan.Mode) []device.Arg {
		return []device.Arg{
			{Address: s.host.Address(), Bytes: int64(len(all)), Mode: mode},
			{Address: base + uint64((lay.rows+stepRow*first)*wordBytes), Mode: plan.Read},
			{Address: base, Mode: plan.Update},
		}
	}
	in.Prologue.Grid, in.Prologue.Args = len(lay.prologue), args(0, plan.Read)
	in.Epilogue.Grid, in.Epilogue.Args = len(lay.epilogue), args(len(lay.prologue), plan.Update)
	s.launches = append(append([]device.Launch{in.Prologue}, in.Launches...), in.Epilogue)
	s.once = s.runOnce
	return s.build(l)
}

// Input implements device.Step.
func (s *step) Input(i int) []byte { return s.in[i] }

// Output implements device.Step.
func (s *step) Output(i int) []byte { return s.out[i] }

// Run implements device.Step.
func (s *step) Run() error {
	if s.unsure {
		if err := s.recount(); err != nil {
			return err
		}
	}
	s.unsure = true
	s.count++
	atomic.StoreUint64(s.number, s.count) // after the inputs
	var err error
	if s.slow() {
		err = s.runSlow()
	} else {
		err = s.d.DoWithin(s.d.opts.Watchdog, s.once)
	}
	if errors.Is(err, driver.ErrStuck) {
		return fmt.Errorf("%w; this is step %d of the plan, %s", err, s.count, s.finished())
	}
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	s.unsure = false
	return nil
}

// runOnce runs the step to its end, on the device's thread.
func (s *step) runOnce() error {
	if err := s.start(); err != nil {
		return err
	}
	return s.d.wait()
}

// finished says which step has left its number everywhere, which a device that does
// not answer need not be asked for.
func (s *step) finished() string {
	last := s.count
	for i := range s.stamps {
		last = min(last, atomic.LoadUint64(&s.stamps[i]))
	}
	if last == 0 {
		return "none is finished"
	}
	return fmt.Sprintf("the last that is finished is %d", last)
}

// check compares the numbers that the groups have left with the step's.
func (s *step) check() error {
	for i := range s.stamps {
		if n := atomic.LoadUint64(&s.stamps[i]); n != s.count {
			return fmt.Errorf("%w: after step %d the device has the results of step %d (group %d of %d of %s); %s",
				device.ErrStale, s.count, n, i, len(s.stamps), s.last().Symbol, s.override())
		}
	}
	for i := range s.seen {
		if n := atomic.LoadUint64(&s.seen[i]); n != s.count {
			return fmt.Errorf("%w: step %d ran with the inputs of step %d (group %d of %d of %s); %s",
				device.ErrStale, s.count, n, i, len(s.seen), s.launches[0].Symbol, s.override())
		}
	}
	return nil
}

func (s *step) last() *device.Launch { return &s.launches[len(s.launches)-1] }

// override is what to try after a stale read.
func (s *step) override() string {
	if s.exec != nil {
		return "--graph off runs without graphs"
	}
	return "it happened without graphs: kiln doctor says which driver this is"
}

// recount makes the device's count the host's, after a run of which nobody knows how
// far it got.
func (s *step) recount() error {
	var b [stepCounts * wordBytes]byte
	for i := range stepCounts {
		binary.LittleEndian.PutUint64(b[i*wordBytes:], s.count)
	}
	m := memory{s.d, s.device, int64(len(b))}
	return m.Write(stepStarted, b[:])
}

// Close implements device.Step.
func (s *step) Close() error {
	errs := []error{s.sequence.Close()}
	if s.host != nil {
		errs = append(errs, s.host.Close())
	}
	if s.device != nil {
		errs = append(errs, s.device.Close())
	}
	return errors.Join(errs...)
}

// Pace is what replays of a step take.
type Pace struct {
	Nodes int
	Host  time.Duration // of the host for a replay, while the device is behind
	Whole time.Duration // of the device for a replay, one after the other
}

// Pacer is a step that can be measured.
type Pacer interface {
	Pace(few, many int) (Pace, error)
}

var _ Pacer = (*step)(nil)

// Pace replays a step's graph, with the inputs that it has, few times for the host,
// which would otherwise wait for a full queue, and many for the device.
func (s *step) Pace(few, many int) (Pace, error) {
	p := Pace{Nodes: len(s.launches)}
	if s.exec == nil {
		return p, errors.New("the step has no graph")
	}
	s.unsure = true
	repeat := func(n int) error {
		for range n {
			if err := s.d.stream.ReplayInDo(s.exec); err != nil {
				return err
			}
		}
		return nil
	}
	err := s.d.Do(func() error {
		from, err := s.d.NewEvent()
		if err != nil {
			return err
		}
		until, err := s.d.NewEvent()
		if err != nil {
			return errors.Join(err, from.Close())
		}
		err = errors.Join(repeat(few), s.d.wait())
		start := time.Now()
		err = errors.Join(err, repeat(few))
		p.Host = time.Since(start) / time.Duration(few)
		err = errors.Join(err, s.d.wait(), s.d.stream.Record(from), repeat(many), s.d.stream.Record(until), until.Sync())
		if err == nil {
			p.Whole, err = until.Since(from)
			p.Whole /= time.Duration(many)
		}
		return errors.Join(err, from.Close(), until.Close())
	})
	return p, err
}
