package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/runtime/weights"
)

// Command lines that fail before any model is read, with the whole of standard
// error.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		code    int
		stderr  string
	}{
		{"nothing", nil, nil, 2, "kiln: no command given\n  try: kiln --help\n"},
		{"unknown command", []string{"rum"}, nil, 2, "kiln: unknown command \"rum\"\n  try: kiln --help\n"},
		{"unknown command, help wanted", []string{"rum", "--help"}, nil, 2, "kiln: unknown command \"rum\"\n  try: kiln --help\n"},
		{"help wanted of an unknown command", []string{"--help", "rum"}, nil, 2, "kiln: unknown command \"rum\"\n  try: kiln --help\n"},
		{"help of nothing", []string{"help", "nosuch"}, nil, 2, "kiln: unknown command \"nosuch\"\n  try: kiln --help\n"},
		{"a version of a command", []string{"run", "--version"}, nil, 2, "kiln: unknown flag: --version\n  try: kiln run --help\n"},
		{"no completion", []string{"completion", "bash"}, nil, 2, "kiln: unknown command \"completion\"\n  try: kiln --help\n"},
		{"no hidden completion", []string{"__complete", "run", "--m"}, nil, 2, "kiln: unknown command \"__complete\"\n  try: kiln --help\n"},
		{"no hidden completion without descriptions", []string{"__completeNoDesc", "run", "--m"}, nil, 2, "kiln: unknown command \"__completeNoDesc\"\n  try: kiln --help\n"},
		{"a flag for a command", []string{"--model", "x"}, nil, 2, "kiln: unknown flag: --model\n  try: kiln --help\n"},
		{"unknown flag", []string{"run", "--modle", "x"}, nil, 2, "kiln: unknown flag: --modle\n  try: kiln run --help\n"},
		{"another command's flag", []string{"tokenize", "--prompt", "x"}, nil, 2, "kiln: unknown flag: --prompt\n  try: kiln tokenize --help\n"},
		{"unknown short flag", []string{"run", "-m", "x"}, nil, 2, "kiln: unknown shorthand flag: 'm' in -m\n  try: kiln run --help\n"},
		{"flag without value", []string{"run", "--model"}, nil, 2, "kiln: flag needs an argument: --model\n  try: kiln run --help\n"},
		{"not a number", []string{"run", "--top-k", "many"}, nil, 2, "kiln: invalid argument \"many\" for \"--top-k\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\n  try: kiln run --help\n"},
		{"negative seed", []string{"run", "--seed", "-1"}, nil, 2, "kiln: invalid argument \"-1\" for \"--seed\" flag: strconv.ParseUint: parsing \"-1\": invalid syntax\n  try: kiln run --help\n"},
		{"not a bool", []string{"run", "--json=maybe"}, nil, 2, "kiln: invalid argument \"maybe\" for \"--json\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax\n  try: kiln run --help\n"},

		{"unknown variable", []string{"version"}, []string{"HOME=/", "KILN_MODLE=x"}, 2, "kiln: environment variable KILN_MODLE: no flag of that name\n  try: unset KILN_MODLE\n"},
		{"unknown variable of cobra", []string{"version"}, []string{"KILN_ACTIVE_HELP=1"}, 2, "kiln: environment variable KILN_ACTIVE_HELP: no flag of that name\n  try: unset KILN_ACTIVE_HELP\n"},
		{"the first of two unknown variables by name", []string{"version"}, []string{"KILN_Z=", "KILN_B=", "KILN_MODEL="}, 2, "kiln: environment variable KILN_B: no flag of that name\n  try: unset KILN_B\n"},
		{"variable with a bad value", []string{"run"}, []string{"KILN_TOP_K=many"}, 2, "kiln: environment variable KILN_TOP_K: invalid argument \"many\" for \"--top-k\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\n  try: kiln run --help\n"},
		{"empty variable of a switch", []string{"run"}, []string{"KILN_JSON="}, 2, "kiln: environment variable KILN_JSON: invalid argument \"\" for \"--json\" flag: strconv.ParseBool: parsing \"\": invalid syntax\n  try: kiln run --help\n"},

		{"run without model", []string{"run", "--prompt", "x"}, nil, 2, "kiln: run needs --model\n  try: kiln run --help\n"},
		{"run with an empty model", []string{"run", "--prompt", "x", "--model", ""}, nil, 2, "kiln: run needs --model\n  try: kiln run --help\n"},
		{"run with an empty model variable", []string{"run", "--prompt", "x"}, []string{"KILN_MODEL="}, 2, "kiln: run needs --model\n  try: kiln run --help\n"},
		{"run without prompt", []string{"run", "--model", tinyModel}, nil, 2, "kiln: run needs exactly one of --prompt, --prompt-ids, --chat, --requests, got 0\n  try: kiln run --help\n"},
		{"run with an argument", []string{"run", "--model", tinyModel, "package"}, nil, 2, "kiln: run takes no arguments, got \"package\"\n  try: kiln run --help\n"},
		{"negative temperature", []string{"run", "--model", tinyModel, "--prompt", "x", "--temperature", "-1"}, nil, 2, "kiln: --temperature: temperature is -1, want a finite number of at least 0\n  try: kiln run --temperature 0.7 ...\n"},
		{"temperature NaN", []string{"run", "--model", tinyModel, "--prompt", "x", "--temperature", "NaN"}, nil, 2, "kiln: --temperature: temperature is NaN, want a finite number of at least 0\n  try: kiln run --temperature 0.7 ...\n"},
		{"temperature infinite", []string{"run", "--model", tinyModel, "--prompt", "x", "--temperature", "Inf"}, nil, 2, "kiln: --temperature: temperature is +Inf, want a finite number of at least 0\n  try: kiln run --temperature 0.7 ...\n"},
		{"top-p above 1", []string{"run", "--model", tinyModel, "--prompt", "x", "--temperature", "1", "--top-p", "1.5"}, nil, 2, "kiln: --temperature, --top-p: top-p is 1.5, want 0..1\n  try: kiln run --temperature 0.7 ...\n"},
		{"seed without temperature", []string{"run", "--model", tinyModel, "--prompt", "x", "--seed", "1"}, nil, 2, "kiln: --seed: top-k, top-p and seed have no effect at temperature 0 (greedy)\n  try: kiln run --temperature 0.7 ...\n"},
		{"seed of the environment without temperature", []string{"run", "--model", tinyModel, "--prompt", "x", "--temperature", "0"}, []string{"KILN_SEED=1"}, 2, "kiln: --temperature, KILN_SEED: top-k, top-p and seed have no effect at temperature 0 (greedy)\n  try: kiln run --temperature 0.7 ...\n"},
		{"no new tokens", []string{"run", "--model", tinyModel, "--prompt", "x", "--max-new-tokens", "0"}, nil, 2, "kiln: --max-new-tokens is 0, want at least 1\n  try: kiln run --help\n"},
		{"no new tokens by the environment", []string{"run", "--model", tinyModel, "--prompt", "x"}, []string{"KILN_MAX_NEW_TOKENS=-1"}, 2, "kiln: KILN_MAX_NEW_TOKENS is -1, want at least 1\n  try: kiln run --help\n"},
		{"thinking without chat", []string{"run", "--model", tinyModel, "--prompt", "x", "--thinking"}, nil, 2, "kiln: --thinking applies to --chat only\n  try: kiln run --chat FILE.json --thinking\n"},
		{"thinking of the environment without chat", []string{"run", "--model", tinyModel, "--prompt", "x"}, []string{"KILN_THINKING=true"}, 2, "kiln: KILN_THINKING applies to --chat only\n  try: kiln run --chat FILE.json --thinking\n"},
		{"ids that are none", []string{"run", "--model", tinyModel, "--prompt-ids", "1,x"}, nil, 2, "kiln: --prompt-ids: id 1: \"x\" is not a 32-bit integer\n  try: kiln run --prompt-ids 1,2,3\n"},
		{"no ids", []string{"run", "--model", tinyModel}, []string{"KILN_PROMPT_IDS="}, 2, "kiln: KILN_PROMPT_IDS: no ids\n  try: kiln run --prompt-ids 1,2,3\n"},
		{"numerics", []string{"run", "--model", tinyModel, "--prompt", "x", "--numerics", "fast"}, nil, 2, "kiln: --numerics: unknown numerics \"fast\": want production or unrounded\n  try: --numerics production\n"},

		{"logits without ids", []string{"logits", "--model", tinyModel, "--prefill", "1", "--out", "x.safetensors"}, nil, 2, "kiln: logits needs --ids\n  try: kiln logits --help\n"},
		{"logits without prefill", []string{"logits", "--model", tinyModel, "--ids", "1", "--out", "x.safetensors"}, nil, 2, "kiln: logits needs --prefill\n  try: kiln logits --help\n"},
		{"logits without out", []string{"logits", "--model", tinyModel, "--ids", "1", "--prefill", "1"}, nil, 2, "kiln: logits needs --out\n  try: kiln logits --help\n"},
		{"prefill 0", []string{"logits", "--model", tinyModel, "--ids", "1,2", "--prefill", "0", "--out", "x.safetensors"}, nil, 2, "kiln: --prefill is 0, want 1..2 (the number of ids)\n  try: kiln logits --help\n"},
		{"prefill beyond the ids", []string{"logits", "--model", tinyModel, "--ids", "1,2", "--prefill", "3", "--out", "x.safetensors"}, nil, 2, "kiln: --prefill is 3, want 1..2 (the number of ids)\n  try: kiln logits --help\n"},
		{"MTP without the next id", []string{"logits", "--model", tinyModel, "--ids", "1,2", "--prefill", "2", "--mtp", "--out", "x.safetensors"}, nil, 2, "kiln: --mtp needs the id after the last prompt position: give more than 2 ids\n  try: leave --mtp out\n"},
		{"out of another kind", []string{"logits", "--model", tinyModel, "--ids", "1,2", "--prefill", "2", "--out", "x.bin"}, nil, 2, "kiln: --out x.bin: the name must end in .safetensors\n  try: --out logits.safetensors\n"},

		{"tokenize without tokenizer", []string{"tokenize"}, nil, 2, "kiln: tokenize needs exactly one of --model, --tokenizer, got 0\n  try: kiln tokenize --help\n"},
		{"tokenize with two", []string{"tokenize", "--model", "a", "--tokenizer", "b"}, nil, 2, "kiln: tokenize needs exactly one of --model, --tokenizer, got 2\n  try: kiln tokenize --help\n"},
		{"tokenize with a file", []string{"tokenize", "--model", tinyModel, "text"}, nil, 2, "kiln: tokenize takes no arguments, got \"text\"\n  try: kiln tokenize --help\n"},
		{"decode nothing", []string{"tokenize", "--model", tinyModel, "--decode", ""}, nil, 2, "kiln: --decode: no ids\n  try: kiln tokenize --decode 1,2,3\n"},

		{"compare one", []string{"compare", "a"}, nil, 2, "kiln: compare takes 2 arguments (A.safetensors B.safetensors), got 1\n  try: kiln compare --help\n"},
		{"compare three", []string{"compare", "a", "b", "c"}, nil, 2, "kiln: compare takes 2 arguments (A.safetensors B.safetensors), got 3\n  try: kiln compare --help\n"},
		{"negative bound", []string{"compare", "a", "b", "--max-rel", "-1"}, nil, 2, "kiln: --max-rel is -1, want a number of at least 0\n  try: kiln compare --max-rel 1e-3 A B\n"},
		{"no bound", []string{"compare", "a", "b"}, []string{"KILN_MAX_REL=NaN"}, 2, "kiln: KILN_MAX_REL is NaN, want a number of at least 0\n  try: kiln compare --max-rel 1e-3 A B\n"},

		{"dump without entry", []string{"dump", "--model", tinyModel}, nil, 2, "kiln: dump needs --entry\n  try: kiln dump --help\n"},
		{"version with an argument", []string{"version", "x"}, nil, 2, "kiln: version takes no arguments, got \"x\"\n  try: kiln version --help\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := kilnWith(t, tc.environ, "", tc.args...)
			if r.code != tc.code || r.stderr != tc.stderr || r.stdout != "" {
				t.Errorf("exit code %d, standard output %q, standard error\n%swant exit code %d, nothing, and\n%s", r.code, r.stdout, r.stderr, tc.code, tc.stderr)
			}
		})
	}
}

// Files that are not there, or not what they should be: exit code 1 and the
// file's name.
func TestFilesThatFail(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	text := writeFile(t, "ids.txt", "1,2,three")
	big := writeTensors(t, weights.Tensor{Name: "ids", DType: weights.I64, Shape: []int{2}, Data: append(make([]byte, 12), 1, 0, 0, 0)})
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"run: folder", []string{"run", "--model", none, "--prompt", "x"}, "kiln: model folder " + none + ": stat " + filepath.Join(none, "config.json") + ": no such file"},
		{"run: file for a folder", []string{"run", "--model", text, "--prompt", "x"}, "kiln: model folder " + text + ": "},
		{"run: ids file", []string{"run", "--model", tinyModel, "--prompt-ids", "@" + none}, "kiln: --prompt-ids: open " + none},
		{"run: ids in a file", []string{"run", "--model", tinyModel, "--prompt-ids", "@" + text}, "kiln: --prompt-ids: " + text + `: id 2: "three" is not a 32-bit integer`},
		{"run: chat file", []string{"run", "--model", tinyModel, "--chat", none}, "kiln: --chat: open " + none + ": no such file or directory\n  try: --chat F.json, a file with messages: "},
		{"run: chat that is no JSON", []string{"run", "--model", tinyModel, "--chat", text}, "kiln: " + text + ": chat: offset "},
		{"logits: ids file", []string{"logits", "--model", tinyModel, "--ids", none + ".safetensors:ids", "--prefill", "1", "--out", "x.safetensors"}, "kiln: --ids: open checkpoint: stat " + none + ".safetensors"},
		{"logits: ids tensor", []string{"logits", "--model", tinyModel, "--ids", goldenProduction + ":short.idz", "--prefill", "1", "--out", "x.safetensors"}, `no tensor "short.idz"; the nearest name is "short.ids"`},
		{"logits: ids of floats", []string{"logits", "--model", tinyModel, "--ids", goldenProduction + ":one.prefill.logits", "--prefill", "1", "--out", "x.safetensors"}, "dtype F32 is not an integer type"},
		{"logits: ids beyond 32 bits", []string{"logits", "--model", tinyModel, "--ids", big + ":ids", "--prefill", "1", "--out", "x.safetensors"}, "tensor ids: id 1 is 4294967296, not a 32-bit integer"},
		{"logits: out folder", []string{"logits", "--model", tinyModel, "--ids", "1", "--prefill", "1", "--out", filepath.Join(none, "x.safetensors")}, "kiln: --out " + filepath.Join(none, "x.safetensors") + ": stat " + none},
		{"tokenize: folder", []string{"tokenize", "--model", none}, "kiln: open " + filepath.Join(none, "tokenizer.json")},
		{"tokenize: file", []string{"tokenize", "--tokenizer", text}, "kiln: " + text + ": "},
		{"compare: A", []string{"compare", none, goldenProduction}, "kiln: open checkpoint: stat " + none + ": no such file or directory\n  try: kiln compare A B, each a .safetensors file or a model folder\n"},
		{"compare: B", []string{"compare", goldenProduction, none}, "kiln: open checkpoint: stat " + none + ": no such file or directory\n  try: kiln compare A B, "},
		{"compare: no safetensors", []string{"compare", goldenProduction, text}, "kiln: " + text + ": neither a .safetensors file nor a model folder"},
		{"dump: folder", []string{"dump", "--model", none, "--entry", "decode"}, "kiln: model folder " + none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kiln(t, tc.args...).failed(t, exitFailed, tc.want)
		})
	}
}

func TestDevice(t *testing.T) {
	for _, cmd := range [][]string{
		{"run", "--model", tinyModel, "--prompt", "x"},
		{"logits", "--model", tinyModel, "--ids", "1", "--prefill", "1", "--out", "x.safetensors"},
	} {
		kiln(t, append(cmd, "--device", "abacus")...).failed(t, exitRefused, "kiln: --device abacus: ", "\n  try: --device ")
		kilnWith(t, []string{"KILN_DEVICE=abacus"}, "", cmd...).failed(t, exitRefused, "kiln: KILN_DEVICE abacus: ", "\n  try: --device ")
	}
}

func TestVersion(t *testing.T) {
	r := kiln(t, "version").ok(t)
	if !strings.HasPrefix(r.stdout, "kiln "+Version+" go") || strings.Count(r.stdout, "\n") != 1 || r.stderr != "" {
		t.Errorf("standard output %q, standard error %q", r.stdout, r.stderr)
	}
}

func TestOneLine(t *testing.T) {
	joined := errors.Join(errors.New("first"), errors.New("second"), errors.New("third"))
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "plain"},
		{errors.New("a\nb"), `a\nb`},
		{joined, "first (and 2 more)"},
		{fmt.Errorf("pass x: %w", joined), "pass x: first (and 2 more)"},
		{&codedError{2, fmt.Errorf("bind: %w", joined), ""}, "bind: first (and 2 more)"},
		{errors.Join(errors.New("a\nb"), errors.New("c")), `a\nb (and 1 more)`},
		{fmt.Errorf("%w; %w", errors.New("a"), errors.New("b")), "a; b"},
		{fmt.Errorf("step: %w", context.Canceled), "interrupted"},
	} {
		if got := oneLine(tc.err); got != tc.want {
			t.Errorf("oneLine(%q) = %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	if err := refuse(nil, "x"); err != nil {
		t.Errorf("refuse(nil) = %v", err)
	}
	base := errors.New("no")
	var c *codedError
	if err := refuse(base, "x"); !errors.As(err, &c) || c.code != exitRefused || !errors.Is(err, base) {
		t.Errorf("refuse gave %v with code %d", err, c.code)
	}
}

// TestSpellings: help COMMAND is COMMAND --help, --version is version.
func TestSpellings(t *testing.T) {
	for _, c := range [][2][]string{
		{{"help"}, {"--help"}},
		{{"help", "run"}, {"run", "--help"}},
		{{"--version"}, {"version"}},
	} {
		if got, want := kiln(t, c[0]...).ok(t), kiln(t, c[1]...).ok(t); got != want || got.stdout == "" {
			t.Errorf("%v prints %q, %v prints %q", c[0], got.stdout, c[1], want.stdout)
		}
	}
}
