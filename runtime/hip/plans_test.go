package hip

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

func TestMain(m *testing.M) { devicetest.Main(m) }

// emulated is a fake whose kernels run in the emulator: the driver's calls are real,
// and so is the machine code.
type emulated struct {
	loader   emu.Loader
	programs map[*object.CodeObject]*emu.Program
	err      error // of the first kernel that failed
}

func (x *emulated) execute(l *drivertest.Launch) error {
	err := x.run(l)
	if err != nil && x.err == nil {
		x.err = err
	}
	return err
}

func (x *emulated) run(l *drivertest.Launch) error {
	p := x.programs[l.Object]
	if p == nil {
		var err error
		if p, err = x.loader.Load(context.Background(), l.Object.Data); err != nil {
			return err
		}
		x.programs[l.Object] = p
	}
	k, err := p.Kernel(l.Kernel.Name)
	if err != nil {
		return err
	}
	space := &emu.Space{}
	for _, b := range l.Blocks() {
		if err := space.Map(b, "allocation"); err != nil {
			return err
		}
	}
	size := func(v [3]uint32) [3]int { return [3]int{int(v[0]), int(v[1]), int(v[2])} }
	_, err = k.Run(context.Background(), emu.Launch{Grid: size(l.Grid), Block: size(l.Block), Kernarg: l.Kernarg, Memory: space})
	return err
}

const chip = "gfx942"

// emulatedGPU opens GPUs of one fake, since callbacks are few.
func emulatedGPU(t *testing.T, c *codegen.Compiler) func(PlanOptions) (*PlanDevice, error) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	x := &emulated{loader: emu.Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version, Store: c.Cache}, programs: map[*object.CodeObject]*emu.Program{}}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Execute: x.execute, Devices: []drivertest.Device{{Name: "MI300X", Arch: chip + ":sramecc+:xnack-", Memory: 1 << 34}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Library: fake.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		open, problems := fake.Open(), fake.Problems()
		if err := errors.Join(x.err, fake.Close()); err != nil || len(open)+len(problems) > 0 {
			t.Errorf("open %v, problems %v, error %v", open, problems, err)
		}
	})
	return func(o PlanOptions) (*PlanDevice, error) {
		d, err := l.OpenDevice(0)
		if err != nil {
			return nil, err
		}
		return OpenForPlans(d, Assessment{}, o)
	}
}

// TestGraphs: a decode step of a padded batch has the same bits from a stream, from a
// graph and from a captured one.
func TestGraphs(t *testing.T) {
	graphs(t, func(eager, graph *devicetest.Runner) { devicetest.Replays(t, eager, graph, 1) })
}

// TestAlternates: decode and speculative steps by turns, of requests that change, have the
// same bits as graphs of either build as launched one by one.
func TestAlternates(t *testing.T) { alternates(t, 3, 2, 1) }

func alternates(t *testing.T, layers, n int, drafts ...int) {
	c := devicetest.Compiler(t)
	open := emulatedGPU(t, c)
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	a := devicetest.BuildAlternation(t, c, tg, layers, drafts...)
	start := func(o PlanOptions) *PlanDevice {
		d, err := open(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, build := range gpu.Builds {
		a.Run(t, start(PlanOptions{Graph: gpu.GraphOff}), start(PlanOptions{Graph: gpu.GraphOn, Build: build}), n)
	}
}

// graphs runs f with the model on a stream, and as graphs of either build.
func graphs(t *testing.T, f func(eager, graph *devicetest.Runner)) {
	c := devicetest.Compiler(t)
	open := emulatedGPU(t, c)
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	b := devicetest.BuildBundle(t, c, tg, "../../testdata/tiny-dsv4", 128, 1, 4)
	start := func(o PlanOptions) *devicetest.Runner {
		d, err := open(o)
		if err != nil {
			t.Fatal(err)
		}
		return b.Start(t, d)
	}
	// The second time each launch is waited for.
	watchdog := map[gpu.Build]time.Duration{gpu.BuildCapture: time.Hour}
	for _, build := range gpu.Builds {
		eager, graph := start(PlanOptions{Graph: gpu.GraphOff, Watchdog: watchdog[build]}), start(PlanOptions{Graph: gpu.GraphOn, Build: build})
		f(eager, graph)
		graph.Close(t)
		eager.Close(t)
	}
}

// A known fault turns graphs off, unless they are asked for.
func TestFaultsTurnGraphsOff(t *testing.T) {
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	a := Assessment{Faults: []Fault{{Effect: GraphsOff}, {Effect: CaptureOff}}}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Devices: []drivertest.Device{{Name: "MI300X", Arch: chip + ":sramecc+:xnack-", Memory: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Library: fake.Path})
	if err != nil {
		t.Fatal(err)
	}
	for o, want := range map[PlanOptions]PlanOptions{
		{}:                        {Graph: gpu.GraphOff, Build: gpu.BuildExplicit, Overlap: gpu.OverlapAuto},
		{Build: gpu.BuildCapture}: {Graph: gpu.GraphOff, Build: gpu.BuildExplicit, Overlap: gpu.OverlapAuto},
		{Graph: gpu.GraphOn}:      {Graph: gpu.GraphOn, Build: gpu.BuildExplicit, Overlap: gpu.OverlapAuto},
	} {
		d, err := l.OpenDevice(0)
		if err != nil {
			t.Fatal(err)
		}
		x, err := OpenForPlans(d, a, o)
		if err != nil {
			t.Fatal(err)
		}
		if x.Options() != want || x.Graphs() != (want.Graph == gpu.GraphOn) || x.Name() != "hip" || x.Chip() != chip {
			t.Errorf("%+v: %+v of %s (%s), want %+v", o, x.Options(), x.Name(), x.Chip(), want)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := fake.Close(); err != nil {
		t.Error(err)
	}
}
