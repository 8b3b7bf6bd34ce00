package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
)

// A bundle runs on the emulated chip that it was compiled for, and on no other device;
// its counters are beside the floor times.
func TestEmulatedBundle(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	b, counters := filepath.Join(dir, "tiny.kiln"), filepath.Join(dir, "counters.json")
	kiln(t, "compile", "--model", tinyModel, "--target", "gfx942", "--batch", "1", "--prefill", "1", "--max-seq", "64", "--speculate", "1", "-o", b).ok(t)
	run := []string{"run", "--model", tinyModel, "--prompt-ids", "5", "--max-new-tokens", "1", "--bundle", b, "--device"}
	kiln(t, append(slices.Clone(run), "emu")...).failed(t, exitRefused, b+" was compiled for [gfx942], device emu:gfx950 runs gfx950", "--target gfx950")
	kiln(t, append(slices.Clone(run), "host")...).failed(t, exitRefused, b+" was compiled for [gfx942], device host runs x86-64-v")

	r := kiln(t, append(slices.Clone(run), "emu:gfx942", "--sanitize", "all", "--counters", counters)...).ok(t)
	if !strings.HasPrefix(r.stderr, "device: emu:gfx942 (emulated, ") || !strings.Contains(r.stderr, "), with the sanitizers memory,race,uninit,waitcnt: given by --device\n") {
		t.Errorf("standard error %q", r.stderr)
	}
	var c countersFile
	data, err := os.ReadFile(counters)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || c.Chip != "gfx942" || len(c.Kernels) < 20 || c.Kernels[0].Instructions == 0 {
		t.Fatalf("counters %+v (%v)", c, err)
	}
	text := kiln(t, "inspect", b, "--profile", counters).ok(t).stdout
	if !strings.Contains(text, "\ngfx942, emulated: counters of a run, ") || !strings.Contains(text, "floor us of the largest") {
		t.Errorf("inspect: %s", text)
	}
	var in bundleInspection
	kiln(t, "inspect", b, "--profile", counters, "--json").decode(t, &in)
	profiled := 0
	for _, k := range in.Kernels {
		if k.Profile != nil {
			profiled++
			if k.Profile.Kernel != k.Name || k.FloorUS == nil {
				t.Errorf("kernel %s has the counters of %s and floor %v", k.Name, k.Profile.Kernel, k.FloorUS)
			}
		}
	}
	if profiled != len(c.Kernels) {
		t.Errorf("%d kernels have counters, the file has %d", profiled, len(c.Kernels))
	}
	other := writeFile(t, "other.json", `{"chip": "gfx950", "kernels": [{"kernel": "k"}]}`)
	kiln(t, "inspect", b, "--profile", other).failed(t, exitRefused, "has no kernel k for gfx950", "--device emu:gfx942")
	kiln(t, "inspect", b, "--profile", writeFile(t, "wrong.json", `{"chips": 1}`)).failed(t, exitFailed, "not a file that --counters writes: ")
}

// check runs ops on the emulated chip with every sanitizer.
func TestCheckOnEmulated(t *testing.T) {
	needGPU(t)
	var r checkResult
	args := append(slices.Clone(tinyDecode), "--device", "emu:gfx950", "--sanitize", "all", "--weights", "random", "--json")
	kiln(t, append(args, "--op", "gate")...).decode(t, &r)
	if r.Device != "emu:gfx950" || !r.OK || len(r.Ops) != 1 || r.Ops[0].Op != "gate" || r.Ops[0].Values == 0 || len(r.Decomp) != 1 {
		t.Errorf("result %+v", r)
	}
}

// What sanitizers report is told one by one, and is a check that did not hold.
func TestSanitizerReports(t *testing.T) {
	found := &emu.SanitizerError{Omitted: 3, Reports: []emu.Report{{
		Check: emu.CheckMemory, Kind: "out of bounds", Kernel: "k", Offset: 16, Text: "global_load_dword v1, v0, s[2:3]", Lane: 7, Detail: "4 bytes at value x+64", Op: "add", Layer: "layers.1",
	}}}
	l := rt.Launch{Symbol: "k", Op: "add", Loc: "layers.1"}
	var told strings.Builder
	err := sanitized(&env{stderr: &told}, l.Failed(4, found))
	var c *codedError
	if !errors.As(err, &c) || c.code != exitCheck || c.Error() != "launch 4, kernel k: 4 sanitizer reports" {
		t.Errorf("error %v", err)
	}
	const want = "memory: out of bounds: kernel k+0x10: global_load_dword v1, v0, s[2:3]: work-group [0 0 0], wave 0, lane 7: 4 bytes at value x+64; op add; layer layers.1\n"
	if told.String() != want {
		t.Errorf("told %q, want %q", told.String(), want)
	}
	if err := errors.New("other"); sanitized(&env{stderr: &told}, err) != err {
		t.Error("another error changed")
	}
}
