package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

func examine(t *testing.T, args ...string) doctorReport {
	t.Helper()
	var r doctorReport
	kiln(t, append([]string{"doctor", "--json", "--cache-dir", t.TempDir()}, args...)...).decode(t, &r)
	if r.Kiln != Version || r.Go != runtime.Version() || r.OS != runtime.GOOS || r.Arch != runtime.GOARCH || r.CPU.Cores < 1 {
		t.Errorf("report %+v", r)
	}
	if r.CPU.V3 && !r.CPU.V2 || r.CPU.V2 == (r.CPU.Problem != "") {
		t.Errorf("processor %+v", r.CPU)
	}
	return r
}

// No LLVM is a report, with what to do, and not a failure.
func TestDoctorWithoutLLVM(t *testing.T) {
	dir := t.TempDir()
	got := examine(t, "--llvm", dir).LLVM
	want := doctorLLVM{
		Problem: "no usable LLVM found", Remedy: llvm.Remedy,
		Tried: []llvm.Attempt{{Where: dir, Problem: "no LLVM tools"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text := kiln(t, "doctor", "--llvm", dir).ok(t).stdout
	want2 := "llvm       not found\n  not      " + dir + ": no LLVM tools\n  problem  no usable LLVM found\n  to do    " + llvm.Remedy + "; --device ref works without\n"
	if !strings.HasSuffix(text, want2) {
		t.Errorf("text\n%swant it to end in\n%s", text, want2)
	}
}

// An old LLVM, here scripts that answer like one, compiles for one GPU of two.
func TestDoctorOldLLVM(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stand-ins for LLVM are shell scripts")
	}
	dir := t.TempDir()
	for name, version := range map[string]string{"llc": "LLVM version 19.1.7", "opt": "LLVM version 19.1.7", "ld.lld": "LLD 19.1.7"} {
		script := fmt.Sprintf("#!/bin/sh\ncase $1 in --version) echo '%s' ;; *) printf 'Available CPUs for this target:\\n\\n  gfx942 - that\\n' ;; esac\n", version)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := examine(t, "--llvm", dir).LLVM
	if !got.Found || got.Version != "19.1.7" || got.Mode != "programs" || got.Why == "" || got.Remedy != llvm.Remedy ||
		!strings.Contains(got.Problem, "does not know gfx950, which LLVM 20 and later do") {
		t.Errorf("report %+v", got)
	}
	if diff := cmp.Diff([]doctorGPU{{"gfx942", true}, {"gfx950", false}}, got.GPUs); diff != "" {
		t.Error(diff)
	}
	text := kiln(t, "doctor", "--llvm", dir).ok(t).stdout
	for _, want := range []string{
		"llvm       19.1.7\n", "  mode     programs: ", "  gfx942   yes\n  gfx950   no\n", "  problem  LLVM 19.1.7 in " + dir,
		"  programs " + filepath.Join(dir, "opt") + ", " + filepath.Join(dir, "llc") + ", " + filepath.Join(dir, "ld.lld") + ", no llvm-objdump\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestDoctorRealLLVM(t *testing.T) {
	tc, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("this test reports on the LLVM of the machine, and there is none: %v", err)
	}
	doctor := append([]string{"doctor", "--json", "--cache-dir", t.TempDir()}, drivers(t, nil, nil)...) // other tests use the default folder and GPUs
	first := kiln(t, doctor...).ok(t).stdout
	got := examine(t)
	if !got.LLVM.Found || got.LLVM.ID != tc.ID() || got.LLVM.LLC != tc.LLC || got.LLVM.Source != tc.Source {
		t.Errorf("report %+v, toolchain %+v", got.LLVM, tc.ID())
	}
	if tc.Loader != nil && got.LLVM.Mode != "worker" {
		t.Errorf("mode %s: %s", got.LLVM.Mode, got.LLVM.Why)
	}
	if second := kiln(t, doctor...).ok(t).stdout; second != first {
		t.Errorf("two reports differ:\n%s%s", first, second)
	}
}

func TestDoctorMemory(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const info = "MemTotal:       1000000 kB\nMemFree:         1 kB\n"
	for name, tt := range map[string]struct {
		root fstest.MapFS
		want doctorMemory
	}{
		"nothing known": {fstest.MapFS{}, doctorMemory{}},
		"no group":      {fstest.MapFS{"proc/meminfo": file(info)}, doctorMemory{Total: 1024000000}},
		"no limit":      {fstest.MapFS{"proc/meminfo": file(info), "sys/fs/cgroup/memory.max": file("max\n")}, doctorMemory{Total: 1024000000}},
		"limit":         {fstest.MapFS{"proc/meminfo": file(info), "sys/fs/cgroup/memory.max": file("512000\n")}, doctorMemory{1024000000, 512000}},
		"old limit":     {fstest.MapFS{"proc/meminfo": file(info), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("512000\n")}, doctorMemory{1024000000, 512000}},
		"above total":   {fstest.MapFS{"proc/meminfo": file(info), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, doctorMemory{Total: 1024000000}},
	} {
		if got := examineMemory(tt.root); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// The whole text of a report.
func TestDoctorText(t *testing.T) {
	r := doctorReport{
		Kiln: "1.0", Go: "go1.26.0", OS: "linux", Arch: "amd64",
		CPU:    doctorCPU{Cores: 4, V2: true},
		Memory: doctorMemory{Total: 8_000_000_000, Limit: 2_000_000_000},
		Drivers: []doctorDriver{
			{Kind: "hip", Library: "/r/libamdhip64.so.7", Version: "7.2.26015", Release: "7.2.1", ReleaseFile: "/r/.info/version", Notes: []string{"of the library"}, Devices: []doctorDevice{
				{Device: "hip:0", Name: "MI300X", Target: "gfx942:sramecc+:xnack-", Memory: 192 << 30, Free: 191 << 30, Code: "gfx942", Notes: []string{"graphs off"}},
				{Device: "hip:1", Problem: "busy"},
			}},
			{Kind: "cuda", Tried: []doctorTried{{"a.so", "no such file"}, {"b.so", "no such file"}, {"c.so", "wrong class"}}, Problem: "none"},
		},
		Variables: []doctorVariable{{"HSA_XNACK", "1\n", "AMD's ROCr runtime"}, {"KILN_LLVM", "x", "kiln: --llvm of run"}},
		Cache:     doctorCache{Dir: "/c", Found: true, CacheHealth: codegen.CacheHealth{Entries: 2, Bytes: 2048, Damaged: []string{"ab.kiln-object"}, Unfinished: 1}},
		LLVM: doctorLLVM{
			Found: true, Version: "22.1.8", Vendor: "Debian", Source: "PATH", Dir: "/b", Opt: "/b/opt", LLC: "/b/llc", LLD: "/b/ld.lld", ObjDump: "/b/llvm-objdump",
			Library: "/l/libLLVM.so", Loader: []string{"/l/ld.so", "--library-path", "/l"}, Mode: "worker", Why: "libLLVM loads",
			GPUs: []doctorGPU{{"gfx942", true}, {"gfx950", true}}, Tried: []llvm.Attempt{{Where: "here", Problem: "too old"}},
		},
	}
	want := `kiln       1.0
go         go1.26.0 linux/amd64
cpu        4 cores, x86-64-v2 (not v3)
memory     8000 MB, limited to 2000 MB
hip        7.2.26015 (/r/libamdhip64.so.7), ROCm 7.2.1 (by /r/.info/version)
  hip:0    MI300X, gfx942:sramecc+:xnack-, 192.00 GiB, 191.00 GiB free; runs code for gfx942
  note     graphs off
  hip:1    cannot be opened
  problem  busy
  note     of the library
cuda       not found
  not      a.so, b.so: no such file
  not      c.so: wrong class
  problem  none
variables  "HSA_XNACK=1\n" (AMD's ROCr runtime)
           KILN_LLVM=x (kiln: --llvm of run)
cache      /c: 2 files, 2.00 KiB
  damaged  ab.kiln-object: it is made again when it is needed; kiln cache clean removes all
           1 file being written, or left by a process that was stopped
llvm       22.1.8 (Debian)
  found    PATH
  programs /b: opt llc ld.lld llvm-objdump
  library  /l/libLLVM.so, under /l/ld.so
  mode     worker: libLLVM loads
  gfx942   yes
  gfx950   yes
  not      here: too old
`
	var b strings.Builder
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// GPUs of both vendors, with what is known of their drivers.
func TestDoctorGPUs(t *testing.T) {
	rocm := t.TempDir()
	release := filepath.Join(rocm, ".info", "version")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doctor := func(version, file string, archs []string, environ ...string) (doctorReport, string) {
		t.Helper()
		write(release, file)
		hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{HIP: archs, CUDA: []string{"sm_90"}, ROCm: version, Memory: 1 << 30})
		args := []string{"doctor", "--hip-lib", hip, "--cuda-lib", cuda, "--cache-dir", rocm, "--llvm", rocm}
		environ = append(environ, "ROCM_PATH="+rocm)
		var r doctorReport
		kilnWith(t, environ, "", append(args, "--json")...).decode(t, &r)
		r.Drivers[0].Library, r.Drivers[1].Library = filepath.Base(r.Drivers[0].Library), filepath.Base(r.Drivers[1].Library)
		return r, kilnWith(t, environ, "", args...).ok(t).stdout
	}

	got, text := doctor("7.2.1", "7.2.1-43\n", []string{"gfx942:sramecc+:xnack-", "gfx90a"}, "HSA_OVERRIDE_GFX_VERSION=9.4.2", "HIP_VISIBLE_DEVICES=0,1", "HOME=/x", "KILN_MAX_SEQ=7")
	hip := got.Drivers[0]
	if hip.Release != "7.2.1" || hip.ReleaseFile != release || hip.Version != "7.2.0" || hip.Problem != "" || len(hip.Devices) != 2 ||
		len(hip.Notes) != 1 || !strings.HasPrefix(hip.Notes[0], "HSA_OVERRIDE_GFX_VERSION=9.4.2 ") {
		t.Errorf("hip %+v", hip)
	}
	if d := hip.Devices[0]; d.Device != "hip:0" || d.Code != "gfx942" || d.Memory != 1<<30 || d.Free != 1<<30 || d.Newer || len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], "graphs off: ROCm 7.2.1 on gfx942: ") {
		t.Errorf("hip:0 %+v", d)
	}
	if d := hip.Devices[1]; d.Device != "hip:1" || d.Target != "gfx90a" || d.Code != "" || len(d.Notes) != 0 {
		t.Errorf("hip:1 %+v", d)
	}
	want := doctorDriver{Kind: "cuda", Library: got.Drivers[1].Library, Version: "13.0", Devices: []doctorDevice{{Device: "cuda:0", Name: "NVIDIA", Target: "sm_90", Memory: 1 << 30, Free: 1 << 30, Code: "sm_90a"}}}
	if diff := cmp.Diff(want, got.Drivers[1]); diff != "" {
		t.Error(diff)
	}
	vars := []doctorVariable{
		{"HIP_VISIBLE_DEVICES", "0,1", "AMD's HIP runtime"},
		{"HSA_OVERRIDE_GFX_VERSION", "9.4.2", "AMD's ROCr runtime"},
		{"KILN_DEVICE", "ref", "kiln: --device of bench, check, launch, logits, run, tune"},
		{"KILN_MAX_SEQ", "7", "kiln: --max-seq of compile, plan, tune"},
		{"ROCM_PATH", rocm, "kiln: where ROCm is"},
	}
	if diff := cmp.Diff(vars, got.Variables); diff != "" {
		t.Error(diff)
	}
	if want := "\n  hip:1    AMD Instinct, gfx90a, 1.00 GiB, 1.00 GiB free; no code for it\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}

	// A release that the table cannot know, and a file that makes no sense.
	got, _ = doctor("7.14", "7.14.0-1", []string{"gfx950:sramecc+:xnack-"})
	if d := got.Drivers[0].Devices[0]; !d.Newer || len(d.Notes) != 1 || !strings.Contains(d.Notes[0], "is newer than every release with a known fault") {
		t.Errorf("newer: %+v", d)
	}
	got, _ = doctor("6.2", "unknown", nil)
	if hip := got.Drivers[0]; hip.Release != "6.2.?" || len(hip.Devices) != 0 || !strings.HasPrefix(hip.Problem, "no device: HIP 6.2.0 ") || len(hip.Notes) != 1 || !strings.Contains(hip.Notes[0], "want MAJOR.MINOR.PATCH-BUILD") {
		t.Errorf("a release file without a release: %+v", hip)
	}
}

// No library is a report with the places that were looked at.
func TestDoctorWithoutDrivers(t *testing.T) {
	got := examine(t, "--hip-lib", "/nowhere/a.so", "--cuda-lib", "/nowhere/b.so")
	for i, kind := range gpuKinds {
		d := got.Drivers[i]
		if d.Kind != kind || d.Library != "" || len(d.Tried) != 1 || d.Tried[0].Path != "/nowhere/"+string("ab"[i])+".so" || d.Tried[0].Problem == "" {
			t.Errorf("%s: %+v", kind, d)
		}
	}
}

func TestDoctorCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	look := func() doctorCache {
		f, err := parsed("doctor", "--cache-dir", dir)
		if err != nil {
			t.Fatal(err)
		}
		return examineCache(f)
	}
	if diff := cmp.Diff(doctorCache{Dir: dir, Checks: []found{}, CacheHealth: codegen.CacheHealth{Damaged: []string{}}}, look()); diff != "" {
		t.Errorf("no folder: %s", diff)
	}
	cache := codegen.OpenCache(dir)
	for _, key := range []string{"aa", "bb"} {
		if err := cache.Put(key, []byte("12345678")); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"bb.kiln-object": "damaged", "new-1.tmp": "", "other": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := doctorCache{Dir: dir, Checks: []found{}, Found: true, CacheHealth: codegen.CacheHealth{Entries: 2, Bytes: 8 + 32 + 7, Damaged: []string{"bb.kiln-object"}, Unfinished: 1}}
	if diff := cmp.Diff(want, look()); diff != "" {
		t.Error(diff)
	}
	dir = filepath.Join(dir, "other")
	if got := look(); got.Problem == "" {
		t.Errorf("a file for a folder: %+v", got)
	}
}
