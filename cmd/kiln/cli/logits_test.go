package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/weights"
)

// idsOf reads an integer tensor of a file.
func idsOf(t *testing.T, path, name string) []int32 {
	t.Helper()
	var ids []int32
	withTensor(t, path, name, func(x *weights.Tensor) error {
		v, err := x.Int64s()
		for _, id := range v {
			ids = append(ids, int32(id))
		}
		return err
	})
	return ids
}

// list is ids as a flag takes them.
func list(ids []int32) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
}

// The golden flow: teacher-forced ids of a golden case, then compare. The
// bounds are those of docs/dsv4.md section 9 for free runs, which state 1-cos:
// 1e-3 here is below its 2e-3, and a relative error of 0.06 is a 1-cos of 2e-3.
func TestLogitsGolden(t *testing.T) {
	for _, variant := range []struct{ numerics, golden string }{
		{"production", goldenProduction}, {"unrounded", goldenUnrounded},
	} {
		for _, tc := range []struct {
			name    string
			prefill int
			maxRel  string
			shapes  map[string][]int
		}{
			{"one", 1, "2e-3", map[string][]int{"prefill.logits": {2048}, "decode.logits": {9, 2048}, "prefill.hidden.0": {1, 4, 256}, "decode.mtp_logits": {8, 2048}}},
			{"short", 37, "0.06", map[string][]int{"prefill.mtp_logits": {2048}, "decode.logits": {49, 2048}, "prefill.hidden.5": {37, 4, 256}, "decode.mtp_logits": {48, 2048}}},
		} {
			t.Run(variant.numerics+" "+tc.name, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "out.safetensors")
				r := kiln(t, "logits", "--model", tinyModel, "--numerics", variant.numerics, "--mtp", "--out", out,
					"--ids", variant.golden+":"+tc.name+".ids", "--prefill", fmt.Sprint(tc.prefill)).ok(t)
				if r.stdout != "" || withoutNotes(r.stderr) != "" || !strings.HasPrefix(r.stderr, "device: ref (") {
					t.Errorf("standard output %q and standard error %q, want only the device", r.stdout, r.stderr)
				}
				for name, shape := range tc.shapes {
					withTensor(t, out, name, func(x *weights.Tensor) error {
						if x.DType != weights.F32 || !slices.Equal(x.Shape, shape) {
							t.Errorf("%s is %v %v, want F32 %v", name, x.DType, x.Shape, shape)
						}
						return nil
					})
				}
				c := kiln(t, "compare", out, variant.golden, "--prefix", tc.name+".", "--max-rel", tc.maxRel).ok(t)
				if lines := strings.Split(strings.TrimSpace(c.stdout), "\n"); len(lines) != 11 || !strings.HasSuffix(lines[1], "A has 1 more rows") {
					t.Errorf("want a header and ten tensors, the first with one row more than the golden one:\n%s", c.stdout)
				}
				// The same numbers are not those of the other case.
				other := map[string]string{"one": "short.", "short": "one."}[tc.name]
				if r := kiln(t, "compare", out, variant.golden, "--prefix", other, "--max-rel", tc.maxRel); r.code != exitCheck {
					t.Errorf("compared with case %s the exit code is %d, want 4", other, r.code)
				}
			})
		}
	}
}

func TestLogits(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".safetensors") }
	logits := func(out string, args ...string) {
		t.Helper()
		kiln(t, append([]string{"logits", "--model", tinyModel, "--out", path(out)}, args...)...).ok(t)
	}
	names := func(out string) []string {
		t.Helper()
		file, err := weights.Open(path(out))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		return file.Names()
	}

	// One id, all of it prompt: no decode step and no tensor for one.
	logits("single", "--ids", "5", "--prefill", "1")
	hidden := []string{"prefill.hidden.0", "prefill.hidden.1", "prefill.hidden.2", "prefill.hidden.3", "prefill.hidden.4", "prefill.hidden.5"}
	if diff := cmp.Diff(append(slices.Clone(hidden), "prefill.logits"), names("single")); diff != "" {
		t.Errorf("one id: -want +got:\n%s", diff)
	}
	// The id after the prompt gives an MTP row, and none beyond.
	logits("pair", "--ids", "5,6", "--prefill", "1", "--mtp")
	want := append([]string{"decode.logits"}, append(slices.Clone(hidden), "prefill.logits", "prefill.mtp_logits")...)
	if diff := cmp.Diff(want, names("pair")); diff != "" {
		t.Errorf("two ids: -want +got:\n%s", diff)
	}

	// Equal ids give equal bytes.
	if err := weights.Write(path("ids"), []weights.Tensor{i64("x", two, 5, 6)}, nil); err != nil {
		t.Fatal(err)
	}
	logits("tensor", "--ids", path("ids")+":x", "--prefill", "1", "--mtp")
	if !bytes.Equal(readFile(t, path("pair")), readFile(t, path("tensor"))) {
		t.Error("the same ids from a tensor give another file")
	}
	file, err := weights.Open(path("pair"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if diff := cmp.Diff(map[string]string{"device": "ref", "numerics": "production"}, file.Metadata()); diff != "" {
		t.Errorf("metadata: -want +got:\n%s", diff)
	}

	// The split into prompt and steps moves rows, not numbers beyond rounding.
	logits("prompt", "--ids", "5,6", "--prefill", "2")
	a, b := floats(t, path("pair"), "decode.logits"), floats(t, path("prompt"), "prefill.logits")
	for i := range a {
		if d := a[i] - b[i]; d > 1e-2 || d < -1e-2 {
			t.Fatalf("logit %d is %v after a step and %v after a prompt", i, a[i], b[i])
		}
	}

	var stderr bytes.Buffer
	code := run(&env{stdout: &stderr, stderr: &stderr, getenv: []string{onRef}, ctx: cancelled(t), started: time.Now()},
		[]string{"logits", "--model", tinyModel, "--ids", "5,6", "--prefill", "1", "--out", path("none")})
	result{code, "", stderr.String()}.failed(t, exitFailed, "kiln: interrupted\n")
	if _, err := os.Stat(path("none")); err == nil {
		t.Error("an interrupted command left its output file")
	}
}

func TestLogitsWithoutMTP(t *testing.T) {
	text := string(readFile(t, tinyModel+"/config.json"))
	for _, change := range []struct{ from, to string }{
		{`"num_nextn_predict_layers": 1`, `"num_nextn_predict_layers": 0`},
		{"    128,\n    0\n  ]", "    128\n  ]"},
	} {
		if n := strings.Count(text, change.from); n != 1 {
			t.Fatalf("the config has %q %d times", change.from, n)
		}
		text = strings.Replace(text, change.from, change.to, 1)
	}
	dir := modelFolder(t, map[string][]byte{"config.json": []byte(text)})
	out := filepath.Join(t.TempDir(), "x.safetensors")
	kiln(t, "logits", "--model", dir, "--ids", "5,6", "--prefill", "1", "--mtp", "--out", out).
		failed(t, exitRefused, "--mtp: the model has no MTP block")
	kiln(t, "logits", "--model", dir, "--ids", "5", "--prefill", "1", "--out", out).ok(t)
}
