package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

// stepPTX has the kernels around a step beside vadd: the fake knows what they do.
var stepPTX = func() []byte {
	text := string(addPTX)
	for _, name := range []string{"step_prologue_0", "step_epilogue_0"} {
		text += fmt.Sprintf("\n.visible .entry %[1]s(.param .u64 %[1]s_a, .param .u64 %[1]s_b, .param .u64 %[1]s_c)\n{\n\tret;\n}\n", name)
	}
	return []byte(text)
}()

// vaddStep is a step of launches.
func vaddStep(launches []device.Launch, in, out []device.Region) device.StepLaunches {
	return device.StepLaunches{
		Prologue: device.Launch{Kernel: 1, Symbol: "step_prologue_0", Op: "prologue", Block: 256},
		Epilogue: device.Launch{Kernel: 2, Symbol: "step_epilogue_0", Op: "epilogue", Block: 256},
		Launches: launches, In: in, Out: out,
	}
}

// loadSteps loads vadd and the kernels around a step.
func loadSteps(t *testing.T, d *PlanDevice) device.StepLibrary {
	t.Helper()
	lib, err := d.Load(stepPTX, []string{"vadd", "step_prologue_0", "step_epilogue_0"})
	ok(t, err)
	return lib.(device.StepLibrary)
}

// runSteps is runVadd for a library of loadSteps.
func runSteps(l *drivertest.Launch) error {
	if ran, err := l.Step(); ran {
		return err
	}
	return runVadd(l)
}

// onSteps is onPlans with a fake that executes kernels in another way.
func onSteps(t *testing.T, o PlanOptions, execute func(*drivertest.Launch) error, f func(d *PlanDevice, fake *drivertest.Fake)) {
	t.Helper()
	o.Staging = 48
	d, fake := openFake(t, execute)
	x, err := OpenForPlans(d, o)
	ok(t, err)
	f(x, fake)
	ok(t, x.Close())
	if open, problems := fake.Open(), fake.Problems(); len(open)+len(problems) > 0 {
		t.Errorf("open %v, problems %v", open, problems)
	}
	ok(t, fake.Close())
}

// A step takes inputs of every size and gives outputs; large ones stay on the device.
// After an error it goes on.
func TestStep(t *testing.T) {
	for _, o := range options {
		onSteps(t, o, runSteps, func(d *PlanDevice, fake *drivertest.Fake) {
			lib := loadSteps(t, d)
			const n, large = 1001, 1<<16 + 4 // 4004 bytes: two groups and a tail
			m, err := d.Alloc(4*n*4 + large)
			ok(t, err)
			at := func(offset, bytes int64) device.Region {
				return device.Region{Address: m.Address() + uint64(offset), Bytes: bytes}
			}
			in := []device.Region{at(0, 4*n), at(4*n, 4*n), at(4*n*4, 0)}
			out := []device.Region{at(4*n*3, 4*n), at(4*n*4, large), at(4*n*2, 3)}
			s, err := lib.PrepareStep(vaddStep(sums(m, n, 2), in, out))
			ok(t, err)
			if a, b := len(s.Input(0)), len(s.Input(2)); a != 4*n || b != 0 || s.Output(1) != nil || len(s.Output(2)) != 3 {
				t.Errorf("inputs of %d and %d bytes, outputs of %d and %d", a, b, len(s.Output(1)), len(s.Output(2)))
			}
			for round := range uint32(4) {
				one := make([]uint32, n)
				for i := range one {
					one[i] = uint32(i) + round
				}
				copy(s.Input(0), words(one...))
				copy(s.Input(1), words(one...))
				if round == 2 {
					call := map[bool]string{true: "cuGraphLaunch", false: "cuLaunchKernel"}[d.Graphs()]
					fake.Inject(drivertest.Fault{Call: call, Skip: map[bool]int{false: 2}[d.Graphs()], Code: 1})
					err := s.Run()
					refused(t, err, err, call+": error 1")
				}
				ok(t, s.Run())
				for i := range one {
					one[i] *= 3 // 1 1 2 3
				}
				if d := cmp.Diff(words(one...), s.Output(0)); d != "" {
					t.Fatalf("round %d: %s", round, d)
				}
				if want := words(2 * round)[:3]; !bytes.Equal(s.Output(2), want) {
					t.Errorf("round %d: a tail of %v, want %v", round, s.Output(2), want)
				}
			}
			bare, err := lib.PrepareStep(vaddStep(nil, nil, nil))
			ok(t, errors.Join(err, bare.Run(), bare.Run(), bare.Close(), s.Close(), m.Free(), lib.Close()))
		})
	}
}

// A replay that reads the block of an earlier step, or that does not happen, is found
// out, and the next step is as it should be.
func TestStaleStep(t *testing.T) {
	for _, o := range options {
		skip := ""
		execute := func(l *drivertest.Launch) error {
			if l.Kernel.Name == skip {
				skip = ""
				return nil
			}
			return runSteps(l)
		}
		onSteps(t, o, execute, func(d *PlanDevice, _ *drivertest.Fake) {
			lib := loadSteps(t, d)
			s, err := lib.PrepareStep(vaddStep(nil, nil, nil))
			ok(t, errors.Join(err, s.Run()))
			hint := map[bool]string{true: "--graph off runs without graphs", false: "it happened without graphs"}[d.Graphs()]
			want := "stale read: after step 2 the device has the results of step 1 (group 0 of 1 of step_epilogue_0); " + hint
			for _, kernel := range []string{"step_prologue_0", "step_epilogue_0"} {
				s, err := lib.PrepareStep(vaddStep(nil, nil, nil))
				ok(t, errors.Join(err, s.Run()))
				skip = kernel
				refused(t, s.Run(), device.ErrStale, want)
				ok(t, errors.Join(s.Run(), s.Run(), s.Close()))
			}
			ok(t, errors.Join(s.Close(), lib.Close()))
		})
	}
}

// The error of a step that does not end says which step is the last that did.
func TestWatchdogNamesStep(t *testing.T) {
	for _, graph := range []gpu.Graph{gpu.GraphOn, gpu.GraphOff} {
		runs, ended := 0, make(chan struct{})
		d, fake := openFake(t, func(l *drivertest.Launch) error {
			if ran, err := l.Step(); ran {
				return err
			}
			if runs++; runs == 3 {
				<-ended
			}
			return nil
		})
		x, err := OpenForPlans(d, PlanOptions{Graph: graph, Watchdog: 500 * time.Millisecond})
		ok(t, err)
		lib := loadSteps(t, x)
		m, err := x.Alloc(400)
		ok(t, err)
		s, err := lib.PrepareStep(vaddStep(sums(m, 10, 1), nil, nil))
		ok(t, errors.Join(err, s.Run(), s.Run()))
		err = s.Run()
		refused(t, err, ErrStuck, "not done after 500ms: the device does not answer; this is step 3 of the plan, the last that is finished is 2")
		var at *device.LaunchError
		if named := errors.As(err, &at) && at.Index == 0 && at.Symbol == "vadd"; named != (graph == gpu.GraphOff) {
			t.Errorf("%s: error %v", graph, err)
		}
		for _, err := range []error{s.Run(), m.Zero(), x.Close()} {
			refused(t, err, ErrStuck, "the device does not answer")
		}
		close(ended)
		ok(t, errors.Join(fake.Forget(), fake.Close()))
	}
}

// A step's replays can be measured, and it goes on afterwards.
func TestPace(t *testing.T) {
	onSteps(t, PlanOptions{}, runSteps, func(d *PlanDevice, fake *drivertest.Fake) {
		lib := loadSteps(t, d)
		s, err := lib.PrepareStep(vaddStep(nil, nil, nil))
		ok(t, errors.Join(err, s.Run()))
		p, err := s.(gpu.Pacer).Pace(3, 5)
		if err != nil || p.Nodes != 2 || p.Host <= 0 || p.Whole <= 0 || fake.Calls("cuGraphLaunch") != 1+3+3+5 {
			t.Errorf("%+v, %d replays, error %v", p, fake.Calls("cuGraphLaunch"), err)
		}
		ok(t, errors.Join(s.Run(), s.Close(), lib.Close()))
	})
	onSteps(t, PlanOptions{Graph: gpu.GraphOff}, runSteps, func(d *PlanDevice, _ *drivertest.Fake) {
		lib := loadSteps(t, d)
		s, err := lib.PrepareStep(vaddStep(nil, nil, nil))
		ok(t, err)
		_, err = s.(gpu.Pacer).Pace(3, 5)
		refused(t, err, err, "the step has no graph")
		ok(t, errors.Join(s.Close(), lib.Close()))
	})
}
