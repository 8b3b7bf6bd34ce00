package device_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
)

// timed is a fake whose clock ticks with each launch: launch i takes i+1 microseconds,
// by the order of the module's kernels. One by one they take twice as long.
type timed struct {
	*fake
	now   time.Duration
	eager bool
	// broken: launches one by one do nothing.
	broken bool
}

func (d *timed) Graphs() bool      { return !d.eager }
func (d *timed) SetGraphs(on bool) { d.eager = !on }

func (d *timed) Elapsed(f func() error) (time.Duration, error) {
	start := d.now
	if err := errors.Join(f(), d.Sync()); err != nil {
		return 0, err
	}
	return d.now - start, nil
}

func (d *timed) Load(code []byte, kernels []string) (device.Library, error) {
	l, err := d.fake.Load(code, kernels)
	if err != nil {
		return nil, err
	}
	return &timedLibrary{l.(*library), d}, nil
}

type timedLibrary struct {
	*library
	d *timed
}

type timedSequence struct {
	device.Sequence
	d    *timed
	took time.Duration
}

func (l *timedLibrary) Prepare(list []device.Launch) (device.Sequence, error) {
	each := map[bool]time.Duration{false: time.Microsecond, true: 2 * time.Microsecond}[l.d.eager]
	if l.d.broken && l.d.eager {
		list = nil
	}
	s, err := l.library.Prepare(list)
	if err != nil {
		return nil, err
	}
	took := time.Duration(0)
	for _, x := range list {
		took += time.Duration(x.Kernel+1) * each
	}
	return &timedSequence{s, l.d, took}, nil
}

func (s *timedSequence) Run() error {
	s.d.now += s.took
	return s.Sequence.Run()
}

// measured starts a measurement of the module's step on a device.
func measured(t *testing.T, d device.Device, mod *plan.Module, cold int64) (m *device.Measurement, st *device.State, closed func() error) {
	t.Helper()
	model, err := device.NewModel(d, []byte(code), mod)
	if err != nil {
		t.Fatal(err)
	}
	if err := model.BindWeights(t.Context(), weights, nil); err != nil {
		t.Fatal(err)
	}
	p := mod.Plans[0]
	g, err := model.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	if st, err = model.NewState(p); err != nil {
		t.Fatal(err)
	}
	if m, err = g.Measure(map[string]*eval.Tensor{"x": tensor(t, 1, 1, 1, 1)}, st, cold); err != nil {
		t.Fatal(err)
	}
	return m, st, func() error { return errors.Join(m.Close(), st.Close(), g.Close(), model.Close()) }
}

// A launch's time is what it adds, whatever the window, and each run starts from the
// inputs: the step's result lies where its input was.
func TestMeasure(t *testing.T) {
	for _, window := range []int{0, 1, 2, 64} {
		for _, cold := range []int64{0, 100} {
			d := &timed{fake: &fake{}}
			m, st, closed := measured(t, d, module(), cold)
			if len(m.Launches()) != 3 {
				t.Errorf("%d launches", len(m.Launches()))
			}
			var heard []int
			each, err := m.Each(3, window, func(i int) { heard = append(heard, i) })
			want := []device.LaunchTime{{Median: time.Microsecond, P95: time.Microsecond}, {Median: 2 * time.Microsecond, P95: 2 * time.Microsecond}, {Median: 3 * time.Microsecond, P95: 3 * time.Microsecond}}
			if diff := cmp.Diff(want, each); diff != "" || err != nil || !slices.Equal(heard, []int{1, 2, 3}) {
				t.Errorf("window %d: heard %v, error %v, launches (-want +got):\n%s", window, heard, err, diff)
			}
			for eager, want := range map[bool]time.Duration{false: 6 * time.Microsecond, true: 12 * time.Microsecond} {
				if s, err := m.Step(4, eager); err != nil || len(s) != 4 || s.Median() != want || s.P95() != want {
					t.Errorf("steps, eager %v: %v, error %v", eager, s, err)
				}
			}
			if s, err := m.Whole(2); err != nil || len(s) != 2 || s.Median() <= 0 {
				t.Errorf("whole steps %v, error %v", s, err)
			}
			pool, err := st.Pool("kv.pool")
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range pool.F {
				if runs := pool.F[0]; v != runs*weights[i] || runs < 6 {
					t.Errorf("window %d: pool %v: a run did not start from its inputs", window, pool.F)
				}
			}
			if err := errors.Join(closed(), d.Close()); err != nil || d.left() != 0 {
				t.Errorf("%d things are left, error %v", d.left(), err)
			}
		}
	}
}

// A replay whose results are not those of launches one by one is found.
func TestMeasureDiffers(t *testing.T) {
	mod := module() // without its pool, as y = 3 * x * w: a step that can be run again
	p := mod.Plans[0]
	p.Launches[2].Args[0].Buf = p.Launches[0].Args[2].Buf
	p.Launches, p.Values = slices.Delete(p.Launches, 1, 2), slices.Clone(p.Values)
	p.Values[2].First, p.Values[2].Last = 1, 2
	for _, broken := range []bool{false, true} {
		d := &timed{fake: &fake{}}
		m, _, closed := measured(t, d, mod, 0)
		d.broken = broken
		want := map[bool]string{true: "y"}[broken]
		if got, err := m.Differs(); err != nil || got != want {
			t.Errorf("broken %v: output %q differs, error %v, want %q", broken, got, err, want)
		}
		if err := errors.Join(closed(), d.Close()); err != nil || d.left() != 0 {
			t.Errorf("%d things are left, error %v", d.left(), err)
		}
	}
}

// Without a clock of its own the host's is taken, and there is one way to run launches.
func TestMeasureByHost(t *testing.T) {
	d := &fake{}
	m, _, closed := measured(t, d, module(), 0)
	if s, err := m.Step(3, false); err != nil || len(s) != 3 || slices.Min(s) <= 0 {
		t.Errorf("steps %v, error %v", s, err)
	}
	if _, err := m.Step(3, true); err == nil || !strings.Contains(err.Error(), "device fake runs launches one by one in any case") {
		t.Errorf("launches one by one: %v", err)
	}
	if each, err := m.Each(2, 0, nil); err != nil || len(each) != 3 {
		t.Errorf("launches %v, error %v", each, err)
	}
	if err := errors.Join(closed(), d.Close()); err != nil || d.left() != 0 {
		t.Errorf("%d things are left, error %v", d.left(), err)
	}
}

// Whatever fails while launches are timed is returned, and nothing is left.
func TestMeasureFails(t *testing.T) {
	for fail := 1; ; fail++ {
		d := &fake{}
		m, _, closed := measured(t, d, module(), 10)
		d.fail = d.calls + fail
		_, err := m.Each(1, 2, nil)
		if d.failed == "" {
			if fail < 20 {
				t.Errorf("%d calls of the device", fail)
			}
			d.fail = 0
			if err := errors.Join(err, closed()); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, errInjected) {
			t.Errorf("call %d (%s) failed, error %v", fail, d.failed, err)
		}
		if err := closed(); err != nil || d.left() != 0 {
			t.Errorf("call %d (%s): %d things are left, error %v", fail, d.failed, d.left(), err)
		}
	}
}

func TestSamples(t *testing.T) {
	for _, tc := range []struct {
		s           device.Samples
		median, p95 time.Duration
	}{
		{nil, 0, 0},
		{device.Samples{7}, 7, 7},
		{device.Samples{9, 1}, 5, 9},
		{device.Samples{3, 1, 2}, 2, 3},
		{device.Samples{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 10, 19},
	} {
		before := slices.Clone(tc.s)
		if m, p := tc.s.Median(), tc.s.P95(); m != tc.median || p != tc.p95 || !slices.Equal(before, tc.s) {
			t.Errorf("%v: median %d, p95 %d, want %d, %d", tc.s, m, p, tc.median, tc.p95)
		}
	}
}
