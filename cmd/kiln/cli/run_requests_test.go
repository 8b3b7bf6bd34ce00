package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// threeRequests have prompts of all kinds that the tiny model's tokenizer encodes.
const threeRequests = `{"id": "first", "prompt": "package main", "max_new_tokens": 6}
{"prompt_ids": [0, 303, 222], "max_new_tokens": 5, "ignore_eos": true, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 7}
{"id": "", "prompt": "func (b *Buffer) ", "max_new_tokens": 3}
`

// resultsOf reads a file of results.
func resultsOf(t *testing.T, path string) []requestResult {
	t.Helper()
	var list []requestResult
	for line := range bytes.Lines(readFile(t, path)) {
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var r requestResult
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// requestsCommand is a command line over a text of requests, with the file of results.
func requestsCommand(t *testing.T, text string, args ...string) (out string, command []string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "out.jsonl")
	return out, append([]string{"run", "--model", tinyModel, "--requests", writeFile(t, "requests.jsonl", text), "--out", out}, args...)
}

// What each request gives alone, by run without --requests, in their order.
func checkThree(t *testing.T, what, path string, alone []runResult) {
	t.Helper()
	list := resultsOf(t, path)
	if len(list) != len(alone) {
		t.Fatalf("%s: %d results, want %d", what, len(list), len(alone))
	}
	for i, r := range list {
		if !slices.Equal(r.IDs, alone[i].IDs) || r.Text != alone[i].Text || r.PromptTokens != len(alone[i].PromptIDs) || r.Finish != "length" || r.Error != "" {
			t.Errorf("%s: result %d is %+v, alone it is %+v", what, i, r, alone[i])
		}
	}
	if a, b, c := list[0].ID, list[1].ID, list[2].ID; a == nil || *a != "first" || b != nil || c == nil || *c != "" {
		t.Errorf("%s: ids %v, %v and %v", what, a, b, c)
	}
}

func threeAlone(t *testing.T, args ...string) []runResult {
	t.Helper()
	var list []runResult
	for _, one := range [][]string{
		{"--prompt", "package main", "--max-new-tokens", "6"},
		{"--prompt-ids", "0,303,222", "--max-new-tokens", "5", "--ignore-eos", "--temperature", "0.8", "--top-k", "40", "--top-p", "0.9", "--seed", "7"},
		{"--prompt", "func (b *Buffer) ", "--max-new-tokens", "3"},
	} {
		list = append(list, generateJSON(t, append(one, args...)...))
	}
	return list
}

// Requests of a file give what each gives alone, in their order, and the same bytes
// each time, however many run at a time.
func TestRunRequests(t *testing.T) {
	alone := threeAlone(t)
	var before []byte
	for _, args := range [][]string{nil, nil, {"--max-batch", "2", "--kv-tokens", "128"}} {
		out, command := requestsCommand(t, threeRequests, args...)
		r := kiln(t, command...).ok(t)
		if r.stdout != "" || !strings.Contains(r.stderr, " | 3 requests, at most ") {
			t.Errorf("standard output %q and standard error %q", r.stdout, r.stderr)
		}
		checkThree(t, fmt.Sprint(args), out, alone)
		data := readFile(t, out)
		if before != nil && !bytes.Equal(before, data) {
			t.Errorf("%v: results\n%s, before\n%s", args, data, before)
		}
		before = data
	}
	out, command := requestsCommand(t, threeRequests, "--stats")
	r := kiln(t, command...).ok(t)
	if !strings.Contains(r.stderr, "\nprefill: 3 steps, ") || !strings.Contains(r.stderr, "\ndecode: ") || !strings.Contains(r.stderr, ", 11 tokens, ") {
		t.Errorf("standard error %q", r.stderr)
	}
	for i, x := range resultsOf(t, out) {
		if x.FirstS == nil || x.DoneS == nil || *x.FirstS <= 0 || *x.DoneS < *x.FirstS {
			t.Errorf("result %d has no times, or strange ones: %+v", i, x)
		}
	}
}

// With drafts requests give the same bytes; --json and --stats say what the drafts were
// worth, in all and of each request.
func TestRunRequestsSpeculate(t *testing.T) {
	plain, command := requestsCommand(t, threeRequests)
	kiln(t, command...).ok(t)
	for _, args := range [][]string{{"--speculate", "1"}, {"--speculate", "3", "--max-batch", "2"}} {
		out, command := requestsCommand(t, threeRequests, args...)
		kiln(t, command...).ok(t)
		if got, want := readFile(t, out), readFile(t, plain); !bytes.Equal(got, want) {
			t.Errorf("%v: results\n%s, without drafts\n%s", args, got, want)
		}
	}
	out, command := requestsCommand(t, threeRequests, "--speculate", "2", "--stats", "--json")
	var all requestsResult
	kiln(t, command...).decode(t, &all)
	if all.Requests != 3 || all.Failed != 0 || all.AtATime != 3 || all.NewTokens != 14 || all.MainSteps < 2 || len(all.Acceptance) != 2 || all.TokensPerS <= 0 || all.Device != "ref" {
		t.Errorf("in all %+v", all)
	}
	if st := all.Stats; st == nil || st.Speculate == nil || st.Speculate.Steps != all.MainSteps || st.Speculate.Tokens != 11 || st.Decode.Steps != 0 {
		t.Errorf("statistics %+v", st)
	}
	most := 0
	for i, r := range resultsOf(t, out) {
		if r.MainSteps == nil || *r.MainSteps < 1 || *r.MainSteps > len(r.IDs)-1 || len(r.Acceptance) != 2 {
			t.Errorf("result %d: %+v", i, r)
			continue
		}
		most = max(most, *r.MainSteps)
	}
	if most > all.MainSteps {
		t.Errorf("a request took part in %d of %d steps", most, all.MainSteps)
	}
	_, command = requestsCommand(t, threeRequests, "--stats")
	r := kiln(t, command...).ok(t)
	if !strings.Contains(r.stderr, "\nmain model: 5 steps behind the prompts\n") {
		t.Errorf("standard error %q", r.stderr)
	}
	_, command = requestsCommand(t, threeRequests, "--speculate", "1", "--stats")
	if r := kiln(t, command...).ok(t); !strings.Contains(r.stderr, " behind the prompts; acceptance by draft: ") {
		t.Errorf("standard error %q", r.stderr)
	}
	_, command = requestsCommand(t, `{"prompt": "x", "max_new_tokens": 4094}`, "--speculate", "3")
	kiln(t, command...).failed(t, exitFailed, "2 prompt tokens, 4094 new ones and 3 drafts need 4099 positions, max_position_embeddings is 4096")
}

// The same on the host, over plans that are compiled for the requests and over a bundle,
// which bounds what may run.
func TestRunRequestsCompiled(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	on := []string{"--device", "host", "--startup-check=false"}
	alone := threeAlone(t)
	out, command := requestsCommand(t, threeRequests, on...)
	kiln(t, command...).ok(t)
	checkThree(t, "compiled", out, alone)
	out, command = requestsCommand(t, threeRequests, append(on, "--speculate", "2")...)
	kiln(t, command...).ok(t)
	checkThree(t, "compiled, with drafts", out, alone)
	out, command = requestsCommand(t, threeRequests, append(on, "--speculate", "1", "--set", "fuse-hc.max_tokens=5")...)
	if r := kiln(t, command...).ok(t); !strings.Contains(r.stderr, "a step has at most 2 of 3 requests: the next larger one has more than 5 rows") {
		t.Errorf("standard error %q", r.stderr)
	}
	checkThree(t, "in two steps", out, alone)
	_, command = requestsCommand(t, threeRequests, append(on, "--speculate", "3", "--set", "fuse-hc.max_tokens=3")...)
	kiln(t, command...).failed(t, exitRefused, "a step with 3 drafts has 4 rows of a request, beyond 3, where its order class ends", "--speculate 2")

	b := filepath.Join(dir, "tiny.kiln")
	kiln(t, "compile", "--model", tinyModel, "--batch", "1,2", "--prefill", "16", "--max-seq", "200", "--speculate", "1", "--head", "sample", "--no-fallback", "-o", b).ok(t)
	on = append(on, "--bundle", b)
	out, command = requestsCommand(t, threeRequests, on...)
	kiln(t, command...).ok(t)
	checkThree(t, "bundle", out, alone)
	out, command = requestsCommand(t, threeRequests, append(on, "--max-batch", "1", "--kv-tokens", "128")...)
	kiln(t, command...).ok(t)
	checkThree(t, "a part of the bundle", out, alone)
	out, command = requestsCommand(t, threeRequests, append(on, "--speculate", "1")...)
	kiln(t, command...).ok(t)
	checkThree(t, "bundle, with drafts", out, alone)
	_, command = requestsCommand(t, threeRequests, append(on, "--speculate", "2")...)
	kiln(t, command...).failed(t, exitRefused, "--speculate 2: "+b+" was compiled with --speculate 1", "--speculate 1, or kiln compile")

	_, command = requestsCommand(t, threeRequests, append(on, "--max-batch", "3")...)
	kiln(t, command...).failed(t, exitRefused, "--max-batch 3: "+b+" was compiled for 2 requests at a time", "--max-batch 2, or kiln compile --batch")
	_, command = requestsCommand(t, threeRequests, append(on, "--kv-tokens", "1000")...)
	kiln(t, command...).failed(t, exitRefused, "--kv-tokens 1000: "+b+" was compiled for 512 positions in all", "--kv-tokens 512\n")
	_, command = requestsCommand(t, threeRequests, append(on, "--kv-tokens", "127")...)
	kiln(t, command...).failed(t, exitRefused, "--kv-tokens 127: a page has 128 positions", "--kv-tokens 128")
	out, command = requestsCommand(t, `{"prompt": "x", "max_new_tokens": 199}`, on...)
	kiln(t, command...).failed(t, exitFailed, "was compiled for 200 positions (--max-seq), the request needs 201")
	if r := resultsOf(t, out); len(r) != 1 || r[0].Finish != "error" || !strings.Contains(r[0].Error, "the request needs 201") {
		t.Errorf("results %+v", r)
	}
}

// What is wrong with one request is its result, and the command's exit code; the others
// run. Endings are told apart.
func TestRunRequestsFail(t *testing.T) {
	golden := list(idsOf(t, goldenProduction, "short.greedy.ids")[:37])
	text := `{"id": "too long", "prompt": "x", "max_new_tokens": 5000}
{"id": "ends", "prompt_ids": [` + golden + `]}
{"id": "negative", "prompt": "x", "temperature": -1}
{"id": "vocabulary", "prompt_ids": [1, 2048]}
{"id": "nothing", "prompt": "x", "max_new_tokens": 0}
{"id": "chat", "messages": [{"role": "user", "content": "Hi"}], "thinking": true}
{"id": "no tokens", "prompt_ids": []}
{"id": "goes on", "prompt_ids": [` + golden + `], "ignore_eos": true}
{"id": "pages", "prompt": "x", "max_new_tokens": 200}`
	out, command := requestsCommand(t, text, "--max-new-tokens", "2", "--kv-tokens", "128")
	kiln(t, command...).failed(t, exitFailed, "7 of 9 requests ended with an error, the first on line 1: the prompt has 2 tokens and max_position_embeddings is 4096", "\n  try: the results in "+out)
	type short struct{ ID, Finish, Error string }
	var got []short
	for _, r := range resultsOf(t, out) {
		got = append(got, short{*r.ID, string(r.Finish), r.Error})
		if n := len(r.IDs); n != map[string]int{"ends": 1, "goes on": 2}[*r.ID] {
			t.Errorf("%s has %d new tokens", *r.ID, n)
		}
	}
	want := []short{
		{"too long", "error", "the prompt has 2 tokens and max_position_embeddings is 4096, so at most 4094 new tokens fit, not 5000"},
		{"ends", "eos", ""},
		{"negative", "error", "temperature is -1, want a finite number of at least 0"},
		{"vocabulary", "error", "prompt token 1: id 2048 is out of vocabulary (2048)"},
		{"nothing", "error", "max new tokens is 0, want at least 1"},
		{"chat", "error", "the tokenizer lacks the special token <｜User｜>"},
		{"no tokens", "error", "the prompt has no tokens"},
		{"goes on", "length", ""},
		{"pages", "error", "2 prompt tokens, 200 new ones and 0 drafts need 202 positions, a session has 128 (1 pages of 128)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// None that runs.
	out, command = requestsCommand(t, `{"prompt": "x", "max_new_tokens": 5000}`)
	kiln(t, command...).failed(t, exitFailed, "1 of 1 request ended with an error, the first on line 1")
	if r := resultsOf(t, out); len(r) != 1 || r[0].Finish != "error" {
		t.Errorf("results %+v", r)
	}
}

// Results that cannot be written are nowhere: nobody is sent there.
func TestRunRequestsUnwritten(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	file := writeFile(t, "requests.jsonl", `{"prompt_ids": [5], "max_new_tokens": 1}`)
	kiln(t, "run", "--model", tinyModel, "--requests", file, "--out", full).failed(t, exitFailed, "kiln: --out: write /dev/full: no space left on device\n  try: --out FILE, where there is room\n")
}

// An error of the device ends all requests that are left with it, those that wait too, and
// the command; what has ended before stays.
func TestRunRequestsDeviceError(t *testing.T) {
	b := tinyBundle(t)
	text := `{"prompt_ids": [5], "max_new_tokens": 1, "ignore_eos": true}
{"prompt_ids": [5, 6], "max_new_tokens": 9, "ignore_eos": true}
{"prompt_ids": [5, 6, 7], "max_new_tokens": 9, "ignore_eos": true}
{"prompt_ids": [8], "max_new_tokens": 2}`
	for _, fails := range []int{1, 4} {
		_, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Fails: fails})
		out, command := requestsCommand(t, text, "--bundle", b, "--max-batch", "2", "--device", "cuda:0", "--cuda-lib", cuda, "--startup-check=false", "--json")
		r := kilnWith(t, chosen, "", command...)
		r.failed(t, exitFailed, "cuGraphLaunch: error 400 ", "\n  try: kiln doctor; what became of each request is in "+out)
		if r.stdout != "" {
			t.Errorf("standard output %q", r.stdout)
		}
		list := resultsOf(t, out)
		if len(list) != 4 || list[0].Finish != "length" || len(list[0].IDs) != 1 || list[0].Error != "" {
			t.Fatalf("results %+v", list)
		}
		for i, r := range list[1:] {
			if r.Finish != "error" || !strings.Contains(r.Error, "cuGraphLaunch: error 400 ") || len(r.IDs) > 8 {
				t.Errorf("%d replays go well: result %d is %+v", fails, i+1, r)
			}
		}
		if had := len(list[1].IDs); (had > 0) != (fails > 1) {
			t.Errorf("%d replays go well: request 1 had %d tokens", fails, had)
		}
	}
}

// A line that is no request is an error before anything runs, with line and field.
func TestRunRequestsMalformed(t *testing.T) {
	const fine = `{"id": "a", "prompt": "x"}` + "\n"
	for _, tc := range []struct{ text, want string }{
		{"", "line 1: no request"},
		{fine + "\n" + fine, "line 2: no request"},
		{fine + "{", "line 2: byte 1: unexpected end of JSON input"},
		{fine + "[1]", "line 2: want a JSON object"},
		{fine + `{"prompt": "x"} {}`, "line 2: byte 17: invalid character '{' after top-level value"},
		{`{"prompt": "x", "max_tokens": 3}`, `line 1: field "max_tokens" is unknown`},
		{`{"Prompt": "x"}`, `line 1: field "Prompt" is unknown`},
		{`{"prompt": "x", "prompt": "y"}`, `line 1: field "prompt" is given twice`},
		{`{"prompt": "x", "prompt_ids": [1]}`, "line 1: want exactly one of prompt, prompt_ids and messages, got 2"},
		{`{}`, "line 1: want exactly one of prompt, prompt_ids and messages, got 0"},
		{`{"prompt": null}`, `line 1: field "prompt": null is no value`},
		{`{"prompt": 1}`, `line 1: field "prompt": it is a number, want string`},
		{`{"prompt_ids": "1"}`, `line 1: field "prompt_ids": it is a string, want array`},
		{`{"prompt_ids": [1, null]}`, `line 1: field "prompt_ids": id 1 is null`},
		{`{"prompt_ids": [4294967296]}`, `line 1: field "prompt_ids": it is a number 4294967296, want int32`},
		{`{"prompt": "x", "max_new_tokens": 1.5}`, `line 1: field "max_new_tokens": it is a number 1.5, want int`},
		{`{"prompt": "x", "seed": -1}`, `line 1: field "seed": it is a number -1, want uint64`},
		{`{"prompt": "x", "thinking": true}`, `line 1: field "thinking" applies to messages only`},
		{`{"prompt": "\ud800"}`, `line 1: byte 12: unpaired surrogate escape \ud800`},
		{fine + fine, `line 2: id: "a" is that of line 1, too`},
	} {
		out, command := requestsCommand(t, tc.text)
		kiln(t, command...).failed(t, exitRefused, "requests.jsonl: "+tc.want+"\n  try: a request is ")
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%q: results were written", tc.text)
		}
	}
}

func TestRunRequestsUsage(t *testing.T) {
	file := writeFile(t, "r.jsonl", threeRequests)
	both := []string{"--requests", file, "--out", filepath.Join(t.TempDir(), "o.jsonl")}
	for _, tc := range []struct {
		args []string
		env  []string
		code int
		want string
	}{
		{[]string{"--requests", file}, nil, exitUsage, "--requests needs --out"},
		{[]string{"--requests", file, "--out", file}, nil, exitUsage, "--out is the file of --requests"},
		{[]string{"--requests", file + ".none", "--out", "o"}, nil, exitFailed, "--requests: stat " + file + ".none: no such file"},
		{[]string{"--requests", filepath.Dir(file), "--out", "o"}, nil, exitFailed, "--requests: " + filepath.Dir(file) + " is a folder\n  try: --requests F.jsonl, a file with a request a line: docs/serving.md\n"},
		{[]string{"--requests", file, "--out", filepath.Join(file, "o.jsonl")}, nil, exitFailed, "--out: open " + filepath.Join(file, "o.jsonl") + ": not a directory\n  try: --out F.jsonl in a folder that can be written"},
		{[]string{"--requests", file, "--out", filepath.Dir(file)}, nil, exitFailed, "--out: open " + filepath.Dir(file) + ": is a directory"},
		{append(both, "--prompt", "x"), nil, exitUsage, "exactly one of --prompt, --prompt-ids, --chat, --requests, got 2"},
		{append(both, "--temperature", "1"), nil, exitUsage, "--temperature does not apply to --requests"},
		{both, []string{"KILN_TOP_K=3"}, exitUsage, "KILN_TOP_K: top-k"},
		{append(both, "--speculate", "-1"), nil, exitUsage, "--speculate is -1, want at least 0"},
		{append(both, "--speculate", "17"), nil, exitRefused, "--speculate 17: at most 16 draft tokens"},
		{append(both, "--speculate", "2", "--draft-tree", "2"), nil, exitRefused, "--draft-tree 2: tree drafts are not supported"},
		{append(both, "--dry-run"), nil, exitUsage, "--dry-run does not apply to --requests"},
		{append(both, "--max-batch", "-1"), nil, exitUsage, "--max-batch is -1, want at least 0"},
		{append(both, "--kv-tokens", "-1"), nil, exitUsage, "--kv-tokens is -1, want at least 0"},
		{[]string{"--prompt", "x", "--out", "o"}, nil, exitUsage, "--out applies to --requests only"},
		{[]string{"--prompt", "x", "--kv-tokens", "8"}, nil, exitUsage, "--kv-tokens applies to --requests only"},
	} {
		r := kilnWith(t, tc.env, "", append([]string{"run", "--model", tinyModel}, tc.args...)...)
		r.failed(t, tc.code, tc.want)
		if strings.Contains(r.stderr, "device:") {
			t.Errorf("%v: a device was chosen before: %q", tc.args, r.stderr)
		}
	}
	// What is wrong later leaves the results that there are, and no empty file.
	kept, dir := writeFile(t, "kept.jsonl", "before"), t.TempDir()
	for _, out := range []string{kept, filepath.Join(dir, "new.jsonl")} {
		kiln(t, "run", "--model", tinyModel, "--requests", writeFile(t, "bad.jsonl", "{}"), "--out", out).failed(t, exitRefused, "line 1: want exactly one of")
	}
	if got := string(readFile(t, kept)); got != "before" {
		t.Errorf("%s holds %q", kept, got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// countdown is a context that ends after its error was asked for so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// An interrupt keeps what is finished, and the rest is there as cancelled, with the
// tokens that it had.
func TestRunRequestsInterrupted(t *testing.T) {
	text := `{"prompt": "x", "max_new_tokens": 2}
{"prompt": "func (b *Buffer) ", "max_new_tokens": 100, "ignore_eos": true}
{"prompt": "y", "max_new_tokens": 2}`
	out, command := requestsCommand(t, text, "--max-batch", "2", "--json", "--log-format", "text")
	var stdout, stderr bytes.Buffer
	code := run(&env{stdout: &stdout, stderr: &stderr, getenv: []string{onRef}, ctx: &countdown{t.Context(), 9}, started: time.Now()}, command)
	if code != exitFailed || !strings.HasSuffix(stderr.String(), "kiln: interrupted\n") {
		t.Errorf("exit code %d, standard error %q", code, stderr.String())
	}
	list := resultsOf(t, out)
	if len(list) != 3 || list[0].Finish != "length" || list[1].Finish != "cancelled" || len(list[1].IDs) == 0 || len(list[1].IDs) > 9 || list[1].Error != "" {
		t.Errorf("results %+v", list)
	}
	// --json has the sum of what was done.
	var sum requestsResult
	result{exitOK, stdout.String(), ""}.decode(t, &sum)
	if tokens := len(list[0].IDs) + len(list[1].IDs) + len(list[2].IDs); sum.Requests != 3 || sum.Failed != 0 || sum.Cancelled < 1 || sum.NewTokens != tokens || sum.MainSteps < 1 {
		t.Errorf("the sum is %+v, results are %+v", sum, list)
	}
	// Before the first step all are.
	out, command = requestsCommand(t, text)
	stdout.Reset()
	code = run(&env{stdout: &stdout, stderr: &stderr, getenv: []string{onRef}, ctx: cancelled(t), started: time.Now()}, command)
	if code != exitFailed || stdout.Len() > 0 {
		t.Errorf("exit code %d, standard output %q", code, stdout.String())
	}
	for i, r := range resultsOf(t, out) {
		if r.Finish != "cancelled" || len(r.IDs) != 0 {
			t.Errorf("result %d is %+v", i, r)
		}
	}
}
