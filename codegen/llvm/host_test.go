//go:build linux && amd64

package llvm

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/ebitengine/purego"
)

// A linked library of the host loads and computes: this process has the C library
// that its memcpy needs, without cgo.
func TestHostLibraryRuns(t *testing.T) {
	tc := toolchain(t)
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !regexp.MustCompile(`(?m)^flags.* avx2 .*`).Match(info) {
		t.Skipf("the fixture is for x86-64-v3, which this CPU is not: %v", err)
	}
	code, err := tc.Link(t.Context(), "rms", [][]byte{compileOne(t, tc, fixture(t, "x86-64-v3"))})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rms.so")
	if err := os.WriteFile(path, code, 0o755); err != nil {
		t.Fatal(err)
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	defer purego.Dlclose(lib)
	var rms func(x, y *float32, n int64)
	purego.RegisterLibFunc(&rms, lib, "rms")

	for _, n := range []int{1, 7, 64, 1000} {
		x, y := make([]float32, n), make([]float32, n+1)
		sum := 0.0
		for i := range x {
			x[i] = float32(i%13) - 5.5
			sum += float64(x[i]) * float64(x[i])
		}
		y[n] = 99
		rms(&x[0], &y[0], int64(n))
		runtime.KeepAlive(x)
		scale := 1 / math.Sqrt(sum/float64(n)+1e-6*float64(1+n%2))
		for i := range x {
			want := float64(x[i]) * scale
			if diff := math.Abs(float64(y[i]) - want); !(diff <= 1e-6*math.Abs(want)) {
				t.Errorf("n %d: y[%d] = %g, want %g", n, i, y[i], want)
			}
		}
		if y[n] != 99 {
			t.Errorf("n %d: wrote past the end", n)
		}
	}
}
