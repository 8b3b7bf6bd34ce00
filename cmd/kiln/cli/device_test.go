package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestChooseDevice(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		want    [2]string // device and why; or "" and the error
	}{
		{"by itself", nil, nil, [2]string{"host", "no GPU device in this version"}},
		{"empty", []string{"--device", ""}, []string{"KILN_DEVICE=ref"}, [2]string{"host", "no GPU device in this version"}},
		{"flag", []string{"--device", "ref"}, []string{"KILN_DEVICE=host"}, [2]string{"ref", "given by --device"}},
		{"variable", nil, []string{"KILN_DEVICE=ref"}, [2]string{"ref", "given by KILN_DEVICE"}},
		{"bundle", []string{"--bundle", "x.kiln"}, nil, [2]string{"host", "given by --bundle"}},
		{"bundle over a variable", []string{"--bundle", "x.kiln"}, []string{"KILN_DEVICE=ref"}, [2]string{"host", "given by --bundle"}},
		{"bundle and the same", []string{"--bundle", "x.kiln", "--device", "host"}, nil, [2]string{"host", "given by --bundle"}},
		{"bundle against a flag", []string{"--bundle", "x.kiln", "--device", "ref"}, nil, [2]string{"", "--bundle runs on host and emu, --device says ref"}},
		{"emulated", []string{"--device", "emu"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"emulated chip", nil, []string{"KILN_DEVICE=emu:gfx942"}, [2]string{"emu:gfx942", "given by KILN_DEVICE"}},
		{"bundle on an emulated chip", []string{"--bundle", "x.kiln", "--device", "emu"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"unknown chip", []string{"--device", "emu:gfx90a"}, nil, [2]string{"", "--device emu:gfx90a: this version has host, emu:gfx942, emu:gfx950, ref"}},
		{"sanitizers of what is emulated", []string{"--device", "emu", "--sanitize", "memory,race"}, nil, [2]string{"emu:gfx950", "given by --device"}},
		{"sanitizers of the host", []string{"--sanitize", "all"}, nil, [2]string{"", "--sanitize: device host cannot: only what is emulated can be watched"}},
		{"counters of ref", []string{"--device", "ref"}, []string{"KILN_COUNTERS=text"}, [2]string{"", "KILN_COUNTERS: device ref cannot: only what is emulated can be watched"}},
		{"unknown", []string{"--device", "abacus"}, nil, [2]string{"", "--device abacus: this version has host, emu:gfx942, emu:gfx950, ref"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := parsed("run", tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.readEnvironment(tc.environ); err != nil {
				t.Fatal(err)
			}
			d, err := chooseDevice(f)
			got := [2]string{d.name, d.why}
			if err != nil {
				var c *codedError
				if !errors.As(err, &c) || c.code != exitRefused || c.hint == "" {
					t.Errorf("error %v: want a refusal with a hint", err)
				}
				got[1] = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// chosen leaves the device to kiln.
var chosen = []string{"KILN_DEVICE="}

// Without a word on the device the host computes, and says so first.
func TestHostIsDefault(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	args := []string{"--model", tinyModel, "--cache-dir", filepath.Join(dir, "cache")}
	run := append([]string{"run", "--prompt-ids", "0,303,222", "--max-new-tokens", "3"}, args...)
	plain := kilnWith(t, chosen, "", run...).ok(t)
	lines := strings.Split(plain.stderr, "\n")
	if !strings.HasPrefix(lines[0], "device: host (x86-64-v") || !strings.HasSuffix(lines[0], "): no GPU device in this version") {
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
	kilnWith(t, chosen, "", run...).failed(t, exitFailed, "kiln: device host (no GPU device in this version): llvm: no usable LLVM found; "+dir, hint)
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
