package devicetest

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// FakeDrivers makes driver libraries of both vendors with GPUs of some
// architectures and so many bytes, which compute nothing. At the end of the test nothing of them may
// be open.
func FakeDrivers(t testing.TB, memory int64, hipArchs, cudaArchs []string) (hip, cuda string) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	library := func(k driver.Kind, name string, archs []string) string {
		o := drivertest.Options{Kind: k}
		for _, a := range archs {
			o.Devices = append(o.Devices, drivertest.Device{Name: name, Arch: a, Memory: memory})
		}
		fake, err := drivertest.New(t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if open := fake.Open(); len(open) > 0 {
				t.Errorf("%s: open %v", k, open)
			}
			if err := fake.Close(); err != nil {
				t.Error(err)
			}
		})
		return fake.Path
	}
	return library(driver.HIP, "AMD Instinct", hipArchs), library(driver.CUDA, "NVIDIA", cudaArchs)
}
