package devicetest

import (
	"cmp"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// Fakes says what GPUs there are.
type Fakes struct {
	HIP, CUDA []string // architectures
	Memory    int64    // bytes of each; 0 is 4 GiB
	ROCm      string   // a release that drivertest has; "" is its default
	// Hangs: the kernels of plans do not end before the test does, and what a device
	// that does not answer has open stays open.
	Hangs bool
	// Invents: kernels write what depends on their names and operands (Invent), where
	// others write nothing.
	Invents bool
	// Fails: so many replays of graphs go well and the next one is an error of the
	// device; 0: all go well. Results are zeros.
	Fails int
}

// FakeDrivers makes driver libraries of both vendors, whose GPUs compute nothing. At the end of the test nothing of them may
// be open.
func FakeDrivers(t testing.TB, f Fakes) (hip, cuda string) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	library := func(k driver.Kind, name string, version string, archs []string) string {
		o := drivertest.Options{Kind: k, Version: version}
		for _, a := range archs {
			o.Devices = append(o.Devices, drivertest.Device{Name: name, Arch: a, Memory: cmp.Or(f.Memory, 1<<32)})
		}
		ended := make(chan struct{})
		if f.Invents {
			o.Execute = Invent
		}
		if f.Hangs {
			o.Execute = func(l *drivertest.Launch) error {
				if ran, err := l.Step(); ran {
					return err
				}
				<-ended
				return nil
			}
		}
		if f.Fails > 0 {
			o.Execute = func(l *drivertest.Launch) error {
				ran, err := l.Step()
				if !ran {
					l.Zero(1 << 16)
				}
				return err
			}
		}
		fake, err := drivertest.New(t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		if f.Fails > 0 {
			const invalidHandle = 400 // of both vendors; the device is as before
			call := map[driver.Kind]string{driver.HIP: "hipGraphLaunch", driver.CUDA: "cuGraphLaunch"}[k]
			fake.Inject(drivertest.Fault{Call: call, Skip: f.Fails, Code: invalidHandle})
		}
		t.Cleanup(func() {
			close(ended)
			if open := fake.Open(); len(open) > 0 && !f.Hangs {
				t.Errorf("%s: open %v", k, open)
			}
			if err := fake.Close(); err != nil {
				t.Error(err)
			}
		})
		return fake.Path
	}
	return library(driver.HIP, "AMD Instinct", f.ROCm, f.HIP), library(driver.CUDA, "NVIDIA", "", f.CUDA)
}
