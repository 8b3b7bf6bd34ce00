package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A bundle knows which passes and kernel forms it was compiled with: its settings
// say so unless they are the default, and flags that say otherwise are refused.
func TestBundlePasses(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	compile := func(name string, args ...string) string {
		b := filepath.Join(dir, name)
		kiln(t, append([]string{"compile", "--model", tinyModel, "--layers", "1", "--batch", "1", "--prefill", "16", "--speculate", "0", plansOnly, "-o", b}, args...)...).ok(t)
		return b
	}
	plain := compile("plain.kiln", "--pipeline", "default")
	if text := string(readFile(t, filepath.Join(plain, "manifest.json"))); strings.Contains(text, "passes") {
		t.Errorf("the default's manifest is\n%s", text)
	}
	b := compile("other.kiln", "--disable-pass", "dce,cse", "--disable-kernel", "swiglu", "--shuffle", "3", "--bisect", "1")
	if bytes.Equal(readFile(t, filepath.Join(b, "manifest.json")), readFile(t, filepath.Join(plain, "manifest.json"))) {
		t.Error("the manifests are equal")
	}
	var in bundleInspection
	if err := json.Unmarshal([]byte(kiln(t, "inspect", b, "--json").ok(t).stdout), &in); err != nil {
		t.Fatal(err)
	}
	if line := settingsLine(in.Settings); !strings.HasSuffix(line, ", disable-pass cse,dce, disable-kernel swiglu, bisect 1, shuffle 3") {
		t.Errorf("settings %s", line)
	}
	// That the form was not chosen is in the code, not only in the settings.
	for _, k := range in.Kernels {
		if k.Chosen == "swiglu" {
			t.Errorf("kernel %s is of the disabled form", k.Name)
		}
	}

	one := filepath.Join(dir, "x.kiln")
	kiln(t, "compile", "--model", tinyModel, "--batch", "1", "--prefill", "16", "--speculate", "0", plansOnly, "--disable-pass", "cse", "--head", "greedy", "-o", one).ok(t)
	run := []string{"run", "--model", tinyModel, "--bundle", one, "--prompt-ids", "0,303", "--max-new-tokens", "1"}
	kiln(t, run...).ok(t)
	kiln(t, append(run, "--disable-pass", "cse")...).ok(t)
	kiln(t, append(run, "--disable-pass", "dce")...).failed(t, exitRefused, "was compiled with --disable-pass cse, --disable-pass says dce", "kiln compile --model "+tinyModel+" --disable-pass dce -o OTHER.kiln")
	kiln(t, append(run, "--bisect", "3")...).failed(t, exitRefused, "was compiled without --bisect, --bisect says 3")
	kilnWith(t, []string{"KILN_DISABLE_KERNEL=swiglu"}, "", run...).failed(t, exitRefused, "was compiled without --disable-kernel, KILN_DISABLE_KERNEL says swiglu")
	log := filepath.Join(dir, "log")
	kiln(t, append(run, "--bisect-log", log)...).failed(t, exitRefused, "--bisect-log: "+one+" has its passes behind it, there is nothing to note", "kiln compile --model "+tinyModel+" --bisect-log "+log+" -o OTHER.kiln")
	if _, err := os.Stat(log); err == nil {
		t.Error("a log is there that nothing is noted in")
	}
	kilnWith(t, []string{"KILN_BISECT_LOG=" + log}, "", run...).ok(t) // as kiln bisect gives it to every command

	// What is shown of a bundle is held to the same.
	page := filepath.Join(dir, "page.html")
	show := []string{"view", "--bundle", one, "--entry", "decode", "-o", page}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--passes", "dce"}, "was compiled without --passes, --passes says dce"},
		{[]string{"--disable-pass", "dce"}, "was compiled with --disable-pass cse, --disable-pass says dce"},
		{[]string{"--set", "attention.groups=3"}, "was compiled without --set, --set says attention.groups=3"},
		{[]string{"--disable-kernel", "swiglu"}, "was compiled without --disable-kernel, --disable-kernel says swiglu"},
		{[]string{"--shuffle", "7"}, "was compiled without --shuffle, --shuffle says 7"},
		{[]string{"--bisect", "3"}, "was compiled without --bisect, --bisect says 3"},
		{[]string{"--bisect-log", log + "2"}, "--bisect-log: " + one + " has its passes behind it"},
		{[]string{"--numerics", "unrounded"}, "was compiled with numerics production, not unrounded"},
		{[]string{"--head", "sample"}, "was compiled with --head greedy: "},
	} {
		kiln(t, append(slices.Clone(show), tc.args...)...).failed(t, exitRefused, tc.want, "-o OTHER.kiln")
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("a page of a bundle that was refused")
	}
	kiln(t, append(show, "--disable-pass", "cse")...).ok(t)
	kiln(t, append(run, "--disable-kernel", "swigloo")...).failed(t, exitUsage, `unknown kernel form "swigloo": near are swiglu`)
}

// Run and logits give the same with and without optional passes, in any order of
// the ops: what passes change is not the numbers.
func TestRunWithPasses(t *testing.T) {
	want := generateJSON(t, "--prompt-ids", "0,303,222", "--max-new-tokens", "2")
	for _, args := range [][]string{{"--pipeline", "required"}, {"--passes", "cse"}, {"--bisect", "3"}, {"--shuffle", "7"}} {
		got := generateJSON(t, append([]string{"--prompt-ids", "0,303,222", "--max-new-tokens", "2"}, args...)...)
		if got.Text != want.Text {
			t.Errorf("%v: text %q, want %q", args, got.Text, want.Text)
		}
	}
	kiln(t, "run", "--model", tinyModel, "--prompt", "x", "--disable-kernel", "swiglu").failed(t, exitRefused, "device ref has no kernels")
}

// What compile is asked to show is shown also when the cache has everything.
func TestCompileDumps(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	compile := func(args ...string) result {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(&env{stdout: &stdout, stderr: &stderr, ctx: t.Context(), started: time.Now()}, append([]string{
			"compile", "--model", tinyModel, "--layers", "2", "--batch", "1,2", "--prefill", "16",
			"--speculate", "0", "--passes", "cse,dce", "-o", filepath.Join(dir, "b.kiln")}, args...))
		return result{code, stdout.String(), withoutNotes(stderr.String())}.ok(t)
	}
	if r := compile(); r.stderr != "" {
		t.Errorf("standard error %q", r.stderr)
	}
	manifest := readFile(t, filepath.Join(dir, "b.kiln", "manifest.json"))
	dumps := filepath.Join(dir, "dumps")
	r := compile("--dump-dir", dumps, "--remarks", "json", "--time-passes", "--print-after", "bind")
	if !bytes.Equal(manifest, readFile(t, filepath.Join(dir, "b.kiln", "manifest.json"))) {
		t.Error("what is shown changes the bundle")
	}
	for _, part := range []string{"// after bind (decode)\ngraph @decode", `{"pass":"cse","kind":"applied","graph":"prefill",`, "\nplan-memory ", "\nselect-kernels "} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("standard error lacks %q:\n%.3000s", part, r.stderr)
		}
	}
	files, err := os.ReadDir(dumps)
	if err != nil {
		t.Fatal(err)
	}
	// Four passes on graphs and five buckets: prefill, two decodes, and their drafts
	// with and without a token; the names of the steps are those of the plans.
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	plans, err := filepath.Glob(filepath.Join(dir, "b.kiln", "*", "plan-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 4+len(plans) || names[3] != "04-dce.kir" || names[4] != "05-bind.plan-000.kir" {
		t.Errorf("%d plans, files %v", len(plans), names)
	}
	if r := compile("--time-passes", "--json"); !strings.Contains(r.stdout, `"cached"`) || !strings.Contains(r.stderr, "select-kernels") {
		t.Errorf("on a hit: %q", r.stderr)
	}
	kiln(t, "compile", "--model", tinyModel, "-o", "x.kiln", "--print-after", "cze").failed(t, exitUsage, `unknown pass "cze"`)
}

// A primitive without a form has nothing to fall back on, and dump takes the flags
// that choose passes.
func TestPassFlags(t *testing.T) {
	kiln(t, "explain", "--model", tinyModel, "--target", "gfx950", "--disable-kernel", "generic_gather_rows").
		failed(t, exitRefused, "gather_rows: no kernel form: generic_gather_rows: disabled", "try: leave --disable-kernel out")
	dump := func(args ...string) string {
		return kiln(t, append([]string{"dump", "--model", tinyModel, "--entry", "decode"}, args...)...).ok(t).stdout
	}
	// Passes that see more than one graph, such as the pack graph, are not among these.
	const some = "cse,dce,fuse-rope"
	required, done := dump("--pipeline", "required"), dump("--passes", some)
	if required == done {
		t.Error("dump --pipeline required prints what the default leaves")
	}
	if got := kilnWith(t, nil, required, "opt", "--passes", some).ok(t).stdout; got != done {
		t.Error("opt makes another graph of it than dump")
	}
	none := filepath.Join(t.TempDir(), "none", "log")
	kiln(t, "dump", "--model", tinyModel, "--entry", "decode", "--bisect-log", none).failed(t, exitFailed, "--bisect-log: open "+none)
}
