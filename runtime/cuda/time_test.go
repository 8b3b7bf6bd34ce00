package cuda

import (
	"errors"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// Work is timed by events around it, behind what was written before; launches can be
// prepared one by one where graphs are on. A failure leaves no event behind.
func TestElapsed(t *testing.T) {
	onPlans(t, PlanOptions{}, func(d *PlanDevice, fake *drivertest.Fake) {
		lib, err := d.Load(addPTX, []string{"vadd"})
		ok(t, err)
		const n, length = 20, 4
		m, err := d.Alloc(4 * n * (length + 2))
		ok(t, err)
		one := make([]uint32, n)
		for i := range one {
			one[i] = 1
		}
		for _, eager := range []bool{false, true} {
			d.SetGraphs(!eager)
			s, err := lib.Prepare(sums(m, n, length))
			ok(t, err)
			ok(t, errors.Join(m.Write(0, words(one...)), m.Write(4*n, words(one...))))
			records := fake.Calls("cuEventRecord")
			fake.Launches()
			took, err := d.Elapsed(s.Run)
			if err != nil || took <= 0 || fake.Calls("cuEventRecord") != records+2 {
				t.Errorf("eager %v: %v, error %v, %d events", eager, took, err, fake.Calls("cuEventRecord")-records)
			}
			got := make([]byte, 4)
			ok(t, m.Read(4*n*(length+1), got))
			if got[0] != 8 { // 1 1 2 3 5 8
				t.Errorf("eager %v: sum %d, want 8", eager, got[0])
			}
			ran := fake.Launches()
			if len(ran) != length {
				t.Errorf("eager %v: %d launches", eager, len(ran))
			}
			for _, l := range ran {
				if l.Graph == eager {
					t.Errorf("eager %v: a launch of a graph: %v", eager, l.Graph)
				}
			}
			ok(t, s.Close())
		}
		failed := errors.New("f")
		if _, err := d.Elapsed(func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("error %v, want f's", err)
		}
		for _, call := range []string{"cuEventCreate", "cuEventRecord", "cuEventElapsedTime"} {
			fake.Inject(drivertest.Fault{Call: call, Skip: 0, Code: 1})
			_, err := d.Elapsed(func() error { return nil })
			refused(t, err, err, call+": error 1")
		}
		ok(t, errors.Join(m.Free(), lib.Close()))
	})
}
