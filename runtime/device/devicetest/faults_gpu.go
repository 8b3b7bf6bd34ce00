package devicetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

// GPU is a fake GPU for GPUFaults.
type GPU struct {
	Kind driver.Kind
	Arch string // of the fake
	Chip string // of its code
	// Execute runs a kernel.
	Execute func(*drivertest.Launch) error
	// Open opens a device of the library for plans.
	Open func(library string, o gpu.Options) (device.Device, error)
}

// gpuFaults are the faults of a fake.
type gpuFaults struct {
	GPU
	fake *drivertest.Fake
	call map[string]string // the names of C functions, by those of package driver

	blocks map[uint64][]byte // what prologues read last, by its address
	stale  bool              // the next one reads that again
	dies   int               // kernels until one faults; 0: none does
}

// GPUFaults is Faults for a GPU, with graphs of both builds and without.
func GPUFaults(t *testing.T, g GPU, full bool) {
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	f := &gpuFaults{GPU: g, call: map[string]string{}, blocks: map[uint64][]byte{}}
	for _, s := range driver.Symbols(g.Kind) {
		f.call[s.Function] = s.Name
	}
	var err error
	f.fake, err = drivertest.New(t.TempDir(), drivertest.Options{Kind: g.Kind, Execute: f.execute, Devices: []drivertest.Device{{Name: "GPU", Arch: g.Arch, Memory: 1 << 32}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p := f.fake.Problems(); len(p) > 0 {
			t.Errorf("the driver complains: %v", p)
		}
		check(t, f.fake.Close())
	})
	open := func(o gpu.Options) func() (device.Device, error) {
		return func() (device.Device, error) { return g.Open(f.fake.Path, o) }
	}
	for _, way := range []struct {
		name string
		o    gpu.Options
	}{
		{"built", gpu.Options{Graph: gpu.GraphOn}},
		{"captured", gpu.Options{Graph: gpu.GraphOn, Build: gpu.BuildCapture}},
		{"eager", gpu.Options{Graph: gpu.GraphOff}},
	} {
		if way.name == "captured" && !full {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			Faults(t, g.Chip, FaultDevice{
				Open: open(way.o), Eager: open(gpu.Options{Graph: gpu.GraphOff}), Left: f.fake.Open, Forget: f.fake.Forget,
				Faults: func(p *plan.Plan, full bool) []Fault { return f.faults(p, way.o, full) },
			}, full)
		})
	}
}

// faults are those of a plan that runs in some way.
func (f *gpuFaults) faults(p *plan.Plan, o gpu.Options, full bool) []Fault {
	inject := func(function string, skip, code int) func() {
		return func() { f.fake.Inject(drivertest.Fault{Call: f.call[function], Skip: skip, Code: code}) }
	}
	const invalid, outOfMemory = 1, 2
	launch := Fault{Kind: FaultLaunch}
	function := "LaunchKernel"
	if o.Graph == gpu.GraphOn { // nodes are launched when the graph is made
		launch.Fresh, launch.Want = true, []string{"--graph off runs without graphs"}
		if o.Build != gpu.BuildCapture {
			function = "GraphAddKernel"
		}
	}
	memory := func(name, function string, skip int) Fault {
		return Fault{Kind: FaultMemory, Name: name, Fresh: true, Is: driver.ErrOutOfMemory, Arm: inject(function, skip, outOfMemory), Want: []string{f.call[function] + ": error 2 "}}
	}
	list := []Fault{
		memory("pool", "Malloc", 0), memory("table of a step", "Malloc", 1), memory("block of the host", "HostMalloc", 0),
		{Kind: FaultStale, Name: "old block", Is: device.ErrStale, Arm: func() { f.stale = true },
			Want: []string{fmt.Sprintf("stale read: step %d ran with the inputs of step %d (group 0 of ", replaysOfFaults+1, replaysOfFaults)}},
	}
	if o.Graph == gpu.GraphOn {
		list[3].Want = append(list[3].Want, "--graph off runs without graphs")
		list = append(list, memory("graph", "GraphInstantiate", 0),
			Fault{Kind: FaultLaunch, Name: "of the graph", Arm: inject("GraphLaunch", 0, invalid), Want: []string{f.call["GraphLaunch"] + ": error 1 "}})
	}
	for i := range len(p.Launches) + 2 {
		l := launch
		l.Name, l.Arm = fmt.Sprint("node ", i), inject(function, i, invalid)
		l.Want = append([]string{f.call[function] + ": error 1 "}, l.Want...)
		switch {
		case i == 0:
			l.Want = append(l.Want, "kernel step_prologue_", " (prologue): ")
		case i == len(p.Launches)+1:
			l.Want = append(l.Want, "kernel step_epilogue_", " (epilogue): ")
		default:
			x := &p.Launches[i-1]
			l.Want = append(l.Want, fmt.Sprintf("launch %d, kernel ", i-1), " ("+x.Op+" at "+x.Loc+"): ")
		}
		lost := Fault{Kind: FaultLost, Name: fmt.Sprint("node ", i), Is: driver.ErrDeviceLost, Arm: func() { f.dies = i + 1 }, Want: []string{"error 700 "}}
		if full || i == len(p.Launches)/2 {
			list = append(list, l, lost)
		}
	}
	return list
}

// execute runs a kernel, unless it is the one that faults.
func (f *gpuFaults) execute(l *drivertest.Launch) error {
	if f.dies > 0 {
		if f.dies--; f.dies == 0 {
			return errors.New("a fault of the kernel")
		}
	}
	if !strings.HasPrefix(l.Kernel.Name, "step_prologue_") {
		return f.Execute(l)
	}
	address := binary.LittleEndian.Uint64(l.Kernarg)
	block, err := allocation(l, address)
	if err != nil {
		return err
	}
	now := slices.Clone(block)
	if old := f.blocks[address]; f.stale && len(old) == len(block) {
		f.stale = false
		copy(block, old)
		defer copy(block, now)
	}
	f.blocks[address] = now
	return f.Execute(l)
}

// allocation is the one that begins at an address.
func allocation(l *drivertest.Launch, address uint64) ([]byte, error) {
	for _, b := range l.Blocks() {
		if n := int64(len(b)); n > 0 {
			if at, err := l.Memory(address, n); err == nil && &at[0] == &b[0] {
				return b, nil
			}
		}
	}
	return nil, fmt.Errorf("kernel %s: no allocation at address 0x%x", l.Kernel.Name, address)
}

// Invent stands for kernels whose code cannot be run here: prologues and epilogues do
// what they do, and others change a byte of their last buffer, by their names and the
// first bytes of the buffers before it. So results depend on inputs, on pools and on the
// order of launches.
func Invent(l *drivertest.Launch) error {
	if ran, err := l.Step(); ran {
		return err
	}
	h := fnv.New64a()
	h.Write([]byte(l.Kernel.Name))
	var last []byte
	for i := 0; i+8 <= len(l.Kernarg); i += 8 {
		b, err := l.Memory(binary.LittleEndian.Uint64(l.Kernarg[i:]), 1)
		if err != nil {
			continue // an integer
		}
		h.Write(last)
		last = b
	}
	if last == nil {
		return fmt.Errorf("kernel %s has no buffer", l.Kernel.Name)
	}
	last[0] = byte(h.Sum64() % 100)
	return nil
}
