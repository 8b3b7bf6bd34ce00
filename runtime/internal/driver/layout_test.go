package driver_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// compareLayout compares what the bindings assume with what a version's headers
// say, and returns how many values both have.
func compareLayout(t *testing.T, version string, headers drivertest.Layout) int {
	t.Helper()
	n := 0
	compare := func(key string, ours int) {
		theirs, ok := headers[key]
		if !ok {
			return
		}
		n++
		if ours != theirs {
			t.Errorf("HIP %s: %s is %d, the bindings have %d", version, key, theirs, ours)
		}
	}
	for key, v := range driver.StructLayout() {
		compare(key, v)
	}
	// The oldest symbol keeps the old layout in every version.
	for key, v := range driver.PropertiesLayout(version >= "6") {
		compare(key, v)
	}
	for name, v := range driver.Numbers() {
		compare("enum "+name, v)
	}
	flags := headers["enum hipHostMallocPortable"] | headers["enum hipHostMallocMapped"] | headers["enum hipHostMallocCoherent"]
	if flags != 0 && flags != driver.PinnedFlags() {
		t.Errorf("HIP %s: flags of pinned memory are %d, the bindings have %d", version, flags, driver.PinnedFlags())
	}
	for name, want := range map[string]error{
		"hipErrorOutOfMemory": driver.ErrOutOfMemory, "hipErrorNoDevice": driver.ErrNoDevice, "hipErrorInvalidImage": driver.ErrWrongImage,
		"hipErrorNoBinaryForGpu": driver.ErrWrongImage, "hipErrorECCNotCorrectable": driver.ErrDeviceLost, "hipErrorIllegalAddress": driver.ErrDeviceLost,
		"hipErrorLaunchTimeOut": driver.ErrDeviceLost, "hipErrorAssert": driver.ErrDeviceLost, "hipErrorLaunchFailure": driver.ErrDeviceLost,
	} {
		if code, ok := headers["enum "+name]; ok && !errors.Is(want, driver.Means(code)) {
			t.Errorf("HIP %s: %s (%d) means %v, want %v", version, name, code, driver.Means(code), want)
		}
	}
	return n
}

func TestLayout(t *testing.T) {
	for _, version := range drivertest.LayoutVersions {
		headers, err := drivertest.LayoutOf(version)
		if err != nil {
			t.Fatal(err)
		}
		if n := compareLayout(t, version, headers); n < 20 {
			t.Errorf("HIP %s: only %d values compared", version, n)
		}
	}
	want := map[string]int{"sizeof": 72, "func": 0, "gridDim": 8, "blockDim": 20, "sharedMemBytes": 32, "kernelParams": 40, "extra": 48, "kern": 56, "ctx": 64}
	if got := driver.CUDAStructLayout(); !maps.Equal(got, want) {
		t.Errorf("CUDA_KERNEL_NODE_PARAMS_v2 is %v, want %v", got, want)
	}
}

// hipHeaders are where Debian's libamdhip64-dev puts them, and ROCm.
var hipHeaders = []string{"/usr/include", "/opt/rocm/include"}

// The headers of this machine, with its C compiler.
func TestLayoutOfHeaders(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc)")
	}
	at := slices.IndexFunc(hipHeaders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "hip/hip_runtime_api.h"))
		return err == nil
	})
	if at < 0 {
		t.Skipf("no hip/hip_runtime_api.h below %s (Debian: libamdhip64-dev)", strings.Join(hipHeaders, ", "))
	}
	flags := []string{"-D__HIP_PLATFORM_AMD__=1", "-D__HIP_PLATFORM_HCC__=1", "-I", hipHeaders[at]}
	program := filepath.Join(t.TempDir(), "layout")
	run := func(name string, args ...string) []byte {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return out
	}
	run(cc, append(flags, "-fsyntax-only", "drivertest/layout/prototypes.c")...)
	run(cc, append(flags, "-o", program, "drivertest/layout/layout.c")...)
	headers, err := drivertest.ParseLayout(string(run(program)))
	if err != nil {
		t.Fatal(err)
	}
	version := "5"
	if headers["sizeof hipDeviceProp_t"] > 792 {
		version = "6"
	}
	if n := compareLayout(t, version+" of "+hipHeaders[at], headers); n < 20 {
		t.Errorf("only %d values compared", n)
	}
	// What is in the repository is what this program prints, of one version.
	if version == "5" {
		kept, err := drivertest.LayoutOf("5.2.3")
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(kept, headers) {
			t.Errorf("layout/hip-5.2.3.txt is not what layout.c prints:\n%v\n%v", kept, headers)
		}
	}
}

// The check of prototypes has a line for every function of the table.
func TestPrototypesAreComplete(t *testing.T) {
	text, err := os.ReadFile("drivertest/layout/prototypes.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range driver.Symbols(driver.HIP) {
		name := strings.TrimSuffix(s.Name, "R0600")
		if !strings.Contains(string(text), "CALL("+name+",") && !strings.Contains(string(text), " "+name+", hipError_t)") {
			t.Errorf("prototypes.c has no %s", name)
		}
	}
}
