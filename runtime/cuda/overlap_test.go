package cuda

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

// waitingPTX is vadd that waits for the launches before it.
var waitingPTX = []byte(strings.Replace(string(addPTX), "\n{\n", "\n{\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n", 1))

// Each launch of a graph overlaps with the one before, if its kernel waits for that,
// however the graph is made; others do not.
func TestOverlap(t *testing.T) {
	const length = 5
	for _, c := range []struct {
		name string
		o    PlanOptions
		ptx  []byte
		want int
	}{
		{"explicit", PlanOptions{}, waitingPTX, length - 1},
		{"on", PlanOptions{Overlap: gpu.OverlapOn}, waitingPTX, length - 1},
		{"captured", PlanOptions{Build: gpu.BuildCapture}, waitingPTX, length - 1},
		{"off", PlanOptions{Overlap: gpu.OverlapOff}, waitingPTX, 0},
		{"no graph", PlanOptions{Graph: gpu.GraphOff}, waitingPTX, 0},
		{"kernel that does not wait", PlanOptions{}, addPTX, 0},
		{"the same, captured", PlanOptions{Build: gpu.BuildCapture}, addPTX, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			onPlans(t, c.o, func(d *PlanDevice, fake *drivertest.Fake) {
				lib, err := d.Load(c.ptx, []string{"vadd"})
				ok(t, err)
				m, err := d.Alloc(4 * (length + 2))
				ok(t, err)
				ok(t, m.Write(0, words(1, 1)))
				s, err := lib.Prepare(sums(m, 1, length))
				ok(t, err)
				for range 2 {
					ok(t, s.Run())
				}
				got := make([]byte, 4*(length+2))
				ok(t, m.Read(0, got))
				if string(got) != string(words(1, 1, 2, 3, 5, 8, 13)) {
					t.Errorf("sums %v", got)
				}
				if n := fake.Overlaps(); n != c.want {
					t.Errorf("%d launches overlap, want %d", n, c.want)
				}
				ok(t, s.Close())
				ok(t, lib.Close())
				ok(t, m.Free())
			})
		})
	}
}

// A driver without the calls runs launches one after the other and says so, unless told
// to let them overlap.
func TestOverlapIsMissing(t *testing.T) {
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	for _, missing := range []string{"cuLaunchKernelEx", "cuGraphAddDependencies_v2"} {
		fake, err := drivertest.New(t.TempDir(), drivertest.Options{
			Kind: driver.CUDA, Without: []string{missing}, Devices: []drivertest.Device{{Name: "H200", Arch: "sm_90", Memory: 1 << 20}},
		})
		ok(t, err)
		l, err := Open(Options{Library: fake.Path})
		ok(t, err)
		open := func(o PlanOptions) (*PlanDevice, error) {
			d, err := l.OpenDevice(0)
			ok(t, err)
			return OpenForPlans(d, o)
		}
		d, err := open(PlanOptions{})
		ok(t, err)
		if yes, why := d.Overlaps(); yes || why == nil || !strings.Contains(why.Error(), missing) {
			t.Errorf("overlaps: %v, because %v; want a reason with %s", yes, why, missing)
		}
		ok(t, d.Close())
		if _, err = open(PlanOptions{Overlap: gpu.OverlapOn}); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("error %v, want one with %s", err, missing)
		}
		ok(t, fake.Close())
	}
}
