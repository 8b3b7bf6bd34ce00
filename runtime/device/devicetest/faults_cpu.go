package devicetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

// ErrInjected is every fault of a device without a driver.
var ErrInjected = errors.New("injected")

// faulty is a device that fails where it is told to, and counts what is open. It stands
// for a device whose memory is this process's: there is no block of inputs that could be
// an old one, so nothing can be stale.
type faulty struct {
	device.Device
	f *cpuFaults
}

type cpuFaults struct {
	open   map[string]int
	allocs int // until one fails; 0: none does
	launch int // that fails next; -1: none does
	lost   bool
	dies   bool // it is lost at the next run
}

func (f *cpuFaults) count(what string, n int) { f.open[what] += n }

// left lists what is open.
func (f *cpuFaults) left() []string {
	var list []string
	for what, n := range f.open {
		for range n {
			list = append(list, what)
		}
	}
	slices.Sort(list)
	return list
}

func (f *cpuFaults) call() error {
	if f.lost {
		return fmt.Errorf("the device was lost: %w", ErrInjected)
	}
	return nil
}

func newCPUFaults() *cpuFaults { return &cpuFaults{open: map[string]int{}, launch: -1} }

// opener opens devices that fail as f says.
func (f *cpuFaults) opener(open func() (device.Device, error)) func() (device.Device, error) {
	return func() (device.Device, error) {
		d, err := open()
		if err != nil {
			return nil, err
		}
		f.count("device", 1)
		return &faulty{d, f}, nil
	}
}

// CPUFaults is Faults for a device whose memory is this process's.
func CPUFaults(t *testing.T, chip string, open func() (device.Device, error), full bool) {
	f := newCPUFaults()
	opened := f.opener(open)
	Faults(t, chip, FaultDevice{
		Open: opened, Eager: opened, Left: f.left, Faults: f.faults,
		Forget: func() error { f.lost = false; return nil },
	}, full)
}

// faults are all but stale reads.
func (f *cpuFaults) faults(p *plan.Plan, full bool) []Fault {
	list := []Fault{
		{Kind: FaultMemory, Name: "pool", Fresh: true, Is: ErrInjected, Arm: func() { f.allocs = 1 }, Want: []string{"allocating 256 bytes"}},
		{Kind: FaultLost, Name: "at a run", Is: ErrInjected, Arm: func() { f.dies = true }, Want: []string{"the device was lost"}},
	}
	for i, l := range p.Launches {
		if !full && i != len(p.Launches)/2 {
			continue
		}
		list = append(list, Fault{Kind: FaultLaunch, Name: fmt.Sprint(i), Is: ErrInjected, Arm: func() { f.launch = i }, Want: []string{fmt.Sprintf("launch %d, kernel ", i), "(" + l.Op + " at " + l.Loc + ")"}})
	}
	return list
}

func (d *faulty) Alloc(n int64) (device.Memory, error) {
	if err := d.f.call(); err != nil {
		return nil, err
	}
	if d.f.allocs > 0 {
		if d.f.allocs--; d.f.allocs == 0 {
			return nil, fmt.Errorf("allocating %d bytes: %w", n, ErrInjected)
		}
	}
	m, err := d.Device.Alloc(n)
	if err != nil {
		return nil, err
	}
	d.f.count("memory", 1)
	return &faultyMemory{m, d.f}, nil
}

func (d *faulty) Load(code []byte, kernels []string) (device.Library, error) {
	l, err := d.Device.Load(code, kernels)
	if err != nil {
		return nil, err
	}
	d.f.count("library", 1)
	return &faultyLibrary{l, d.f}, nil
}

func (d *faulty) Close() error {
	d.f.count("device", -1)
	return d.Device.Close()
}

type faultyMemory struct {
	device.Memory
	f *cpuFaults
}

func (m *faultyMemory) Free() error {
	m.f.count("memory", -1)
	return m.Memory.Free()
}

type faultyLibrary struct {
	device.Library
	f *cpuFaults
}

func (l *faultyLibrary) Prepare(launches []device.Launch) (device.Sequence, error) {
	s, err := l.Library.Prepare(launches)
	if err != nil {
		return nil, err
	}
	l.f.count("sequence", 1)
	return &faultySequence{s, launches, l.f}, nil
}

func (l *faultyLibrary) Close() error {
	l.f.count("library", -1)
	return l.Library.Close()
}

type faultySequence struct {
	device.Sequence
	launches []device.Launch
	f        *cpuFaults
}

func (s *faultySequence) Run() error {
	if s.f.dies {
		s.f.lost, s.f.dies = true, false
	}
	if err := s.f.call(); err != nil {
		return err
	}
	if i := s.f.launch; i >= 0 {
		s.f.launch = -1
		return s.launches[i].Failed(i, ErrInjected)
	}
	return s.Sequence.Run()
}

func (s *faultySequence) Close() error {
	s.f.count("sequence", -1)
	return s.Sequence.Close()
}
