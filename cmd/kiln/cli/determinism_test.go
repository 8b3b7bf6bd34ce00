package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/bundle"
)

// Without what start-up checks run: that is in determinism_long_test.go.
func TestCheckDeterminism(t *testing.T) { checkDeterminismOf(t, "--no-fallback") }

func checkDeterminismOf(t *testing.T, more ...string) {
	t.Helper()
	needLLVM(t)
	dir := t.TempDir()
	compile := append([]string{"compile", "--model", tinyModel, "--layers", "1", "--batch", "1", "--prefill", "16", "--speculate", "0", "-o", filepath.Join(dir, "b.kiln")}, more...)
	kiln(t, compile...).ok(t)
	manifest := string(readFile(t, filepath.Join(dir, "b.kiln", "manifest.json")))
	out := kiln(t, append(compile, "--check-determinism")...).ok(t).stdout
	if !strings.Contains(out, "(0 from the cache)") {
		t.Errorf("standard output %q", out)
	}
	if string(readFile(t, filepath.Join(dir, "b.kiln", "manifest.json"))) != manifest {
		t.Error("the bundle is another than without the check")
	}
	kiln(t, append(compile, "--check-determinism", "--passes", "test-random")...).failed(t, exitCheck, "--check-determinism: compilation 2 of 5 made another ")
	kiln(t, append(compile, "--check-determinism", "--time-passes")...).failed(t, exitUsage, "shows nothing of it")
}

func TestDiffers(t *testing.T) {
	a := bundle.Files{{Name: "x", Data: []byte("1")}, {Name: "y", Data: []byte("2")}}
	for _, tc := range []struct {
		b    bundle.Files
		want string
	}{
		{a, ""},
		{a[:1], "y"},
		{append(a[:2:2], bundle.File{Name: "z"}), "z"},
		{bundle.Files{a[0], {Name: "y", Data: []byte("3")}}, "y"},
	} {
		if got := differs(a, tc.b); got != tc.want {
			t.Errorf("%v: differs in %q, want %q", tc.b, got, tc.want)
		}
	}
}

// The perturbed model's logits are others, and near.
func TestPerturb(t *testing.T) {
	dir := t.TempDir()
	logits := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		kiln(t, append([]string{"logits", "--model", tinyModel, "--ids", "0,303,222", "--prefill", "2", "--numerics", "unrounded", "--out", path}, args...)...).ok(t)
		return path
	}
	plain, perturbed := logits("a.safetensors"), logits("b.safetensors", "--passes", "cse,dce,perturb")
	kiln(t, "compare", plain, perturbed, "--max-rel", "0.1").ok(t)
	if r := kiln(t, "compare", plain, perturbed, "--max-rel", "0"); r.code != exitCheck {
		t.Errorf("exit code %d: the logits are the same", r.code)
	}
}
