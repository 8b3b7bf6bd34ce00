package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
)

// library is loaded code.
type library struct {
	d       *Device
	module  *driver.Module // nil without code
	kernels []Kernel
}

// Close implements device.Library.
func (l *library) Close() error {
	if l.module == nil {
		return nil
	}
	return l.module.Close()
}

// sequence is a list of launches: what a stream runs one by one, or a graph of it.
type sequence struct {
	d        *Device
	launches []device.Launch
	around   bool             // the first and the last are a step's prologue and epilogue
	list     *driver.Sequence // nil if there are no launches
	exec     *driver.Exec     // nil: one by one
}

// argBytes is the size of every argument of a plan.
const argBytes = 8

// Prepare implements device.Library.
func (l *library) Prepare(launches []device.Launch) (device.Sequence, error) {
	s := &sequence{d: l.d, launches: launches}
	err := l.d.DoWithin(l.d.opts.Watchdog, func() error {
		err := s.build(l)
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

// build gives the launches to the driver, on the device's thread. What it has made
// when it fails is the sequence's, to be closed.
func (s *sequence) build(l *library) error {
	if len(s.launches) == 0 {
		return nil
	}
	list := make([]driver.Launch, len(s.launches))
	for i := range s.launches {
		var err error
		if list[i], err = l.launch(&s.launches[i]); err != nil {
			return s.failed(i, err)
		}
	}
	return s.named(s.prepare(list))
}

// launch is a plan's launch as the driver takes it.
func (l *library) launch(x *device.Launch) (driver.Launch, error) {
	k := &l.kernels[x.Kernel]
	if len(k.Params) != len(x.Args) {
		return driver.Launch{}, fmt.Errorf("the code takes %d arguments, the plan gives %d", len(k.Params), len(x.Args))
	}
	if k.Block != 0 && k.Block != x.Block {
		return driver.Launch{}, fmt.Errorf("the code is for groups of %d work-items, the plan has %d", k.Block, x.Block)
	}
	if k.Pool != (x.Shared > 0) {
		return driver.Launch{}, fmt.Errorf("the plan gives %d bytes of shared memory, the code uses such: %v", x.Shared, k.Pool)
	}
	if x.Shared > k.shared {
		if err := k.AllowShared(x.Shared); err != nil {
			return driver.Launch{}, err
		}
		k.shared = x.Shared
	}
	if x.Grid < 1 || int64(x.Grid) > 1<<31-1 {
		return driver.Launch{}, fmt.Errorf("a grid of %d groups", x.Grid)
	}
	last := driver.Param{}
	if n := len(k.Params); n > 0 {
		last = k.Params[n-1]
	}
	args := make([]byte, last.Offset+last.Size)
	for i, a := range x.Args {
		p := k.Params[i]
		if p.Size != argBytes {
			return driver.Launch{}, fmt.Errorf("argument %d has %d bytes in the code, %d in the plan", i, p.Size, argBytes)
		}
		word := uint64(a.Int)
		if a.Mode != "" {
			word = a.Address
		}
		binary.LittleEndian.PutUint64(args[p.Offset:], word)
	}
	overlap, _ := l.d.Overlaps()
	return driver.Launch{
		Overlap:  overlap && k.Waits,
		Function: k.Function, Grid: [3]uint32{uint32(x.Grid), 1, 1}, Block: [3]uint32{uint32(x.Block), 1, 1},
		Shared: uint32(x.Shared), Args: args, Params: k.Params,
	}, nil
}

// prepare gives the launches to the driver. A graph has copies of them all.
func (s *sequence) prepare(list []driver.Launch) error {
	var err error
	if s.list, err = s.d.Prepare(list); err != nil || !s.d.Graphs() {
		return err
	}
	build := s.d.BuildGraph
	if s.d.opts.Build == BuildCapture {
		build = s.d.CaptureGraph
	}
	g, err := build(s.list)
	if err != nil {
		return fmt.Errorf("%w; --graph off runs without graphs", s.named(err))
	}
	s.exec, err = g.Instantiate()
	return errors.Join(err, g.Close())
}

// failed is the error of a launch, by its number in the plan.
func (s *sequence) failed(i int, err error) error {
	at := i
	if s.around {
		if at--; i == 0 || i == len(s.launches)-1 {
			at = device.Around
		}
	}
	return s.launches[i].Failed(at, err)
}

// named gives an error of the driver's list the names of the plan's launch.
func (s *sequence) named(err error) error {
	var l *driver.LaunchError
	if errors.As(err, &l) && l.Index < len(s.launches) {
		return s.failed(l.Index, l.Err)
	}
	return err
}

// Run implements device.Sequence.
func (s *sequence) Run() error {
	if s.slow() {
		return s.runSlow()
	}
	return s.d.DoWithin(s.d.opts.Watchdog, s.start)
}

// start enqueues what is pending and the launches, on the device's thread.
func (s *sequence) start() error {
	if err := s.d.flush(); err != nil {
		return err
	}
	switch {
	case s.exec != nil:
		return s.d.stream.ReplayInDo(s.exec)
	case s.list != nil:
		return s.named(s.d.stream.Run(s.list))
	}
	return nil
}

// slow tells whether each launch is waited for.
func (s *sequence) slow() bool {
	return s.d.opts.Watchdog != 0 && s.exec == nil && s.list != nil
}

// runSlow launches the kernels one by one and waits for each, so that one that does
// not end is known.
func (s *sequence) runSlow() error {
	for i := range s.launches {
		err := s.d.DoWithin(s.d.opts.Watchdog, func() error {
			if err := s.d.flush(); err != nil {
				return err
			}
			if err := s.d.stream.RunOne(s.list, i); err != nil {
				return err
			}
			return s.d.wait()
		})
		var of *driver.LaunchError
		if err != nil && !errors.As(err, &of) {
			return s.failed(i, err)
		}
		if err != nil {
			return s.named(err)
		}
	}
	return nil
}

// Close implements device.Sequence.
func (s *sequence) Close() error {
	// What is under way may use the list and the graph.
	errs := []error{s.d.Sync()}
	if s.exec != nil {
		errs = append(errs, s.exec.Close())
	}
	if s.list != nil {
		errs = append(errs, s.list.Close())
	}
	return errors.Join(errs...)
}
