//go:build unix

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// constants computes with one.
const constants = `graph @first
input %x : f32[2]
%0 = neg %x : f32[2]
output y = %0
graph @second
input %x : f32[2]
%0 = const {value = 2.5} : f32[]
%1 = broadcast %0 {shape = [2]} : f32[2]
%2 = mul %x, %1 : f32[2]
output y = %2
`

// bisectWith runs kiln bisect in a folder, for commands of this test binary, which
// the shell has as "kiln".
func bisectWith(t *testing.T, dir, check string, args ...string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	script := "#!/bin/sh\n" + reexec + "=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile("kiln", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	environ := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	code := run(&env{stdout: &stdout, stderr: &stderr, getenv: environ, ctx: t.Context(), started: time.Now()}, append([]string{"bisect", "--check", check}, args...))
	return result{code, stdout.String(), withoutNotes(stderr.String())}
}

func TestBisect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two.kir")
	if err := os.WriteFile(file, []byte(constants), 0o644); err != nil {
		t.Fatal(err)
	}
	planted := "kiln opt " + file + " --passes cse,dce,test-miscompile "
	for _, tc := range []struct {
		name, check string
		code        int
		stdout      string
		stderr      string
	}{
		{"a wrong constant", planted + "| grep -q 'value = 2.5'", 0,
			"application 6 of 6: test-miscompile on second\nworks with --bisect 5, fails with --bisect 6; 6 runs\n", ""},
		{"a panic", "kiln opt " + file + " --passes cse,test-panic,dce", 0, "application 5 of 5: test-panic on first\nworks with --bisect 4, fails with --bisect 5; 6 runs\n", ""},
		{"by a placeholder", "env -u KILN_BISECT -u KILN_BISECT_LOG " + planted + "--bisect {N} | grep -q 'value = 2.5'", 0,
			"application 6: no kiln command of the check said which\nworks with --bisect 5, fails with --bisect 6; 9 runs\n", ""},
		{"works", planted + "> /dev/null", 3, "", "kiln: --check: the command works with all applications\n  try: kiln bisect --help\n"},
		{"never works", "echo oh >&2; exit {N}1", 3, "", "kiln: --check: the command fails without any optional pass, too: no application is to blame; it said: oh\n  try: KILN_BISECT=0 sh -c 'echo oh >&2; exit 01'\n"},
		{"another each time", "test $KILN_BISECT -lt 1000000", 0, "application 1000000: no kiln command of the check said which\nworks with --bisect 999999, fails with --bisect 1000000; 43 runs\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := bisectWith(t, t.TempDir(), tc.check)
			if r.code != tc.code || r.stdout != tc.stdout || r.stderr != tc.stderr {
				t.Errorf("exit code %d, standard output\n%s\nstandard error\n%s\nwant %d,\n%s\n%s", r.code, r.stdout, r.stderr, tc.code, tc.stdout, tc.stderr)
			}
		})
	}
	var out bisectResult
	bisectWith(t, t.TempDir(), planted+"| grep -q 'value = 2.5'", "--json").decode(t, &out)
	if out.Application != 6 || out.Of != 6 || len(out.Applied) != 1 || out.Applied[0] != "test-miscompile on second" {
		t.Errorf("%+v", out)
	}
	kiln(t, "bisect").failed(t, exitUsage, "bisect needs --check")
}

// The model's numbers find a planted miscompile: logits and compare are the check.
func TestBisectLogits(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the model many times")
	}
	model, err := filepath.Abs(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.safetensors")
	base := "--model " + model + " --device ref --ids 0,303,222 --prefill 2"
	kiln(t, append(strings.Fields("logits "+base), "--out", good)...).ok(t)
	check := "kiln logits " + base + " --passes cse,dce,test-miscompile --out bad.safetensors && kiln compare bad.safetensors " + good + " --max-rel 1e-6"
	var out bisectResult
	bisectWith(t, t.TempDir(), check, "--json").decode(t, &out)
	// cse, dce and the planted pass, each on four entries: prefill comes first.
	if out.Application != 9 || out.Of != 12 || len(out.Applied) != 1 || out.Applied[0] != "test-miscompile on prefill" {
		t.Errorf("%+v", out)
	}
}

func TestBisectInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(&env{stdout: &stdout, stderr: &stderr, getenv: []string{"PATH=" + os.Getenv("PATH")}, ctx: ctx, started: time.Now()}, []string{"bisect", "--check", "true"})
	if code != exitFailed || stderr.String() != "kiln: interrupted\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}
