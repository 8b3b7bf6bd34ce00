package cli

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/host"
)

// noGPU is why the host was chosen where drivers see no GPU.
const noGPU = "no GPU (hip: no GPU; cuda: no GPU)"

// drivers names fake driver libraries, with GPUs of some architectures.
func drivers(t *testing.T, hip, cuda []string) []string {
	t.Helper()
	hipLib, cudaLib := devicetest.FakeDrivers(t, devicetest.Fakes{HIP: hip, CUDA: cuda})
	return []string{"--hip-lib", hipLib, "--cuda-lib", cudaLib}
}

func TestChooseDevice(t *testing.T) {
	none := drivers(t, nil, nil)
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		want    [2]string // device and why; or "" and the error
	}{
		{"by itself", nil, nil, [2]string{"host", noGPU}},
		{"empty", []string{"--device", ""}, []string{"KILN_DEVICE=ref"}, [2]string{"host", noGPU}},
		{"auto", []string{"--device", "auto"}, []string{"KILN_DEVICE=ref"}, [2]string{"host", noGPU}},
		{"absent", []string{"--device", "cuda:1"}, nil, [2]string{"", "--device cuda:1: no device: CUDA 13.0 "}},
		{"no number", []string{"--device", "cuda:x"}, nil, [2]string{"", "--device cuda:x: this version has auto, hip:N, cuda:N, host, emu:gfx942, emu:gfx950, ref"}},
		{"graphs of the host", []string{"--device", "host", "--graph", "on"}, nil, [2]string{"", "--graph: device host has no graphs"}},
		{"a variable for GPUs", []string{"--device", "host"}, []string{"KILN_GRAPH=on"}, [2]string{"host", "given by --device"}},
		{"flag", []string{"--device", "ref"}, []string{"KILN_DEVICE=host"}, [2]string{"ref", "given by --device"}},
		{"variable", nil, []string{"KILN_DEVICE=ref"}, [2]string{"ref", "given by KILN_DEVICE"}},
		{"bundle", []string{"--bundle", "x.kiln"}, nil, [2]string{"host", "given by --bundle"}},
		{"bundle over a variable", []string{"--bundle", "x.kiln"}, []string{"KILN_DEVICE=ref"}, [2]string{"host", "given by --bundle"}},
		{"bundle and the same", []string{"--bundle", "x.kiln", "--device", "host"}, nil, [2]string{"host", "given by --device"}},
		{"bundle against a flag", []string{"--bundle", "x.kiln", "--device", "ref"}, nil, [2]string{"", "--bundle runs on GPUs, host and emu, --device says ref"}},
		{"emulated", []string{"--device", "emu"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"emulated chip", nil, []string{"KILN_DEVICE=emu:gfx942"}, [2]string{"emu:gfx942", "given by KILN_DEVICE"}},
		{"bundle on an emulated chip", []string{"--bundle", "x.kiln", "--device", "emu"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"unknown chip", []string{"--device", "emu:gfx90a"}, nil, [2]string{"", "--device emu:gfx90a: this version has auto, hip:N, cuda:N, host, emu:gfx942, emu:gfx950, ref"}},
		{"sanitizers of what is emulated", []string{"--device", "emu", "--sanitize", "memory,race"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"sanitizers of the host", []string{"--sanitize", "all"}, nil, [2]string{"", "--sanitize: device host cannot: only what is emulated can be watched"}},
		{"counters that cannot be written", []string{"--device", "emu", "--counters", "/dev/null/c.json"}, nil, [2]string{"", "--counters: open /dev/null/c.json: not a directory"}},
		{"counters of ref", []string{"--device", "ref"}, []string{"KILN_COUNTERS=text"}, [2]string{"", "KILN_COUNTERS: device ref cannot: only what is emulated can be watched"}},
		{"unknown", []string{"--device", "abacus"}, nil, [2]string{"", "--device abacus: this version has auto, hip:N, cuda:N, host, emu:gfx942, emu:gfx950, ref"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := parsed("run", append(tc.args, none...)...)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.readEnvironment(tc.environ); err != nil {
				t.Fatal(err)
			}
			d, err := chooseDevice(&env{}, f)
			got := [2]string{d.name, d.why}
			if err != nil {
				var c *codedError
				if !errors.As(err, &c) || c.hint == "" {
					t.Errorf("error %v: want one with a hint", err)
				}
				if got[1] = err.Error(); strings.HasPrefix(got[1], tc.want[1]) {
					got[1] = tc.want[1]
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The first GPU is taken, of AMD before NVIDIA; the named one, or none.
func TestChooseGPU(t *testing.T) {
	both := drivers(t, []string{"gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-"}, []string{"sm_90"})
	onlyCUDA := drivers(t, nil, []string{"sm_100"})
	old := drivers(t, []string{"gfx90a:sramecc+:xnack-"}, []string{"sm_80"})
	for _, tc := range []struct {
		drivers []string
		args    []string
		want    string // the line, or the error
	}{
		{both, nil, "hip:0 (AMD Instinct, gfx942:sramecc+:xnack-, graphs): the first GPU that was found"},
		{both, []string{"--device", "hip:1", "--graph", "off"}, "hip:1 (AMD Instinct, gfx950:sramecc+:xnack-, no graphs): given by --device"},
		{both, []string{"--device", "cuda", "--graph-build", "capture"}, "cuda:0 (NVIDIA, sm_90, captured graphs): given by --device"},
		{both, []string{"--device", "cuda:1"}, "--device cuda:1: CUDA device 1 does not exist: there are 1, numbered from 0"},
		{both, []string{"--device", "hip", "--overlap", "on"}, "--overlap on: ROCm has no launches that overlap"},
		{drivers(t, nil, nil), []string{"--overlap", "on"}, "--overlap: device host has no graphs"},
		{both, []string{"--overlap", "maybe"}, `--overlap "maybe": want one of auto, on, off`},
		{both, []string{"--graph", "maybe"}, `--graph "maybe": want one of auto, on, off`},
		{onlyCUDA, nil, "cuda:0 (NVIDIA, sm_100, graphs): the first GPU that was found"},
		{onlyCUDA, []string{"--device", "hip"}, "--device hip: no device: HIP "},
		{old, nil, "host: no GPU (hip: device hip:0 (AMD Instinct) is gfx90a:sramecc+:xnack-, for which there is no target: have "},
		{[]string{"--cuda-lib", "/nowhere/libcuda.so"}, nil, "--cuda-lib: no CUDA library could be loaded; tried /nowhere/libcuda.so "},
	} {
		f, err := parsed("run", append(tc.args, tc.drivers...)...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := chooseDevice(&env{}, f)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case d.gpu == nil:
			got = d.name + ": " + d.why
		default:
			got = d.describe() + ": " + d.why
			tg, err := d.target()
			if err != nil || !strings.HasPrefix(d.gpu.info.Target, tg.Name) && !strings.HasPrefix(tg.Name, "sm_90") {
				t.Errorf("%v: target %v, error %v", tc.args, tg, err)
			}
			if err := d.gpu.close(); err != nil {
				t.Error(err)
			}
		}
		if !strings.HasPrefix(got, tc.want) {
			t.Errorf("%v: %s, want %s", tc.args, got, tc.want)
		}
	}
}

// A bundle for a GPU runs on it without LLVM. Fakes compute zeros.
func TestBundleOnGPU(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "tiny.kiln")
	kiln(t, "compile", "--model", tinyModel, "--target", "sm_90,gfx942", "--batch", "1", "--prefill", "16", "--max-seq", "128", "--speculate", "0",
		"-o", out).ok(t)
	kiln(t, "inspect", out).ok(t)

	// What does not fit is refused by the name of its target.
	var needs planReport
	kiln(t, "plan", out, "--json").decode(t, &needs)
	for i, n := range needs.Targets {
		most := max(n.Total, needs.Targets[1-i].Total)
		if r := kiln(t, "plan", out, "--device-memory", itoa(int(n.Total-1))); r.code != exitRefused || n.Total == most && !strings.Contains(r.stderr, "kiln: "+out+" for "+n.Target+" needs ") {
			t.Errorf("a byte less than %s needs: exit code %d, standard error %q", n.Target, r.code, r.stderr)
		}
	}
	cmd := []string{"run", "--model", tinyModel, "--bundle", out, "--prompt-ids", "5", "--max-new-tokens", "1", "--llvm", dir}
	for device, libs := range map[string][]string{
		"cuda:0 (NVIDIA, sm_90, graphs)":                       drivers(t, nil, []string{"sm_90"}),
		"hip:0 (AMD Instinct, gfx942:sramecc+:xnack-, graphs)": drivers(t, []string{"gfx942:sramecc+:xnack-"}, nil),
	} {
		got := kilnWith(t, chosen, "", append(cmd, libs...)...).ok(t)
		if want := "device: " + device + ": the first GPU that was found\n"; !strings.HasPrefix(got.stderr, want) {
			t.Errorf("standard error %q, want %q", got.stderr, want)
		}
		for graph, replays := range map[string]int{"on": 1, "off": 0} {
			var r runResult
			kilnWith(t, chosen, "", slices.Concat(cmd, libs, []string{"--graph", graph, "--stats", "--json", "--startup-check=false"})...).decode(t, &r)
			if s := r.Stats; s.Prefill.Steps != 1 || s.Replays != replays || s.Eager != 1-replays || s.Memory.Weights == 0 || s.Memory.Pools == 0 || s.Memory.Arena == 0 || (s.Memory.Graphs > 0) != (replays > 0) {
				t.Errorf("graph %s: %+v, memory %+v", graph, s, s.Memory)
			}
		}
	}
	kilnWith(t, chosen, "", append(cmd, drivers(t, nil, nil)...)...).failed(t, exitRefused, "was compiled for [sm_90 gfx942], device host runs ", ": "+noGPU+"\n")

	// An interrupt while weights are about to be loaded: nothing of the device stays
	// open, as drivers sees to.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	interrupt := writerFunc(func(p []byte) (int, error) {
		cancel()
		return stderr.Write(p)
	})
	args := append(cmd, drivers(t, nil, []string{"sm_90"})...)
	code := run(&env{stdout: &stdout, stderr: interrupt, getenv: chosen, ctx: ctx, started: time.Now()}, args)
	result{code, stdout.String(), withoutNotes(stderr.String())}.failed(t, exitFailed, "kiln: interrupted\n")
}

// chosen leaves the device to kiln.
var chosen = []string{"KILN_DEVICE="}

// Without a word on the device the host computes, and says so first.
func TestHostIsDefault(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	args := []string{"--model", tinyModel}
	run := append([]string{"run", "--prompt-ids", "0,303,222", "--max-new-tokens", "3"}, args...)
	args = append(args, drivers(t, nil, nil)...)
	run = append(run, args[len(args)-4:]...)
	plain := kilnWith(t, chosen, "", run...).ok(t)
	lines := strings.Split(plain.stderr, "\n")
	if !strings.HasPrefix(lines[0], "device: host (x86-64-v") || !strings.HasSuffix(lines[0], "): "+noGPU) {
		t.Errorf("the first line is %q, want the device and why", lines[0])
	}
	if !strings.Contains(plain.stderr, "\nprompt: 3 ids\nhost (x86-64-v") {
		t.Errorf("standard error %q, want the prompt and the summary", plain.stderr)
	}
	var r runResult
	kilnWith(t, chosen, "", append(run, "--json")...).decode(t, &r)
	if r.Device != "host" || r.Text != strings.TrimSuffix(plain.stdout, "\n") {
		t.Errorf("device %q and text %q; the other run wrote %q", r.Device, r.Text, plain.stdout)
	}
	logits := append([]string{"logits", "--ids", "5", "--prefill", "1", "--out", filepath.Join(dir, "x.safetensors")}, args...)
	if got := kilnWith(t, chosen, "", logits...).ok(t); got.stdout != "" || !strings.HasPrefix(got.stderr, "device: host (") {
		t.Errorf("logits: standard output %q, standard error %q", got.stdout, got.stderr)
	}
}

// Without LLVM there is no host, and no silent other device.
func TestHostWithoutLLVM(t *testing.T) {
	if _, err := host.Target(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	run := []string{"run", "--model", tinyModel, "--prompt", "x", "--max-new-tokens", "1", "--llvm", dir}
	const hint = "\n  try: make toolchain, or --device ref, which needs no LLVM\n"
	kilnWith(t, chosen, "", append(run, drivers(t, nil, nil)...)...).failed(t, exitFailed, "kiln: device host ("+noGPU+"): llvm: no usable LLVM found; "+dir, hint)
	kiln(t, append(run, "--device", "host")...).failed(t, exitFailed, "kiln: device host (given by --device): llvm: ", hint)
	kilnWith(t, chosen, "", "logits", "--model", tinyModel, "--ids", "1", "--prefill", "1", "--out", filepath.Join(dir, "x.safetensors"), "--llvm", dir).
		failed(t, exitFailed, hint)
	kiln(t, "compile", "--model", tinyModel, "-o", filepath.Join(dir, "x.kiln"), "--llvm", dir).failed(t, exitFailed, "\n  try: make toolchain\n")
	kiln(t, run...).ok(t) // on ref, which does not look
}

func TestDescribePrompt(t *testing.T) {
	long := strings.Repeat("0123456789", 8)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--prompt", "func (b *Buffer) "}, "func (b *Buffer) "},
		{[]string{"--prompt", "a\n\tb\x1b[0m"}, `"a\n\tb\x1b[0m"`},
		{[]string{"--prompt", "a\xff"}, `"a` + "\ufffd" + `"`},
		{[]string{"--prompt", "äöü 世界"}, "äöü 世界"},
		{[]string{"--prompt", long}, "..." + long[8:]},
		{[]string{"--prompt", "\n" + long}, "..." + long[8:]},
		{[]string{"--prompt-ids", "1,2"}, "7 ids"},
		{[]string{"--chat", "c.json"}, "c.json, 7 tokens"},
	} {
		f, err := parsed("run", tc.args...)
		if err != nil {
			t.Fatal(err)
		}
		if got := describePrompt(f, 7); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.args, got, tc.want)
		}
	}
}
