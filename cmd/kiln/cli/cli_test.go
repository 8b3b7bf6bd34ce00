package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/weights"
)

const (
	tinyModel   = "../../../testdata/tiny-dsv4"
	flashConfig = "../../../testdata/configs/flash"
	proConfig   = "../../../testdata/configs/pro"
	// The golden files of the two numeric variants.
	goldenUnrounded  = "../../../testdata/golden/expected/e2e.safetensors"
	goldenProduction = "../../../testdata/golden/expected-production/e2e.safetensors"
	goldenChats      = "../../../testdata/golden/tokens/chat.json"
	goldenTokens     = "../../../testdata/golden/tokens/tokens.json"
	chatTokenizer    = "../../../testdata/golden/tokens/dsv4-style-tokenizer.json"
)

// reexec makes the test binary the kiln command, for tests of the process.
const reexec = "CLI_TEST_IS_KILN"

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	if os.Getenv(reexec) != "" {
		os.Unsetenv(reexec)
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// noteForm is a line of standard error that no command is judged by: what it told
// before it failed or was done, and that it is not dead on a slow machine.
var noteForm = regexp.MustCompile(`(?m)^(device: .*|start-up check: .*|prompt: .*|note: argument .* is not given: a null pointer|.* \(\d+ s\))\n`)

func withoutNotes(stderr string) string { return noteForm.ReplaceAllString(stderr, "") }

// errorForm is all else that a failing command may write to standard error.
var errorForm = regexp.MustCompile(`^kiln: [^\n]+\n(  try: [^\n]+\n)?$`)

// plansOnly leaves out of a bundle what is beside the plans, in tests of what does not
// depend on it: that takes as long to compile as they do. TestBundle and the tests of
// startup_test.go compile it.
const plansOnly = "--no-fallback"

// onRef makes the oracle the device, whatever the default is.
const onRef = "KILN_DEVICE=ref"

// kiln runs a command line on the oracle, with nothing else in the environment
// and nothing to read.
func kiln(t *testing.T, args ...string) result {
	t.Helper()
	return kilnWith(t, nil, "", args...)
}

func kilnWith(t *testing.T, environ []string, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(&env{
		stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr,
		getenv: append([]string{onRef}, environ...), ctx: t.Context(), started: time.Now(),
	}, args)
	r := result{code, stdout.String(), stderr.String()}
	r.checkForm(t, args)
	return r
}

// checkForm checks what holds for every command line.
func (r result) checkForm(t *testing.T, args []string) {
	t.Helper()
	switch {
	case r.code != exitOK && !errorForm.MatchString(withoutNotes(r.stderr)):
		t.Errorf("kiln %q: exit code %d with standard error %q, want one line and at most one hint", args, r.code, r.stderr)
	case r.code == exitUsage && !strings.Contains(r.stderr, "\n  try: "):
		t.Errorf("kiln %q: standard error %q does not say what to try", args, r.stderr)
	}
}

// ok fails the test unless the command succeeded.
func (r result) ok(t *testing.T) result {
	t.Helper()
	if r.code != exitOK {
		t.Fatalf("exit code %d, want 0; standard error: %s", r.code, r.stderr)
	}
	return r
}

// failed checks the exit code, an empty standard output, and parts of standard
// error.
func (r result) failed(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; standard error: %s", r.code, code, r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("standard output is %q, want nothing", r.stdout)
	}
	for _, part := range parts {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("standard error is %q, want %q in it", r.stderr, part)
		}
	}
}

// decode reads a result that must be one line of JSON, with nothing on standard
// error. Fields that out lacks are errors.
func (r result) decode(t *testing.T, out any) {
	t.Helper()
	r.ok(t)
	if strings.Count(r.stdout, "\n") != 1 || !strings.HasSuffix(r.stdout, "}\n") || !strings.HasPrefix(r.stdout, "{") {
		t.Fatalf("standard output is %q, want one line with one object", r.stdout)
	}
	if r.stderr != "" {
		t.Errorf("standard error is %q, want nothing beside --json", r.stderr)
	}
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		t.Fatal(err)
	}
}

// generateJSON runs `kiln run --json` on the tiny model.
func generateJSON(t *testing.T, args ...string) runResult {
	t.Helper()
	var r runResult
	kiln(t, append([]string{"run", "--model", tinyModel, "--json"}, args...)...).decode(t, &r)
	return r
}

// readFile reads a file that must be there.
func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// writeFile writes a file into a new folder and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeTensors writes a safetensors file into a new folder.
func writeTensors(t *testing.T, tensors ...weights.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.safetensors")
	if err := weights.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// floats reads a tensor of a file.
func floats(t testing.TB, path, name string) []float32 {
	t.Helper()
	var out []float32
	withTensor(t, path, name, func(x *weights.Tensor) (err error) {
		out, err = x.Float32s()
		return err
	})
	return out
}

func withTensor(t testing.TB, path, name string, use func(*weights.Tensor) error) {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	x, err := file.Lookup(name)
	if err == nil {
		err = use(x)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// cancelled is a context that has ended.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
