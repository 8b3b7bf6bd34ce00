package driver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

func TestSearch(t *testing.T) {
	for _, tc := range []struct {
		kind driver.Kind
		o    driver.Options
		want []string
	}{
		{driver.HIP, driver.Options{Library: "mine.so", Root: "/r"}, []string{"mine.so"}},
		{driver.HIP, driver.Options{Root: "/r"}, []string{
			"libamdhip64.so.7", "/r/lib/libamdhip64.so.7", "/opt/rocm/lib/libamdhip64.so.7",
			"libamdhip64.so.6", "/r/lib/libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.6",
			"libamdhip64.so.5", "/r/lib/libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5",
			"libamdhip64.so", "/r/lib/libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"}},
		{driver.CUDA, driver.Options{}, []string{
			"libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
			"libcuda.so", "/usr/lib/x86_64-linux-gnu/libcuda.so", "/usr/local/cuda/compat/libcuda.so", "/usr/lib/wsl/lib/libcuda.so"}},
	} {
		if d := cmp.Diff(tc.want, driver.Search(tc.kind, tc.o)); d != "" {
			t.Errorf("%s %+v (-want +got)\n%s", tc.kind, tc.o, d)
		}
	}
}

// Each of many that look at a time hears why its library does not load: the loader keeps the
// reason by thread.
func TestNoLibraryReasons(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for n := range 50 {
				file := filepath.Join(dir, fmt.Sprintf("lib%d.%d.so", i, n))
				_, err := driver.Open(driver.CUDA, driver.Options{Library: file})
				var none *driver.NotFoundError
				if !errors.As(err, &none) || len(none.Tried) != 1 || !strings.Contains(none.Tried[0].Problem, "cannot open shared object file") {
					t.Errorf("%s: error %v, want the loader's reason", file, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Without a library the error has every place and what to do.
func TestNoLibrary(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libamdhip64.so.9")
	_, err := driver.Open(driver.HIP, driver.Options{Library: missing})
	var none *driver.NotFoundError
	if !errors.As(err, &none) || len(none.Tried) != 1 || none.Tried[0].Path != missing {
		t.Fatalf("error %v", err)
	}
	text := filepath.Join(t.TempDir(), "text.so")
	check(t, os.WriteFile(text, []byte("no library"), 0o644))
	for _, tc := range []struct {
		file string
		want []string
	}{
		{missing, []string{"no HIP library could be loaded; tried " + missing + " (cannot open shared object file", "; install ROCm", "--hip-lib"}},
		{text, []string{text + " ("}},
	} {
		_, err := driver.Open(driver.HIP, driver.Options{Library: tc.file})
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %s", err, want)
			}
		}
	}
	// All places, and what is wrong with several once.
	e := &driver.NotFoundError{Kind: driver.CUDA, Tried: []driver.Attempt{{Path: "a", Problem: "gone"}, {Path: "b", Problem: "gone"}, {Path: "c", Problem: "text"}}}
	want := "no CUDA library could be loaded; tried a, b (gone); c (text); install NVIDIA's driver (libcuda.so.1), or name the library with --cuda-lib"
	if e.Error() != want {
		t.Errorf("error %s, want %s", e, want)
	}
}

// Every required symbol that is missing is named; what is optional is not
// required.
func TestMissingSymbols(t *testing.T) {
	f := newFake(t, drivertest.Options{Without: []string{"hipGraphLaunch", "hipMalloc", "hipGetDevicePropertiesR0600"}})
	_, err := driver.Open(driver.HIP, driver.Options{Library: f.Path})
	want := "HIP library " + f.Path + " lacks the symbols hipMalloc, hipGraphLaunch; it is too old"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := drivertest.New(t.TempDir(), drivertest.Options{Version: "4.5"}); err == nil || !strings.Contains(err.Error(), `no fake HIP "4.5": have 5.2, 6.2`) {
		t.Errorf("error %v", err)
	}
	for _, version := range drivertest.Versions() {
		l := openLibrary(t, newFake(t, drivertest.Options{Version: version}))
		var absent []string
		if version == "5.2" {
			absent = []string{"hipGetDevicePropertiesR0600"}
		}
		if !slices.Equal(l.Absent, absent) {
			t.Errorf("HIP %s: without %v, want %v", version, l.Absent, absent)
		}
	}
}

// Both layouts of the properties give the same device.
func TestInfo(t *testing.T) {
	mi350 := drivertest.Device{Name: "AMD Instinct MI350X", Arch: "gfx950:sramecc+:xnack-", Memory: 288 << 30}
	for _, version := range drivertest.Versions() {
		f := newFake(t, drivertest.Options{Version: version, Devices: []drivertest.Device{mi300, mi350}})
		l := openLibrary(t, f)
		if n := must[int](t)(l.DeviceCount()); n != 2 {
			t.Errorf("%d devices", n)
		}
		d := must[*driver.Device](t)(l.OpenDevice(1))
		want := driver.Info{
			Kind: driver.HIP, Index: 1, Name: mi350.Name, Target: mi350.Arch, Version: must[int](t)(l.Version()), Build: must[string](t)(l.Build()),
			Units: 304, Wave: 64, MaxGroup: 1024, Shared: 65536, MaxShared: 65536, UnitShared: 65536, L2: 4 << 20,
			ClockKHz: 2_100_000, MemoryClockKHz: 1_300_000, BusBits: 8192, Memory: 288 << 30, MemoryFree: 288 << 30,
		}
		if diff := cmp.Diff(want, d.Info()); diff != "" {
			t.Errorf("HIP %s (-want +got)\n%s", version, diff)
		}
		old, newer := f.Calls("hipGetDeviceProperties"), f.Calls("hipGetDevicePropertiesR0600")
		if (old == 1) != (version == "5.2") || old+newer != 1 {
			t.Errorf("HIP %s: %d calls for the old layout, %d for the newer", version, old, newer)
		}
		check(t, d.Close())
		if _, err := l.OpenDevice(2); err == nil || !strings.Contains(err.Error(), "HIP device 2 does not exist: there are 2, numbered from 0") {
			t.Errorf("error %v", err)
		}
	}
	bad := mi300
	bad.Arch = "Vega 10"
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{bad}})
	if _, err := openLibrary(t, f).OpenDevice(0); err == nil || !strings.Contains(err.Error(), "no target ID (gfx...) in the properties of device 0: hipDeviceProp_tR0600 has it at offset 1160") {
		t.Errorf("error %v", err)
	}
}

// A layout that moved is found, and reported.
func TestFindArchName(t *testing.T) {
	properties := func(at int, text string) []byte {
		b := make([]byte, 8192)
		copy(b, "a gfx942 in a name") // which does not count
		copy(b[at:], text)
		return b
	}
	for _, tc := range []struct {
		at                    int
		text, target, problem string
	}{
		{1160, "gfx942:sramecc+:xnack-\x00x", "gfx942:sramecc+:xnack-", ""},
		{1168, "gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack-", "gcnArchName is at offset 1168, not at 1160 as in hipDeviceProp_tR0600"},
		{396, "gfx1201", "gfx1201", "gcnArchName is at offset 396, not at 1160 as in hipDeviceProp_tR0600"},
		{1168, "gfx942xyz", "", ""},
		{1168, "", "", ""},
	} {
		if target, problem := driver.FindArchName(properties(tc.at, tc.text)); target != tc.target || problem != tc.problem {
			t.Errorf("%q at %d: %q, %q; want %q, %q", tc.text, tc.at, target, problem, tc.target, tc.problem)
		}
	}
}

// noDevice checks what a library says where there is no device, in one line.
func noDevice(t *testing.T, l *driver.Library, version string) {
	t.Helper()
	for range 2 {
		_, err := l.OpenDevice(0)
		if !errors.Is(err, driver.ErrNoDevice) {
			t.Fatalf("error %v", err)
		}
		for _, want := range []string{"no device: HIP " + version + " (" + l.Path + "): hipInit says 101 hipErrorInvalidDevice; check that /dev/kfd exists"} {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %s", err, want)
			}
		}
	}
}

func TestNoDevice(t *testing.T) {
	noDevice(t, openLibrary(t, newFake(t, drivertest.Options{Version: "7.2.1"})), "7.2.0")
}

// Debian's own library, on a machine without a GPU.
func TestNoDeviceOfRealLibrary(t *testing.T) {
	if _, err := os.Stat("/dev/kfd"); err == nil {
		t.Skip("/dev/kfd: this machine has an AMD GPU")
	}
	l, err := driver.Open(driver.HIP, driver.Options{})
	var none *driver.NotFoundError
	if errors.As(err, &none) {
		t.Skipf("%v (Debian: libamdhip64-5)", err)
	}
	check(t, err)
	noDevice(t, l, driver.VersionText(driver.HIP, must[int](t)(l.Version())))
	t.Logf("%s", second(l.DeviceCount()))
}

func TestVersionText(t *testing.T) {
	for _, tc := range []struct {
		kind    driver.Kind
		version int
		want    string
	}{{driver.HIP, 50221153, "5.2.21153"}, {driver.HIP, 71400000, "7.14.0"}, {driver.CUDA, 13000, "13.0"}, {driver.CUDA, 12080, "12.8"}} {
		if got := driver.VersionText(tc.kind, tc.version); got != tc.want {
			t.Errorf("%s %d: %s, want %s", tc.kind, tc.version, got, tc.want)
		}
	}
}
