package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// twice computes a value two times, and one that nothing uses.
const twice = `graph @step
sym T
input %x : f32[T,2]
%0 = neg %x : f32[T,2]
%1 = neg %x : f32[T,2]
%2 = add %0, %1 : f32[T,2]
%3 = exp %x : f32[T,2]
output y = %2
`

// twiceDone is what cse and dce make of it.
const twiceDone = `graph @step
sym T
input %x : f32[T,2]
%0 = neg %x : f32[T,2]
%1 = add %0, %0 : f32[T,2]
output y = %1
`

// optWith runs opt on a text, without the form that standard error has elsewhere.
func optWith(t *testing.T, text string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(&env{stdin: strings.NewReader(text), stdout: &stdout, stderr: &stderr, ctx: t.Context(), started: time.Now()}, append([]string{"opt"}, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestOpt(t *testing.T) {
	bound := strings.ReplaceAll(strings.ReplaceAll(twiceDone, "T,2", "8,2"), "sym T\n", "")
	for _, tc := range []struct {
		name         string
		args         []string
		text         string
		stdout, errs string
	}{
		{"default", nil, twice, twiceDone, ""},
		{"from standard input", []string{"-"}, twice, twiceDone, ""},
		{"named passes", []string{"--passes", "dce,cse"}, twice, twiceDone, ""},
		{"required only", []string{"--pipeline", "required"}, twice, twice, ""},
		{"disabled", []string{"--disable-pass", "dce", "--disable-pass", "cse"}, twice, twice, ""},
		{"bisected", []string{"--bisect", "0"}, twice, twice, ""},
		{"bound", []string{"--bind", "T=8"}, twice, bound, ""},
		{"twice alike", []string{"--bind", "T=8,T=8"}, twice, bound, ""},
		{"a gate without its symbol", []string{"--passes", "test-gate", "--remarks", "text"}, twiceDone, twiceDone,
			"missed: test-gate @step <stdin>:4:1: neg: T unbound\n"},
		{"a gate with its symbol", []string{"--passes", "test-gate", "--bind", "T=8", "--remarks", "text"}, twiceDone, bound,
			"applied: test-gate @step <stdin>:4:1: neg: on f32[8,2]\n"},
		{"remarks as JSON", []string{"--remarks", "json"}, twice, twiceDone,
			`{"pass":"cse","kind":"applied","graph":"step","loc":"","pos":"<stdin>:5:1","op":"neg","text":"is computed at <stdin>:4:1 already"}` + "\n"},
		{"changed", []string{"--print-changed", "--passes", "dce"}, twiceDone + "", twiceDone, ""},
		{"after", []string{"--print-after", "cse"}, twiceDone, twiceDone, "// after cse (step) (unchanged)\n"},
		{"before", []string{"--print-before", "cse,dce"}, twiceDone, twiceDone, "// before cse (step)\n" + twiceDone + "// before dce (step)\n" + twiceDone},
		{"after all", []string{"--print-after", "all", "--passes", "dce"}, twiceDone, twiceDone,
			"// after fnuz-weights (step) (unchanged)\n// after hoist-pack (step) (unchanged)\n// after dce (step) (unchanged)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := optWith(t, tc.text, tc.args...)
			if r.code != 0 || r.stdout != tc.stdout || r.stderr != tc.errs {
				t.Errorf("exit code %d, standard output\n%s\nwant\n%s\nstandard error\n%s\nwant\n%s", r.code, r.stdout, tc.stdout, r.stderr, tc.errs)
			}
		})
	}
	r := optWith(t, twice, "--print-changed")
	var banners []string
	for line := range strings.Lines(r.stderr) {
		if strings.HasPrefix(line, "//") {
			banners = append(banners, line)
		}
	}
	if want := []string{"// after cse (step)\n", "// after dce (step)\n"}; !slices.Equal(banners, want) || !strings.HasSuffix(r.stderr, twiceDone) {
		t.Errorf("--print-changed: %q", r.stderr)
	}
	// What is printed can be read again.
	if _, err := ir.Parse("stderr", strings.Replace(r.stderr, "// after dce (step)\n"+twiceDone, "", 1)); err != nil {
		t.Error(err)
	}
	table := regexp.MustCompile(`^pass +times +ms +ops before +ops after\n(?s:.*)\ncse +1 +[0-9.]+ +4 +3\ndce +1 +[0-9.]+ +3 +2\ntotal +[0-9.]+ *\n$`)
	if r := optWith(t, twice, "--time-passes", "--passes", "cse,dce"); !table.MatchString(r.stderr) {
		t.Errorf("--time-passes:\n%s", r.stderr)
	}
	for _, seed := range []string{"1", "2"} {
		a, b := optWith(t, twice, "--shuffle", seed), optWith(t, twice, "--shuffle", seed)
		if a != b || a.stdout != twiceDone {
			t.Errorf("--shuffle %s: %q and %q", seed, a.stdout, b.stdout)
		}
	}
}

// The pack graph comes last, and passes know the target.
func TestOptPack(t *testing.T) {
	const text = `graph @step
input %x : bf16[2,256]
weight @w : f8e4m3[128,256] block(128,128) scale e8m0
%0 = block_linear %x, @w : bf16[2,128]
output y = %0
`
	plain := optWith(t, text).stdout
	if plain != text {
		t.Errorf("without a target:\n%s", plain)
	}
	r := optWith(t, text, "--target", "gfx942")
	at, pack := strings.Index(r.stdout, "graph @step"), strings.Index(r.stdout, "graph @pack")
	if at != 0 || pack < 0 || !strings.Contains(r.stdout[pack:], "recode_fnuz") {
		t.Errorf("for gfx942: %s%s", r.stdout, r.stderr)
	}
	if again := optWith(t, r.stdout, "--target", "gfx942"); again.stdout != r.stdout {
		t.Errorf("a second time: %s%s", again.stdout, again.stderr)
	}
}

func TestOptFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	path := writeFile(t, "twice.kir", twice)
	r := optWith(t, "", path, "--dump-dir", dir, "--bind", "T=2", "--passes", "cse,dce")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d, %s", r.code, r.stderr)
	}
	var names []string
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{"01-fnuz-weights.kir", "02-hoist-pack.kir", "03-cse.kir", "04-dce.kir", "05-bind.kir"}; !slices.Equal(names, want) {
		t.Errorf("files %q", names)
	}
	if got := string(readFile(t, filepath.Join(dir, "04-dce.kir"))); got != twiceDone {
		t.Errorf("04-dce.kir:\n%s", got)
	}
	if got := string(readFile(t, filepath.Join(dir, "05-bind.kir"))); got != r.stdout {
		t.Errorf("05-bind.kir:\n%s", got)
	}
}

// The graphs of one pass are one file, also those of a pass on steps.
func TestOptFilesOfEntries(t *testing.T) {
	dir := t.TempDir()
	two := twiceDone + strings.Replace(twiceDone, "@step", "@other", 1)
	for range 2 { // what was there goes
		if r := optWith(t, two, "--dump-dir", dir, "--passes", "cse,test-gate"); r.code != 0 || r.stdout != two {
			t.Fatalf("%+v", r)
		}
	}
	for _, name := range []string{"03-cse.kir", "04-test-gate.kir"} {
		if got := string(readFile(t, filepath.Join(dir, name))); got != two {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func TestOptSplit(t *testing.T) {
	broken := strings.Replace(twice, "exp %x", "exp %z", 1)
	odd := strings.Replace(twice, "exp %x : f32[T,2]", "exp %x : f32[T,3]", 1)
	r := optWith(t, twice+"// -----\n"+broken+"// -----\n"+odd+"// -----\n"+twiceDone, "--split-input")
	want := twiceDone + "// -----\n// -----\n// -----\n" + twiceDone
	if r.code != exitFailed || r.stdout != want {
		t.Errorf("exit code %d, standard output\n%s", r.code, r.stdout)
	}
	for _, part := range []string{"<stdin>:16:1: exp: operand %z is not defined", "<stdin>:25:1: graph @step: ", "\n  try: ", "kiln: 2 of 4 inputs failed\n"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("standard error lacks %q:\n%s", part, r.stderr)
		}
	}
	if got := optWith(t, twice+"// -----\n"+twice, "--split-input"); got.code != 0 || got.stdout != twiceDone+"// -----\n"+twiceDone {
		t.Errorf("%+v", got)
	}
}

func TestOptErrors(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		text  string
		code  int
		parts []string
	}{
		{[]string{"--passes", "cze"}, twice, 2, []string{`--passes: unknown pass "cze": have `, "try: kiln passes"}},
		{[]string{"--passes", ""}, twice, 2, []string{"--passes is empty", "--pipeline required"}},
		{nil, packedTwice, 1, []string{"pass hoist-pack: there is a pack graph already: @pack\n  try: kiln dump --model DIR --entry E, which has no pack graph yet"}},
		{[]string{"--passes", "cse,dce", "--disable-pass", "dce"}, twice, 2, []string{"--passes, --disable-pass: pass dce is to run and is disabled"}},
		{[]string{"--pipeline", "required", "--disable-pass", "fuse-hc"}, twice, 2, []string{"--pipeline required, --disable-pass fuse-hc: that pipeline has no optional pass to disable"}},
		{[]string{"--passes", "cse", "--pipeline", "required"}, twice, 2, []string{"--pipeline, --passes: give one of them"}},
		{[]string{"--pipeline", "fast"}, twice, 2, []string{`unknown pipeline "fast"`}},
		{[]string{"--disable-pass", "bind"}, twice, 2, []string{"pass bind is required"}},
		{[]string{"--set", "x"}, twice, 2, []string{`--set "x": want KEY=VALUE`}},
		{[]string{"--set", "x=1,x=2"}, twice, 2, []string{`x is set to 1 and to 2`}},
		{[]string{"--set", "fuse-hc.max_tokens=-7"}, twice, 2, []string{`threshold fuse-hc.max_tokens=-7: want at least 0`}},
		{[]string{"--set", "x=1"}, twice, 2, []string{`unknown threshold "x"`}},
		{[]string{"--bisect", "-1"}, twice, 2, []string{"bisect -1: want at least 0"}},
		{[]string{"--bind", "T"}, twice, 2, []string{`--bind "T": want SYMBOL=N`}},
		{[]string{"--bind", "T=0"}, twice, 2, []string{`--bind "T=0": want SYMBOL=N`}},
		{[]string{"--bind", "T=1,T=2"}, twice, 2, []string{"T is bound to 1 and to 2"}},
		{[]string{"--bind", "B=1"}, twice, 2, []string{"no graph has symbol B: they have T"}},
		{[]string{"--target", "gfx900"}, twice, 2, []string{`unknown target "gfx900"`}},
		{[]string{"--print-after", "cze"}, twice, 2, []string{`--print-after: unknown pass "cze"`}},
		{[]string{"--print-after", "plan-memory"}, twice, 2, []string{"pass plan-memory makes launches, no graph"}},
		{[]string{"--print-before", "all"}, twice, 2, []string{`--print-before: unknown pass "all"`}},
		{[]string{"--remarks", "xml"}, twice, 2, []string{`unknown form "xml"`}},
		{[]string{"a.kir", "b.kir"}, twice, 2, []string{"opt takes 1 argument"}},
		{[]string{"none.kir"}, "", 1, []string{"open none.kir", "try: kiln dump"}},
		{nil, "", 1, []string{"<stdin>:1:1: no graph", "try: "}},
		{nil, strings.Replace(twice, "neg", "nig", 1), 1, []string{"<stdin>:4:1: ", "nig", "try: "}},
		{nil, strings.Replace(twice, "neg %x : f32[T,2]", "neg %x : f32[T,3]", 1), 1, []string{"<stdin>:4:1: graph @step: ", "[infer]"}},
		{[]string{"--passes", "test-error"}, twice, 1, []string{"pass test-error: not today"}},
	} {
		r := kilnWith(t, nil, tc.text, append([]string{"opt"}, tc.args...)...)
		r.failed(t, tc.code, tc.parts...)
	}
	// On the command line a flag wins over the variable of the other.
	if r := kilnWith(t, []string{"KILN_PIPELINE=required"}, twice, "opt", "--passes", "cse,dce"); r.stdout != twiceDone {
		t.Errorf("%+v", r)
	}
	if r := kilnWith(t, []string{"KILN_PASSES=cse"}, twice, "opt", "--pipeline", "required"); r.stdout != twice {
		t.Errorf("%+v", r)
	}
}

// A bug of a pass leaves a file from which the command in the hint shows it again.
func TestReproducer(t *testing.T) {
	t.Chdir(t.TempDir())
	form := regexp.MustCompile(`\n  try: kiln (opt (\S+) --passes .*)\n$`)
	for _, tc := range []struct {
		args  []string
		file  string
		parts []string
	}{
		{[]string{"--passes", "cse,test-panic"}, "kiln-reproducer-test-panic-step.kir", []string{"pass test-panic: panic: runtime error", "//   at cli.init"}},
		{[]string{"--passes", "test-break", "--shuffle", "3"}, "kiln-reproducer-test-break-step.kir", []string{"left a broken graph"}},
		{[]string{"--passes", "test-nil"}, "kiln-reproducer-test-nil-step.kir", []string{"pass test-nil: left no graph"}},
		{[]string{"--passes", "test-in-place", "--verify-each", "--target", "gfx942"}, "kiln-reproducer-test-in-place-step.kir", []string{"changed the graph", " --target gfx942 --verify-each\n"}},
		{[]string{"--passes", "test-in-place"}, "kiln-reproducer-test-in-place-step.kir", []string{"changed the graph that it was given", "\noutput y = "}},
		{[]string{"--passes", "test-module-panic"}, "kiln-reproducer-test-module-panic-module.kir", []string{"no module"}},
		{[]string{"--passes", "test-panic", "--dump-dir", "d"}, "d/kiln-reproducer-test-panic-step.kir", nil},
	} {
		r := kilnWith(t, nil, twice, append([]string{"opt"}, tc.args...)...)
		m := form.FindStringSubmatch(r.stderr)
		if r.code != exitFailed || m == nil || m[2] != tc.file {
			t.Errorf("%v: exit code %d, %s", tc.args, r.code, r.stderr)
			continue
		}
		text := string(readFile(t, tc.file))
		for _, part := range append(tc.parts, "// kiln "+m[1]+"\n") {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %q:\n%s", tc.file, part, text)
			}
		}
		again := kiln(t, strings.Fields(m[1])...)
		if first, second := firstLine(r.stderr), firstLine(again.stderr); again.code != exitFailed || !sameBug(first, second) {
			t.Errorf("%s shows %q, not %q", tc.file, second, first)
		}
	}
	for _, args := range [][]string{{"--passes", "test-error"}, {"--passes", "cse"}} {
		kilnWith(t, nil, twice, append([]string{"opt"}, args...)...)
	}
	if files, err := filepath.Glob("*.kir"); err != nil || len(files) != 5 {
		t.Errorf("files %v, error %v", files, err)
	}
}

// The hint and the file name the program whose pass it is.
func TestReproducerOfAnotherProgram(t *testing.T) {
	program = "custompass"
	t.Cleanup(func() { program = "kiln" })
	t.Chdir(t.TempDir())
	const command = "custompass opt kiln-reproducer-test-panic-step.kir --passes test-panic\n"
	r := kilnWith(t, nil, twice, "opt", "--passes", "test-panic")
	if text := string(readFile(t, "kiln-reproducer-test-panic-step.kir")); !strings.HasSuffix(r.stderr, "  try: "+command) || !strings.HasPrefix(text, "// "+command) {
		t.Errorf("%s\n%s", r.stderr, text)
	}
}

// A dump takes the place of an earlier one, and leaves other files alone.
func TestDumpDirOfAnEarlierDump(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"07-cse.kir", "09-bind.plan-012.kir", "01-mine.kir", "notes.kir"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kilnWith(t, nil, twice, "opt", "--dump-dir", dir, "--passes", "dce").ok(t)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if got := strings.Join(names, " "); got != "01-fnuz-weights.kir 01-mine.kir 02-hoist-pack.kir 03-dce.kir notes.kir" {
		t.Errorf("files %s", got)
	}
}

// The recipe of docs/passes.md: a pass that reads the pack graph gets it from a
// second dump into the same file.
func TestLookAtOnePass(t *testing.T) {
	dump := func(entry string) string {
		return kiln(t, "dump", "--model", tinyModel, "--entry", entry, "--pipeline", "required").ok(t).stdout
	}
	look := func(text string) string {
		return kilnWith(t, nil, text, "opt", "--passes", "hoist-rope", "--print-changed", "--remarks", "text").ok(t).stderr
	}
	if out := look(dump("decode") + dump("pack")); !strings.Contains(out, "// after hoist-rope (decode)\n") || !strings.Contains(out, "applied: hoist-rope @decode ") {
		t.Errorf("with the pack graph: %.300s", out)
	}
	if out := look(dump("decode")); strings.Contains(out, "applied: ") || !strings.Contains(out, "missed: hoist-rope @decode ") {
		t.Errorf("without it: %.300s", out)
	}
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

// sameBug compares messages without the places that the verifier names.
func sameBug(a, b string) bool {
	place := regexp.MustCompile(`\S+:\d+:\d+`)
	return place.ReplaceAllString(a, "") == place.ReplaceAllString(b, "")
}

// The reproducer of a pass on the whole model, from a command that runs it.
func TestReproducerOfRun(t *testing.T) {
	model, err := filepath.Abs(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	kiln(t, "run", "--model", model, "--prompt", "x", "--passes", "test-break").failed(t, exitFailed, "pass test-break: left a broken graph", "try: kiln opt kiln-reproducer-test-break-prefill.kir --passes test-break\n")
	kiln(t, "opt", "kiln-reproducer-test-break-prefill.kir", "--passes", "test-break").failed(t, exitFailed, "pass test-break: left a broken graph")
	kiln(t, "run", "--model", model, "--prompt", "x", "--passes", "test-pack-panic").failed(t, exitFailed, "panic: a pack graph", "try: kiln opt kiln-reproducer-test-pack-panic-prefill.kir --passes test-pack-panic\n")
	kiln(t, "opt", "kiln-reproducer-test-pack-panic-prefill.kir", "--passes", "test-pack-panic").failed(t, exitFailed, "panic: a pack graph")
	kiln(t, "explain", "--model", model, "--target", "gfx942", "--passes", "test-step-panic").
		failed(t, exitFailed, "pass test-step-panic: panic: no step", "try: kiln opt kiln-reproducer-test-step-panic-decode.kir --passes test-step-panic --target gfx942\n")
	kiln(t, "opt", "kiln-reproducer-test-step-panic-decode.kir", "--passes", "test-step-panic", "--target", "gfx942").failed(t, exitFailed, "panic: no step")
}

func TestPasses(t *testing.T) {
	r := kiln(t, "passes").ok(t)
	for _, part := range []string{
		"hoist-pack         graphs  required  Moves weight-only values", "cse                graphs  on        Computes equal", "test-gate          steps   off       Wants T.",
		"\norder:\n", "  cse before dce: what was computed twice leaves", "\nthresholds, for --set:\n", " rms_norm_rope\n",
	} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("passes lacks %q:\n%s", part, r.stdout)
		}
	}
	var list passList
	kiln(t, "passes", "--json").decode(t, &list)
	if len(list.Passes) != len(passes.Table) || len(list.Orders) != len(passes.Orders) || len(list.Thresholds) != len(passes.Thresholds) || len(list.Kernels) < 50 {
		t.Errorf("%+v", list)
	}
	for _, k := range list.Kernels {
		if len(k.Forms) == 0 {
			t.Errorf("op %s has no forms", k.Op)
		}
	}
}

// A threshold is listed with its target and source, and --set takes its key.
func TestPassesThreshold(t *testing.T) {
	saved := passes.Thresholds
	t.Cleanup(func() { passes.Thresholds = saved })
	passes.Thresholds = append(slices.Clone(saved), passes.Threshold{Key: "test-gate.max", Target: "gfx950", Value: 64, Origin: passes.Published, Source: "a paper", Doc: "Largest T."})
	if out := kiln(t, "passes").ok(t).stdout; !strings.Contains(out, "  test-gate.max  gfx950  64  published: a paper  Largest T.\n") && !strings.Contains(out, "test-gate.max ") {
		t.Errorf("%s", out)
	}
	kilnWith(t, nil, twice, "opt", "--set", "test-gate.max=3").ok(t)
	f, err := parsed("opt", "--set", "test-gate.max=3", "--passes", "dce,cse,dce")
	if err != nil {
		t.Fatal(err)
	}
	c, err := passConfig(f)
	if got, _ := json.Marshal(c.Set); err != nil || string(got) != `{"test-gate.max":3}` || !slices.Equal(c.Only, []string{"cse", "dce"}) {
		t.Errorf("config %+v, error %v", c, err)
	}
}

// packedTwice has a pack graph, and an op in an entry that would go to another.
const packedTwice = `graph @step
input %x : f32[2]
weight @w : bf16[2]
%0 = cast @w {to = f32} : f32[2]
%1 = add %x, %0 : f32[2]
output y = %1
graph @pack
weight @v : bf16[2]
%0 = neg @v : bf16[2]
output packed.v = %0
`
