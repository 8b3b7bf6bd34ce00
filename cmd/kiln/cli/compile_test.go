package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/llvm"
)

// needLLVM skips where nothing can be compiled.
func needLLVM(t *testing.T) *llvm.Toolchain {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("this test compiles with LLVM, and there is none: %v", err)
	}
	return tools
}

// forRuntime reports whether no plan launches a kernel, but the runtime.
func forRuntime(k bundleKernel) bool {
	return slices.ContainsFunc(kernels.Runtime, func(r kernels.RuntimeKernel) bool { return r.Form == k.Chosen })
}

// needGPU skips where nothing can be compiled for gfx950.
func needGPU(t *testing.T) {
	t.Helper()
	tools := needLLVM(t)
	if ok, err := tools.KnowsCPU(t.Context(), llvm.AMDGPU, "gfx950"); !ok {
		t.Skipf("this test compiles for gfx950, which LLVM %s does not know: %v", tools.Version, err)
	}
}

// A bundle compiled, inspected and run; what it was not compiled for is refused.
func TestBundle(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "tiny.kiln")
	compile := []string{"compile", "--model", tinyModel, "--cache-dir", filepath.Join(dir, "cache"), "--batch", "1", "--prefill", "16", "--speculate", "1", "-o", b, "--json"}
	var made compileResult
	if err := json.Unmarshal([]byte(kiln(t, compile...).ok(t).stdout), &made); err != nil {
		t.Fatal(err)
	}
	if len(made.Targets) != 1 || made.Targets[0].Plans != 7 || made.Targets[0].Cached != 0 || made.Set.Numerics != "production" {
		t.Errorf("compiled %+v", made)
	}
	if err := json.Unmarshal([]byte(kiln(t, compile...).ok(t).stdout), &made); err != nil {
		t.Fatal(err)
	}
	if made.Targets[0].Cached != made.Targets[0].Kernels {
		t.Errorf("the second time %d of %d kernels were cached", made.Targets[0].Cached, made.Targets[0].Kernels)
	}

	var in bundleInspection
	if err := json.Unmarshal([]byte(kiln(t, "inspect", b, "--json").ok(t).stdout), &in); err != nil {
		t.Fatal(err)
	}
	want := []string{"prefill 16 1", "decode 1 1", "verify 2 1", "draft 16 1", "draft 1 1", "draft 2 1", "speculate1 2 1"}
	for i, e := range in.Entries {
		if got := strings.Join([]string{e.Name, itoa(e.Tokens), itoa(e.Batch)}, " "); i >= len(want) || got != want[i] || e.Launches < 20 {
			t.Errorf("entry %d is %s with %d launches", i, got, e.Launches)
		}
	}
	for _, k := range in.Kernels {
		if len(k.Ops) == 0 != forRuntime(k) {
			t.Errorf("kernel %s of form %s is launched by %v", k.Name, k.Chosen, k.Ops)
		}
	}

	run := []string{"run", "--model", tinyModel, "--bundle", b, "--prompt-ids", "0,303,222", "--max-new-tokens", "3", "--json"}
	var r runResult
	if err := json.Unmarshal([]byte(kiln(t, run...).ok(t).stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Device != "host" || len(r.IDs) != 3 {
		t.Errorf("ran %+v", r)
	}
	kiln(t, append(run, "--numerics", "unrounded")...).failed(t, exitRefused, "was compiled with numerics production, not unrounded", "--numerics unrounded")
	kiln(t, append(run, "--device", "ref")...).failed(t, exitRefused, "--bundle runs on GPUs, host and emu")
	kiln(t, append(run, "--model", modelFolder(t, map[string][]byte{"config.json": []byte(strings.Replace(string(readFile(t, tinyModel+"/config.json")), `"max_position_embeddings": 4096`, `"max_position_embeddings": 2048`, 1))}))...).
		failed(t, exitRefused, "was compiled from another config.json", "\n  try: kiln compile --model ", " --target "+hostTargetName(t)+" -o OTHER.kiln\n")
	kiln(t, append(run, "--prompt-ids", "5,2048")...).failed(t, exitRefused, "--prompt-ids: id 2048 at index 1 is out of vocabulary (0..2047)\n  try: kiln tokenize --model "+tinyModel+": ")
	for _, command := range [][]string{{"run", "--prompt", "x", "--device", "host", "--model", tinyModel, "--bundle"}, {"plan"}, {"inspect"}, {"bench", "--random-weights", "--device", "host"}} {
		none := filepath.Join(dir, "none.kiln")
		kiln(t, append(command, none)...).failed(t, exitFailed, "kiln: open "+filepath.Join(none, "manifest.json")+": no such file or directory\n  try: kiln compile --model ", " -o OTHER.kiln\n")
	}
	part := filepath.Join(dir, "part.kiln")
	kiln(t, "compile", "--model", tinyModel, "--batch", "1", "--max-seq", "64", "--speculate", "0", "--layers", "2", plansOnly, "-o", part).ok(t)
	kiln(t, append(run, "--bundle", part)...).failed(t, exitRefused, "was compiled with layers 2, not 6")
	kiln(t, "logits", "--model", tinyModel, "--bundle", b, "--ids", "1,2", "--prefill", "1", "--out", filepath.Join(dir, "x.safetensors")).failed(t, exitRefused, "taps none, not hidden")
}

// A bundle whose heads choose gives the text of one with logits, and serves nothing
// that needs logits; one with greedy heads samples not.
func TestHeadsOfBundles(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	compile := func(name string, args ...string) string {
		b := filepath.Join(dir, name)
		kiln(t, append([]string{"compile", "--model", tinyModel, "--batch", "1", "--prefill", "16", "--max-seq", "64", "--speculate", "0", plansOnly, "-o", b}, args...)...).ok(t)
		return b
	}
	logits, greedy, sample := compile("logits.kiln", "--taps", "hidden"), compile("greedy.kiln", "--taps", "hidden", "--head", "greedy"), compile("sample.kiln", "--taps", "hidden", "--head", "sample")
	run := []string{"run", "--model", tinyModel, "--prompt-ids", "0,303,222", "--max-new-tokens", "6", "--json"}
	hot := []string{"--temperature", "1.1", "--top-k", "60", "--top-p", "0.9", "--seed", "4"}
	var tokens [2][]int32
	for how, list := range [][][]string{
		{{"--bundle", logits}, {"--bundle", greedy}, {"--bundle", sample}, {"--bundle", logits, "--temperature", "1", "--top-k", "1"}, nil},
		{append([]string{"--bundle", logits}, hot...), append([]string{"--bundle", sample}, hot...), hot},
	} {
		for i, args := range list {
			var r runResult
			if err := json.Unmarshal([]byte(kiln(t, append(slices.Clone(run), args...)...).ok(t).stdout), &r); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				tokens[how] = r.IDs
			}
			if len(r.IDs) != 6 || !slices.Equal(r.IDs, tokens[how]) {
				t.Errorf("%v gives %v, want %v", args, r.IDs, tokens[how])
			}
		}
	}
	if slices.Equal(tokens[0], tokens[1]) {
		t.Errorf("greedy and sampled: %v", tokens[0])
	}
	if text := string(readFile(t, filepath.Join(logits, "manifest.json"))); strings.Contains(text, "head") {
		t.Errorf("the manifest of a bundle with logits is\n%s", text)
	}
	const refused = "greedy.kiln was compiled with --head greedy: it gives the greedy token, no logits and no other token"
	kiln(t, append(run, "--bundle", greedy, "--temperature", "1")...).failed(t, exitRefused, refused, " --head sample -o OTHER.kiln\n")
	kiln(t, append(run, "--bundle", greedy, "--temperature", "1", "--dry-run")...).failed(t, exitRefused, refused)
	kiln(t, append(run, "--bundle", logits, "--max-new-tokens", "62")...).failed(t, exitRefused, "was compiled for 64 positions (--max-seq), the request needs 65\n  try: --max-new-tokens 61, or kiln compile --model "+tinyModel+" --target "+hostTargetName(t)+" --max-seq 65 -o OTHER.kiln\n")
	out := filepath.Join(dir, "x.safetensors")
	kiln(t, "logits", "--model", tinyModel, "--bundle", greedy, "--ids", "1,2", "--prefill", "1", "--out", out).failed(t, exitRefused, refused)
	kiln(t, "logits", "--model", tinyModel, "--bundle", sample, "--ids", "1,2", "--prefill", "1", "--out", out).
		failed(t, exitRefused, "sample.kiln was compiled with --head sample: it gives tokens, no logits", " --head logits -o OTHER.kiln\n")
	kiln(t, "compile", "--model", tinyModel, "--head", "best", "-o", out).failed(t, exitUsage, `--head: unknown head "best": want logits, sample, greedy`, "--head logits")
	manifest := filepath.Join(greedy, "manifest.json")
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(readFile(t, manifest)), `"head": "greedy"`, `"head": "best"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	kiln(t, append(run, "--bundle", greedy)...).failed(t, exitFailed, `manifest.json: unknown head "best": want logits, sample, greedy`)
	kiln(t, "plan", greedy).failed(t, exitFailed, `manifest.json: unknown head "best": want logits, sample, greedy`)
}

// A bundle for a bare chip and for the same chip with settled features: two
// targets, whose code objects say which is which.
func TestBundleTargetIDs(t *testing.T) {
	needGPU(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "tiny.kiln")
	kiln(t, "compile", "--model", tinyModel, "--layers", "1", "--batch", "1", "--prefill", "16", "--speculate", "0", plansOnly,
		"--target", "gfx950,gfx950:xnack-:sramecc+", "-o", b).ok(t)
	names := []string{"gfx950", "gfx950:sramecc+:xnack-"}
	var in bundleInspection
	if err := json.Unmarshal([]byte(kiln(t, "inspect", b, "--json").ok(t).stdout), &in); err != nil {
		t.Fatal(err)
	}
	if len(in.Totals) != len(names) {
		t.Fatalf("targets %+v", in.Totals)
	}
	for i, want := range names {
		if got := in.Totals[i]; got.Target != want || got.Plans != 4 || got.Kernels == 0 {
			t.Errorf("target %d is %s with %d plans and %d kernels, want %s", i, got.Target, got.Plans, got.Kernels, want)
		}
		var code inspection
		if err := json.Unmarshal([]byte(kiln(t, "inspect", filepath.Join(b, want, "kernels.hsaco"), "--json").ok(t).stdout), &code); err != nil {
			t.Fatal(err)
		}
		if code.Target == nil || *code.Target != want || len(code.Problems) > 0 {
			t.Errorf("the code object of %s is for %s, problems %v", want, cell(code.Target), code.Problems)
		}
	}
}

// The version of the code object is in the ELF header, in the manifest and in what
// inspect says; another version is not served from the cache.
func TestCodeObjectVersion(t *testing.T) {
	needGPU(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "tiny.kiln")
	compile := []string{"compile", "--model", tinyModel, "--cache-dir", filepath.Join(dir, "cache"), "--layers", "1", "--batch", "1", "--prefill", "16",
		"--speculate", "0", plansOnly, "--target", "gfx950", "-o", b, "--json"}
	for _, tc := range []struct {
		args      []string
		want      int
		allCached bool
	}{
		{nil, 5, false},
		{[]string{"--code-object-version", "6"}, 6, false},
		{[]string{"--code-object-version", "5"}, 5, true},
	} {
		var made compileResult
		if err := json.Unmarshal([]byte(kiln(t, append(compile, tc.args...)...).ok(t).stdout), &made); err != nil {
			t.Fatal(err)
		}
		want := 0
		if tc.allCached {
			want = made.Targets[0].Kernels
		}
		if n := made.Targets[0].Cached; n != want || made.Set.CodeObjectVersion != tc.want {
			t.Errorf("%v: %d of %d kernels were cached, want %d; settings %+v", tc.args, n, made.Targets[0].Kernels, want, made.Set)
		}
		if out := kiln(t, "inspect", b).ok(t).stdout; !strings.Contains(out, ", code object version "+itoa(tc.want)+"\n") {
			t.Errorf("%v: inspect says\n%s", tc.args, out)
		}
		var code inspection
		if err := json.Unmarshal([]byte(kiln(t, "inspect", filepath.Join(b, "gfx950", "kernels.hsaco"), "--json").ok(t).stdout), &code); err != nil {
			t.Fatal(err)
		}
		if code.CodeObjectVersion == nil || *code.CodeObjectVersion != tc.want || len(code.Problems) > 0 {
			t.Errorf("%v: the code object is of version %s, problems %v", tc.args, cell(code.CodeObjectVersion), code.Problems)
		}
	}
}

// What --emit keeps is in the bundle, and inspect shows it.
func TestEmit(t *testing.T) {
	needLLVM(t)
	needObjdump(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "tiny.kiln")
	compile := []string{"compile", "--model", tinyModel, "--target", "gfx950", "--layers", "1", "--batch", "1", "--prefill", "16", "--speculate", "0", plansOnly, "-o", b}
	kiln(t, append(compile, "--emit", "kir,asm")...).failed(t, exitUsage, `unknown form "asm"`)
	kiln(t, compile...).ok(t)
	kiln(t, "inspect", b, "--ll").failed(t, exitRefused, "has no gfx950/ir/ll/", "kiln compile --emit ll")
	kiln(t, append(compile, "--emit", "kir,ll")...).ok(t)
	if text := string(readFile(t, filepath.Join(b, "gfx950", "ir", "kir", "decode.kir"))); !strings.Contains(text, "rms_norm") {
		t.Error("decode.kir is not the decode graph")
	}
	var in bundleInspection
	if err := json.Unmarshal([]byte(kiln(t, "inspect", b, "--json").ok(t).stdout), &in); err != nil {
		t.Fatal(err)
	}
	if len(in.Totals) != 1 || in.Totals[0].Target != "gfx950" || in.Totals[0].WeightBytes == 0 || in.Totals[0].Plans != len(in.Entries) {
		t.Errorf("totals %+v", in.Totals)
	}
	var name string
	for _, k := range in.Kernels {
		if strings.HasPrefix(k.Chosen, "step_") { // around a step: no plan launches it
			if k.VGPR == nil || k.Largest != "" || len(k.Ops) != 1 || !strings.HasSuffix(k.Ops[0], " each step") {
				t.Errorf("kernel %+v", k)
			}
			continue
		}
		if forRuntime(k) {
			continue
		}
		if k.FloorUS == nil || k.Bytes == 0 || k.Grid == 0 || k.MFMA == nil || k.VGPR == nil || k.Chosen == "" || k.Largest == "" {
			t.Errorf("kernel %+v", k)
		}
		if k.Chosen == "block_linear_mfma" && k.Flops > 0 {
			name = k.Name
		}
		if product := strings.HasPrefix(k.Name, "matrix_"); k.MFMA != nil && product != (*k.MFMA > 0) {
			t.Errorf("kernel %s has %d matrix instructions", k.Name, *k.MFMA)
		}
	}
	out := kiln(t, "inspect", b, "--kernel", name, "--ll", "--asm").ok(t).stdout
	for _, part := range []string{"form block_linear_mfma", "define amdgpu_kernel void @" + name, "s_endpgm", "global_buffer"} {
		if !strings.Contains(out, part) {
			t.Errorf("inspect --kernel lacks %q", part)
		}
	}
	kiln(t, "inspect", b, "--kernel", "nope").failed(t, exitUsage, `has no kernel "nope"`)
	kiln(t, "inspect", goldenMatmul, "--ll").failed(t, exitRefused, "has no LLVM IR")
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestCompileRefuses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m.kiln")
	base := []string{"compile", "--model", tinyModel, "-o", out}
	other := writeFile(t, "other.kiln", "not a bundle")
	for _, tc := range []struct {
		args []string
		code int
		part string
	}{
		{[]string{"--target", "gfx900"}, exitUsage, `unknown target "gfx900"`},
		{[]string{"--target", "gfx950,gfx950"}, exitUsage, "given twice"},
		{[]string{"--target", "gfx950:xnack-:sramecc+,gfx950:sramecc+:xnack-"}, exitUsage, "gfx950:sramecc+:xnack- is given twice"},
		{[]string{"--target", "gfx950:tgsplit+"}, exitUsage, `unknown feature "tgsplit+"`},
		{[]string{"--target", "gfx950:xnack"}, exitUsage, `feature "xnack" must end in + or -`},
		{[]string{"--target", "gfx950:xnack+:xnack-"}, exitUsage, `feature "xnack" is given twice`},
		{[]string{"--target", "x86-64-v3:xnack+"}, exitUsage, "x86-64-v3 takes no features"},
		{[]string{"--target", "sm_90:xnack+"}, exitUsage, "sm_90 takes no features"},
		{[]string{"--code-object-version", "4"}, exitUsage, "--code-object-version 4: want one of 5,6"},
		{[]string{"--code-object-version", "6"}, exitUsage, "--code-object-version: no target is an AMD GPU"},
		{[]string{"--batch", "1,1"}, exitUsage, "distinct positive numbers"},
		{[]string{"--prefill", "0"}, exitUsage, "distinct positive numbers"},
		{[]string{"--max-seq", "64", "--prefill", "16,128"}, exitRefused, "128 tokens are beyond --max-seq 64"},
		{[]string{"--speculate", "17"}, exitRefused, "at most 16 draft tokens"},
		{[]string{"--cache-dir", "/dev/null/x"}, exitFailed, "cache: "},
		{[]string{"--max-seq", "5000"}, exitRefused, "beyond max_position_embeddings 4096"},
		{[]string{"--layers", "7"}, exitRefused, "the model has 6"},
		{[]string{"--taps", "all"}, exitUsage, `unknown tap "all"`},
		{[]string{"--out", "m.txt"}, exitUsage, "ends in .kiln"},
		// Before anything is compiled.
		{[]string{"--out", filepath.Join(out, "none", "m.kiln"), "--llvm", "/nonexistent"}, exitFailed, "--out: stat " + filepath.Join(out, "none") + ": no such file or directory\n  try: -o model.kiln, in a folder that is there"},
		{[]string{"--out", other, "--llvm", "/nonexistent"}, exitFailed, "--out: " + other + " exists and is not a bundle"},
	} {
		kiln(t, append(base, tc.args...)...).failed(t, tc.code, tc.part)
	}
	kiln(t, "cache", "purge").failed(t, exitUsage, `unknown action "purge"`)
}
