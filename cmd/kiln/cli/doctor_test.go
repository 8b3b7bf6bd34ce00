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

	"github.com/kiln-project/kiln/codegen/llvm"
)

func examine(t *testing.T, args ...string) doctorReport {
	t.Helper()
	var r doctorReport
	kiln(t, append([]string{"doctor", "--json"}, args...)...).decode(t, &r)
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
	first := kiln(t, "doctor", "--json").ok(t).stdout
	got := examine(t)
	if !got.LLVM.Found || got.LLVM.ID != tc.ID() || got.LLVM.LLC != tc.LLC || got.LLVM.Source != tc.Source {
		t.Errorf("report %+v, toolchain %+v", got.LLVM, tc.ID())
	}
	if tc.Loader != nil && got.LLVM.Mode != "worker" {
		t.Errorf("mode %s: %s", got.LLVM.Mode, got.LLVM.Why)
	}
	if second := kiln(t, "doctor", "--json").ok(t).stdout; second != first {
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
