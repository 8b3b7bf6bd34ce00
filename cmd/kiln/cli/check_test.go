package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kiln-project/kiln/check"
	"github.com/kiln-project/kiln/passes"
)

// tinyDecode is a decode step of two requests.
var tinyDecode = []string{"check", "--model", tinyModel, "--entry", "decode", "--bind", "B=2,R=2,N=4,P=2"}

func TestCheckOnRef(t *testing.T) {
	var r checkResult
	kiln(t, append(slices.Clone(tinyDecode), "--json")...).decode(t, &r)
	if r.Device != "ref" || r.Entry != "decode" || r.Bind["N"] != 4 || r.Weights != "checkpoint" || r.Seeds != 1 || len(r.Cases) != len(check.Cases) || !r.OK || len(r.Breach) != 0 {
		t.Errorf("result %+v", r)
	}
	if len(r.Ops) > 0 || len(r.Passes) < 4 || r.Passes[0].Pass != passes.Table[0].Name {
		t.Errorf("passes %+v, ops %+v", r.Passes, r.Ops)
	}
	text := kiln(t, tinyDecode...).ok(t).stdout
	for _, want := range []string{"decode with B=2,N=4,P=2,R=2 on ref: checkpoint weights, seeds 0 to 0, cases random, ", "\npass ", "\nfnuz-weights ", "  bit for bit  ok\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("standard output lacks %q:\n%s", want, text)
		}
	}
}

// Whole speculative steps, whose rows are accepted or not by the tokens that are made up.
func TestCheckSpeculate(t *testing.T) {
	var r checkResult
	kiln(t, "check", "--model", tinyModel, "--entry", "speculate4", "--layers", "1", "--bind", "B=2,R=2", "--json").decode(t, &r)
	if r.Entry != "speculate4" || !r.OK || len(r.Passes) < 4 {
		t.Errorf("on the evaluator: %+v", r)
	}
	kiln(t, "check", "--model", tinyModel, "--entry", "speculate17", "--bind", "B=1").failed(t, exitRefused, "--entry speculate17: at most 16 draft tokens")
	needLLVM(t)
	kiln(t, "check", "--model", tinyModel, "--entry", "speculate2", "--layers", "1", "--bind", "B=2,R=2", "--device", "host", "--cache-dir", filepath.Join(t.TempDir(), "cache"), "--json").decode(t, &r)
	if r.Device != "host" || !r.OK || r.Whole == nil {
		t.Errorf("on the host: %+v", r)
	}
}

func TestCheckOnHost(t *testing.T) {
	needLLVM(t)
	args := append(slices.Clone(tinyDecode), "--device", "host", "--weights", "random")
	var r checkResult
	kiln(t, append(slices.Clone(args), "--op", "layers.2.ffn", "--json")...).decode(t, &r)
	if r.Device != "host" || r.Weights != "random" || !r.OK || len(r.Passes) > 0 || len(r.Layers) != 1 || r.Layers[0].Layer != "layers.2" {
		t.Errorf("result %+v", r)
	}
	var names []string
	for _, o := range r.Ops {
		names = append(names, o.Op)
	}
	if !slices.Contains(names, "gate") || !slices.Contains(names, "moe_experts_add") || slices.Contains(names, "rope") || len(r.Decomp) < 4 {
		t.Errorf("ops %v, decomposed %v", names, r.Decomp)
	}
	text := kiln(t, append(args, "--op", "gate")...).ok(t).stdout
	for _, want := range []string{"\ngate  5 ", "by validity of the choice; further results abs <= 2e-06\n", "\nlayer ", "\nagainst its decomposition on the device "} {
		if !strings.Contains(text, want) {
			t.Errorf("standard output lacks %q:\n%s", want, text)
		}
	}
	kiln(t, append(args, "--op", "gait")...).failed(t, exitUsage, `--op: no op and no loc "gait" in the graph: it has add, block_linear, `)
	kiln(t, "check", "--model", flashConfig, "--entry", "decode", "--bind", "B=1,R=1,N=1,P=1", "--device", "host", "--op", "moe_experts_add").failed(t, exitRefused, "moe_experts_add: it has 6.44e+09 elements")
}

// The made-up requests of an entry whose heads sample are greedy and sampled ones.
func TestCheckOfHeads(t *testing.T) {
	needLLVM(t)
	args := append(slices.Clone(tinyDecode), "--device", "host", "--layers", "3")
	for head, op := range map[string]string{"sample": "sample", "greedy": "linear_argmax"} {
		var r checkResult
		kiln(t, append(slices.Clone(args), "--head", head, "--op", op, "--json")...).decode(t, &r)
		if !r.OK || len(r.Ops) != 1 || r.Ops[0].Op != op || r.Ops[0].Differ != 0 || r.Ops[0].Values == 0 {
			t.Errorf("head %s: %+v", head, r)
		}
	}
}

func TestCheckOfAFile(t *testing.T) {
	file := filepath.Join("..", "..", "..", "models", "dsv4", "testdata", "moe.hash.kir")
	var r checkResult
	kiln(t, "check", file, "--bind", "T=5,B=1,O=1,R=1", "--seeds", "2", "--json").decode(t, &r)
	if r.Entry != "moe" || r.Weights != "random" || r.Seeds != 2 || !r.OK {
		t.Errorf("result %+v", r)
	}
	two := filepath.Join(t.TempDir(), "two.kir")
	text := "graph @a\ninput %x : f32[2]\n%0 = neg %x : f32[2]\noutput y = %0\n"
	if err := os.WriteFile(two, []byte(text+strings.Replace(text, "@a", "@b", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	kiln(t, "check", two).failed(t, exitUsage, "check needs --entry, one of a, b")
	if out := kiln(t, "check", two, "--entry", "b").ok(t).stdout; !strings.HasPrefix(out, "b on ref: random weights, ") {
		t.Errorf("standard output %q", out)
	}
}

// A graph @pack of the file is the pack graph, as it is to opt.
func TestCheckOfAFileWithAPackGraph(t *testing.T) {
	file := filepath.Join(t.TempDir(), "packed.kir")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const pack = "graph @pack\nweight @w : f32[2]\n%0 = neg @w : f32[2]\noutput packed.w = %0\n"
	write("graph @a\nweight @packed.w : f32[2]\ninput %x : f32[2]\n%0 = mul %x, @packed.w : f32[2]\noutput y = %0\n" + pack)
	if out := kiln(t, "check", file).ok(t).stdout; !strings.HasPrefix(out, "a on ref: random weights, ") { // the only entry
		t.Errorf("standard output %q", out)
	}
	kiln(t, "check", file, "--entry", "pack").failed(t, exitUsage, `--entry: no entry "pack": want one of a`)
	write(pack)
	kiln(t, "check", file).failed(t, exitRefused, "has the pack graph alone: check is about an entry")
}

// A pass that fails is an error, as it is to opt.
func TestCheckOfAPassThatFails(t *testing.T) {
	kiln(t, append(slices.Clone(tinyDecode), "--passes", "test-error")...).failed(t, exitFailed, "kiln: pass test-error: not today")
}

func TestCheckUsage(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{nil, exitUsage, "kiln: check needs --model or a FILE.kir, one of the two\n  try: kiln check --model DIR --entry decode\n"},
		{[]string{"a.kir", "--model", tinyModel}, exitUsage, "kiln: check needs --model or a FILE.kir, one of the two\n  try: kiln check --model DIR --entry decode\n"},
		{[]string{"a.kir", "b.kir"}, exitUsage, "kiln: check takes 1 argument ([FILE.kir]), got 2\n  try: kiln check --help\n"},
		{[]string{"--model", tinyModel}, exitUsage, "kiln: check needs --entry, one of prefill, decode, verify, draft, speculateK\n  try: --entry prefill\n"},
		{[]string{"--model", tinyModel, "--entry", "pack"}, exitUsage, "kiln: --entry: no entry \"pack\": want one of prefill, decode, verify, draft, speculateK\n  try: --entry prefill\n"},
		{[]string{"--model", tinyModel, "--entry", "decode"}, exitUsage, "kiln: entry decode: --bind does not give B, R, P, N\n  try: --bind B=1,N=2,P=2,R=1\n"},
		{[]string{"--model", tinyModel, "--entry", "decode", "--bind", "B=1,P=2"}, exitUsage, "kiln: entry decode: --bind does not give R, N\n  try: --bind B=1,N=2,P=2,R=1\n"},
		{[]string{"--model", tinyModel, "--entry", "decode", "--bind", "T=1"}, exitUsage, "kiln: --bind: entry decode has no symbol T: it has B, R, P, N\n  try: --bind B=1,N=2,P=2,R=1\n"},
		{[]string{"--model", tinyModel, "--entry", "decode", "--bind", "B=0"}, exitUsage, "kiln: --bind \"B=0\": want SYMBOL=N with N at least 1\n  try: --bind T=8,B=8\n"},
		{[]string{"--model", tinyModel, "--entry", "decode", "--bind", "B=1,B=2"}, exitUsage, "kiln: --bind: B is bound to 1 and to 2\n  try: --bind T=8,B=8\n"},
		{[]string{"--model", tinyModel, "--entry", "verify", "--bind", "B=1,K=9,N=2,P=2,R=1"}, exitRefused, "kiln: --bind: K=9 drafts per request, the rings have room for 3\n  try: --bind K=3\n"},
		{[]string{"--model", tinyModel, "--entry", "decode", "--op", "rope"}, exitUsage, "kiln: --op: on ref an op is its decomposition: there is nothing to compare it with\n  try: --device host --op rope\n"},
		{[]string{"--model", tinyModel, "--device", "abacus"}, exitRefused, "kiln: --device abacus: this version has auto, hip:N, cuda:N, host, emu:gfx942, emu:gfx950, ref\n  try: --device host\n"},
		{[]string{"--model", tinyModel, "--seeds", "0"}, exitUsage, "kiln: --seeds is 0, want at least 1\n  try: --seeds 1\n"},
		{[]string{"--model", tinyModel, "--weights", "golden"}, exitUsage, "kiln: --weights: unknown weights \"golden\": want checkpoint or random\n  try: --weights random\n"},
		{[]string{"--model", tinyModel, "--layers", "7"}, exitRefused, "kiln: --layers 7: the model has 6\n"},
		{[]string{"x.kir", "--layers", "1"}, exitUsage, "kiln: --layers changes the graphs of a model, and x.kir is a graph\n  try: --model DIR\n"},
		{[]string{"x.kir", "--weights", "checkpoint"}, exitUsage, "kiln: --weights checkpoint: x.kir has no checkpoint\n  try: --weights random\n"},
		{[]string{"--model", flashConfig, "--entry", "decode", "--bind", "B=1,N=1,P=1,R=1"}, exitRefused, "kiln: graph @decode has 2.84e+11 weights, the evaluator takes 2.68e+08 at most\n  try: --device host --op NAME, which makes operands up; or --layers N\n"},
	} {
		r := kiln(t, append([]string{"check"}, tc.args...)...)
		if r.code != tc.code || withoutNotes(r.stderr) != tc.stderr || r.stdout != "" {
			t.Errorf("check %q: exit code %d, standard error %q, standard output %q; want %d and %q", tc.args, r.code, r.stderr, r.stdout, tc.code, tc.stderr)
		}
	}
}

// A breach is exit code 4, after the whole report, with the command line that shows
// it again.
func TestCheckBreach(t *testing.T) {
	f := newFlags("check", pflag.NewFlagSet("check", pflag.ContinueOnError))
	if err := f.set.Parse([]string{"--model", "m", "--entry", "decode", "--bind", "B=1"}); err != nil {
		t.Fatal(err)
	}
	b := check.Breach{What: "rope", Loc: "layers.1.attn", Of: "y", Seed: 2, Case: "random", Text: "element 3 of f32[4] is 1, want 2"}
	for device, again := range map[string]string{
		"ref":  "kiln check --model m --entry decode --bind B=1 --device ref --seeds 3",
		"host": "kiln check --model m --entry decode --bind B=1 --device host --op rope --seeds 3",
	} {
		var out bytes.Buffer
		res := checkResult{Entry: "decode", Bind: map[string]int{"B": 1}, Device: device, Seeds: 3, Breach: slices.Repeat([]check.Breach{b}, mostBreaches+2)}
		err := concludeCheck(&env{stdout: &out}, f, nil, res)
		c, ok := err.(*codedError)
		if !ok || c.code != exitCheck || c.hint != again {
			t.Fatalf("error %#v", err)
		}
		const first = "rope at layers.1.attn: y (seed 2, case random): element 3 of f32[4] is 1, want 2"
		if c.Error() != "12 beyond their limit: first "+first {
			t.Errorf("error %q", c)
		}
		if text := out.String(); strings.Count(text, "beyond the limit: "+first) != mostBreaches || !strings.HasSuffix(text, "and 2 more; --json has them\n") {
			t.Errorf("standard output %q", text)
		}
	}
	var out bytes.Buffer
	taken := &check.Taken{Name: "bf16-probabilities", Forms: []string{"a", "b"}}
	if err := concludeCheck(&env{stdout: &out}, f, nil, checkResult{Device: "emu:gfx950", Ops: []*check.OpResult{{Op: "attention", OK: true, Limit: "1-cos <= 0.0005", Liberty: taken}}}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.HasSuffix(text, "  ok       1-cos <= 0.0005 (liberty bf16-probabilities of a, b)\n") {
		t.Errorf("standard output %q", text)
	}
	again := showAgain(f, nil, check.Breach{What: check.WholeGraph}, checkResult{Device: "host"})
	if want := "kiln check --model m --entry decode --device host --seeds 1"; again != want { // no --op
		t.Errorf("the whole graph again: %q", again)
	}
}
