package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/codegen/tune"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// tuneArgs are the contests of a layer of the tiny model.
func tuneArgs(out string) []string {
	return []string{"tune", "--model", tinyModel, "--target", "sm_90", "--layers", "1", "--batch", "1,2", "--prefill", "16", "--max-seq", "128", "-o", out}
}

// Candidates are compiled to a folder, the same bytes each time, measured on a GPU that
// computes nothing, and the table names both commands.
func TestTune(t *testing.T) {
	needLLVM(t)
	dir := filepath.Join(t.TempDir(), "candidates")
	r := kiln(t, tuneArgs(dir)...).ok(t)
	w, err := readTune(dir)
	if err != nil {
		t.Fatal(err)
	}
	candidates := 0
	for _, c := range w.Contests {
		candidates += len(c.Candidates)
		if len(c.Candidates) < 2 || !slices.Contains(c.Candidates, c.Model) || c.Copies != 64 || c.Op == "" {
			t.Errorf("contest %+v", c)
		}
	}
	if want := fmt.Sprintf("%s: sm_90, %d choices with %d candidates, ", dir, len(w.Contests), candidates); !strings.HasPrefix(r.stdout, want) || len(w.Contests) < 10 {
		t.Errorf("standard output %q, want %q", r.stdout, want)
	}
	kiln(t, tuneArgs(dir)...).failed(t, exitFailed, "--out: folder "+dir+" is not empty", "try: -o OTHER")
	again := filepath.Join(t.TempDir(), "again")
	kiln(t, tuneArgs(again)...).ok(t)
	for _, name := range append([]string{tuneName}, w.Contests[0].File) {
		if !bytes.Equal(readFile(t, filepath.Join(dir, name)), readFile(t, filepath.Join(again, name))) {
			t.Errorf("%s has other bytes the second time", name)
		}
	}

	// Two of them are enough to be measured.
	w.Contests = slices.DeleteFunc(w.Contests, func(c tuneContest) bool { return c.Form != "expert_mma" || c.Rows != 2 })
	index := filepath.Join(dir, tuneName)
	text, err := json.Marshal(w)
	if err == nil {
		err = os.WriteFile(index, text, 0o644)
	}
	if err != nil || len(w.Contests) != 2 {
		t.Fatalf("error %v, contests %v", err, w.Contests)
	}
	measure := func(more ...string) []string {
		return slices.Concat([]string{"tune", "--from", dir, "--samples", "2"}, drivers(t, nil, []string{"sm_90"}), more)
	}
	r = kilnWith(t, chosen, "", measure("--cache-dir", t.TempDir())...).ok(t)
	table, err := tune.Parse("stdout", r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	run := table.Run
	if run.Target != "sm_90" || run.Kiln != Version || run.Device != "NVIDIA, sm_90" || run.Driver != "CUDA 13.0" ||
		run.Compiled != "kiln tune --model "+tinyModel+" --target sm_90 --batch 1,2 --prefill 16 --max-seq 128 --speculate 0 --layers 1 --numerics production --head logits -o DIR" ||
		run.Measured != "kiln tune --from DIR --device cuda:0 --graph auto --samples 2" || !strings.HasPrefix(run.Method, "microseconds of an op, medians of 2 samples in turns; ") {
		t.Errorf("run %+v", run)
	}
	if len(table.Rows) != len(w.Contests) {
		t.Errorf("%d rows of %d contests", len(table.Rows), len(w.Contests))
	}
	for _, c := range w.Contests {
		row := table.Find(c.Form, c.Key, c.Rows)
		if row == nil || row.To != c.Rows {
			t.Errorf("%s: row %v", &c, row)
			continue
		}
		var names []string
		for _, x := range row.Times {
			names = append(names, x.Choice)
		}
		slices.Sort(names)
		if d := cmp.Diff(slices.Sorted(slices.Values(c.Candidates)), names); d != "" {
			t.Errorf("%s (-candidates +times):\n%s", &c, d)
		}
	}

	// Kernels whose results depend on what they are called: every choice changes bits.
	_, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Invents: true})
	c := &w.Contests[1]
	kilnWith(t, chosen, "", "tune", "--from", dir, "--samples", "1", "--cuda-lib", cuda).failed(t, exitCheck,
		"results depend on choices, as they must not: ", fmt.Sprintf("; %s: result0.0 of %s has not the bits of %s", c, c.Candidates[1], c.Candidates[0]))

	for _, tc := range []struct {
		args  []string
		code  int
		parts []string
	}{
		{[]string{"--device", "host"}, exitRefused, []string{"device host (given by --device) is no GPU: choices are those of kernels for GPUs", "try: --device cuda"}},
		{[]string{"--device", "cuda:0", "--cuda-lib", "/nowhere.so"}, exitFailed, []string{"--device cuda:0: no CUDA library could be loaded", "\n  try: kiln doctor\n"}}, // the host cannot
		{[]string{"--device", "ref"}, exitRefused, []string{"device ref (given by --device) is no GPU"}},
		{[]string{"--device", "emu"}, exitRefused, []string{"device emu:gfx950 is emulated: how long it takes says nothing of a GPU"}},
		{[]string{"--samples", "0"}, exitUsage, []string{"--samples is 0, want at least 1"}},
		{slices.Concat([]string{"--device", "hip"}, drivers(t, []string{"gfx950"}, nil)), exitRefused, []string{dir + " was compiled for sm_90, device hip:0 (given by --device) does not run it"}},
	} {
		kilnWith(t, chosen, "", measure(tc.args...)...).failed(t, tc.code, tc.parts...)
	}

	// What is damaged, or of another kiln, is named.
	archive := filepath.Join(dir, w.Contests[1].File)
	data := readFile(t, archive)
	data[len(data)/2] ^= 1
	if err := os.WriteFile(archive, data, 0o644); err != nil {
		t.Fatal(err)
	}
	kilnWith(t, chosen, "", measure("--cache-dir", t.TempDir())...).failed(t, exitFailed, archive+" is damaged")
	for old, new := range map[string]string{`"format":1`: `"format":2`, `"format"`: `format`} {
		text := readFile(t, index)
		if err := os.WriteFile(index, bytes.Replace(text, []byte(old), []byte(new), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		kilnWith(t, chosen, "", measure()...).failed(t, exitFailed, index+": ", "try: kiln tune --model DIR --target T -o OTHER")
		if err := os.WriteFile(index, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be done is refused before anything is compiled.
func TestTuneUsage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for _, tc := range []struct {
		args  []string
		code  int
		parts []string
	}{
		{nil, exitUsage, []string{"tune needs exactly one of --model, --from, got 0"}},
		{[]string{"--model", tinyModel, "--from", out}, exitUsage, []string{"got 2"}},
		{[]string{"--model", tinyModel, "-o", out}, exitUsage, []string{"--model needs --target", "try: kiln tune --model DIR --target sm_90 -o DIR"}},
		{[]string{"--model", tinyModel, "--target", "sm_90"}, exitUsage, []string{"--model needs --out"}},
		{[]string{"--model", tinyModel, "--target", "sm_90,gfx950", "-o", out}, exitUsage, []string{"--target: 2 targets: a table is of one"}},
		{[]string{"--model", tinyModel, "--target", "sm_1", "-o", out}, exitUsage, []string{"--target: "}},
		{[]string{"--model", tinyModel, "--target", "sm_90", "-o", out, "--samples", "3"}, exitUsage, []string{"--samples does not go with --model"}},
		{[]string{"--model", tinyModel, "--target", "sm_90", "-o", out, "--device", "cuda"}, exitUsage, []string{"--device does not go with --model"}},
		{[]string{"--model", tinyModel, "--target", "sm_90", "-o", out, "--batch", "0"}, exitUsage, []string{`--batch: "0"`}},
		{[]string{"--model", out, "--target", "sm_90", "-o", out}, exitFailed, []string{"model folder " + out}},
		{[]string{"--from", out, "--batch", "1"}, exitUsage, []string{"--batch does not go with --from"}},
		{[]string{"--from", out}, exitFailed, []string{filepath.Join(out, tuneName) + ": no such file"}},
	} {
		kiln(t, append([]string{"tune"}, tc.args...)...).failed(t, tc.code, tc.parts...)
	}
	needLLVM(t)
	kiln(t, "tune", "--model", tinyModel, "--target", hostTargetName(t), "--layers", "1", "--batch", "1", "--prefill", "16", "--max-seq", "128", "-o", out).failed(t, exitRefused, "its kernels have no choices in the plans of "+tinyModel)
}

// The fastest is taken, unless the cost model's is as fast but for noise; what holds of
// two numbers of rows holds of those between.
func TestTuneRanks(t *testing.T) {
	times := []tune.Time{{Choice: "a", Us: 10.05}, {Choice: "b", Us: 10}, {Choice: "c", Us: 12}}
	for model, want := range map[string]string{"a": "a", "b": "b", "c": "b", "none": "b"} {
		got := ranked(times, model)
		if got[0].Choice != want || len(got) != 3 || got[2].Choice != "c" {
			t.Errorf("cost model %s: %v, want %s first", model, got, want)
		}
	}
	row := func(key string, rows int, choice string) tune.Row {
		return tune.Row{Form: "f", Key: key, From: rows, To: rows, Times: []tune.Time{{Choice: choice, Us: 1}}}
	}
	rows := []tune.Row{row("k", 1, "a"), row("k", 8, "a"), row("k", 16, "b"), row("k", 64, "b"), row("l", 128, "b")}
	widen(rows)
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %d-%d %s", r.Key, r.From, r.To, r.Choice()))
	}
	if d := cmp.Diff([]string{"k 1-1 a", "k 2-8 a", "k 16-16 b", "k 17-64 b", "l 128-128 b"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestOtherBits(t *testing.T) {
	of := func(x ...float32) map[string]*eval.Tensor {
		return map[string]*eval.Tensor{"a": {DType: ir.F32, Shape: []int{1}, F: []float32{0}}, "y": {DType: ir.F32, Shape: []int{len(x)}, F: x}}
	}
	var zero float32
	for _, tc := range []struct {
		got  map[string]*eval.Tensor
		want string
	}{{of(0, 1), ""}, {of(-zero, 1), "y"}, {of(0, 2), "y"}} {
		if name, err := otherBits(of(0, 1), tc.got); err != nil || name != tc.want {
			t.Errorf("%v: %q, error %v, want %q", tc.got["y"], name, err, tc.want)
		}
	}
}

// Every row of a committed table is asked for by the command that made it, and what it
// says is offered there.
func TestCommittedTables(t *testing.T) {
	for _, tg := range target.Table {
		table, err := tune.For(tg.Name)
		if err != nil {
			t.Fatal(err)
		}
		if table == nil {
			continue
		}
		words := strings.Fields(strings.ReplaceAll(table.Compiled, "testdata/", "../../../testdata/"))
		f, err := parsed("tune", words[2:]...)
		if err != nil {
			t.Fatal(err)
		}
		set, opts, c, err := tuneSettings(f)
		if err != nil {
			t.Fatal(err)
		}
		made, err := tuneDecisions(&env{ctx: t.Context()}, &codegen.Compiler{}, &tg, set, opts, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range table.Rows {
			at := slices.IndexFunc(made, func(d codegen.Decision) bool { return d.Form == r.Form && d.Key == r.Key && d.Rows == r.To })
			switch {
			case at < 0:
				t.Errorf("%s: %s, %s, %d rows: no plan asks for it: kiln tune again", tg.Name, r.Form, r.Key, r.To)
			case !slices.Contains(made[at].Candidates, r.Choice()):
				t.Errorf("%s: %s, %s, %d rows: %s is not offered, but %v: kiln tune again", tg.Name, r.Form, r.Key, r.To, r.Choice(), made[at].Candidates)
			}
		}
	}
}

// The compiler says which choices its tables did not make.
func TestCompileTellsChoices(t *testing.T) {
	needLLVM(t)
	b := filepath.Join(t.TempDir(), "tiny.kiln")
	args := []string{"compile", "--model", tinyModel, "--target", "sm_90", "--layers", "1", "--batch", "1", "--prefill", "16", "--max-seq", "128", "--speculate", "0", "--no-fallback", "-o", b}
	var made compileResult
	for range 2 { // the second time from the cache
		if err := json.Unmarshal([]byte(kiln(t, append(args, "--json")...).ok(t).stdout), &made); err != nil {
			t.Fatal(err)
		}
		c := made.Targets[0]
		if c.Choices < 10 || c.Modelled < 1 || c.Modelled > c.Choices {
			t.Errorf("%+v", c)
		}
		note := fmt.Sprintf("note: sm_90: %d of %d choices are not in the target's table, the cost model made them: kiln inspect %s lists them\n", c.Modelled, c.Choices, b)
		if r := kiln(t, args...).ok(t); !strings.Contains(r.stderr, note) {
			t.Errorf("standard error %q, want %q", r.stderr, note)
		}
	}
	if r := kiln(t, append(args, "--quiet")...).ok(t); r.stderr != "" {
		t.Errorf("standard error with --quiet %q", r.stderr)
	}
	var in bundleInspection
	kiln(t, "inspect", b, "--json").decode(t, &in)
	modelled := 0
	for _, c := range in.Choices {
		if c.Why != "" {
			modelled++
		}
	}
	if len(in.Choices) != made.Targets[0].Choices || modelled != made.Targets[0].Modelled {
		t.Errorf("inspect lists %d choices, %d of them by the cost model; compile said %+v", len(in.Choices), modelled, made.Targets[0])
	}
	text := kiln(t, "inspect", b).ok(t).stdout
	if want := fmt.Sprintf("\nsm_90: %d choices by the target's table, %d by the cost model\n", len(in.Choices)-modelled, modelled); !strings.Contains(text, want) {
		t.Errorf("standard output lacks %q:\n%s", want, text)
	}
}
