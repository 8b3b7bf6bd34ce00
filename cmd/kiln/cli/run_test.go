package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/tokenizer"
)

// bos and eos are the tiny model's.
const (
	bos = 0
	eos = 1
)

func tinyTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(tinyModel + "/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// decoded is the text of ids.
func decoded(t *testing.T, tok *tokenizer.Tokenizer, ids []int32) string {
	t.Helper()
	text, err := tok.Decode(ids)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Greedy generation agrees with the reference up to its first close decision
// (docs/dsv4.md section 9: a margin below 0.5 may go either way).
func TestRunGolden(t *testing.T) {
	tok := tinyTokenizer(t)
	for _, tc := range []struct {
		name, numerics, golden string
		prompt, sure           int // prompt tokens, new tokens before the first close decision
	}{
		{"short", "production", goldenProduction, 37, 2},
		{"edge128", "production", goldenProduction, 128, 6},
		{"one", "unrounded", goldenUnrounded, 1, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			greedy := idsOf(t, tc.golden, tc.name+".greedy.ids")
			prompt, want := greedy[:tc.prompt], greedy[tc.prompt:]
			margins := floats(t, tc.golden, tc.name+".greedy.margins")
			sure := 0
			for sure < len(margins) && margins[sure] >= 0.5 {
				sure++
			}
			if len(margins) != len(want) || sure != tc.sure {
				t.Fatalf("%d margins for %d golden tokens, the first %d of them sure", len(margins), len(want), sure)
			}
			r := generateJSON(t, "--prompt-ids", list(prompt), "--ignore-eos", "--max-new-tokens", fmt.Sprint(len(want)), "--numerics", tc.numerics)
			if !slices.Equal(r.PromptIDs, prompt) {
				t.Errorf("prompt ids %v, want %v", r.PromptIDs, prompt)
			}
			if len(r.IDs) != len(want) || !slices.Equal(r.IDs[:sure], want[:sure]) {
				t.Errorf("new tokens\n%v, want the first %d of\n%v", r.IDs, sure, want)
			}
			if text := decoded(t, tok, r.IDs); r.Text != text {
				t.Errorf("text %q, want that of all ids, %q", r.Text, text)
			}
			if r.Device != "ref" || r.PrefillS <= 0 || r.DecodeS <= 0 || r.TokensPerS <= 0 {
				t.Errorf("device %q and times %v, %v, %v", r.Device, r.PrefillS, r.DecodeS, r.TokensPerS)
			}
			if rate := float64(len(r.IDs)-1) / r.DecodeS; rate/r.TokensPerS > 1.001 || rate/r.TokensPerS < 0.999 {
				t.Errorf("%v tokens/s, want %d steps in %v s", r.TokensPerS, len(r.IDs)-1, r.DecodeS)
			}
		})
	}
}

// The first new token of the golden prompt ends the sentence: it is kept in the
// ids and left out of the text.
func TestRunStops(t *testing.T) {
	prompt := list(idsOf(t, goldenProduction, "short.greedy.ids")[:37])
	r := generateJSON(t, "--prompt-ids", prompt)
	if !slices.Equal(r.IDs, []int32{eos}) || r.Text != "" || r.DecodeS != 0 && r.DecodeS > r.PrefillS {
		t.Errorf("ids %v and text %q, want only the end and no text", r.IDs, r.Text)
	}
	plain := kiln(t, "run", "--model", tinyModel, "--prompt-ids", prompt).ok(t)
	if plain.stdout != "" || !strings.Contains(plain.stderr, "| 37 prompt + 1 new tokens |") {
		t.Errorf("standard output %q and standard error %q", plain.stdout, plain.stderr)
	}
}

// summaryForm is the last line of standard error.
var summaryForm = regexp.MustCompile(`^ref \(reference evaluator, \d+ cores\) \| ([^|]+) \| (\w+) numerics \| (\d+) prompt \+ (\d+) new tokens \| \d+\.\d tokens/s \| first token after \d+\.\d\d s \| peak memory (\d+ MB|unknown)\n$`)

// Text and JSON say the same; equal command lines give equal results.
func TestRunText(t *testing.T) {
	tok := tinyTokenizer(t)
	args := []string{"--prompt", "func (b *Buffer) ", "--max-new-tokens", "12"}
	r := generateJSON(t, args...)
	if want := append([]int32{bos}, tok.Encode("func (b *Buffer) ")...); !slices.Equal(r.PromptIDs, want) {
		t.Errorf("prompt ids %v, want %v", r.PromptIDs, want)
	}
	if text := decoded(t, tok, r.IDs); len(r.IDs) != 12 || r.Text != text || text == "" {
		t.Errorf("ids %v and text %q, want 12 ids and their text %q", r.IDs, r.Text, text)
	}
	plain := kilnWith(t, []string{"KILN_MODEL=" + tinyModel, "KILN_MAX_NEW_TOKENS=5", "KILN_PROMPT_IDS=1"}, "", append([]string{"run"}, args...)...).ok(t)
	if want := strings.TrimSuffix(r.Text, "\n") + "\n"; plain.stdout != want {
		t.Errorf("standard output %q, want %q", plain.stdout, want)
	}
	m := summaryForm.FindStringSubmatch(withoutNotes(plain.stderr))
	if m == nil {
		t.Fatalf("standard error is %q, want one line of summary", plain.stderr)
	}
	if before := noteForm.FindAllString(plain.stderr, -1); !strings.HasPrefix(before[0], "device: ref (reference evaluator, ") ||
		!strings.HasSuffix(before[0], "): given by KILN_DEVICE\n") || !slices.Contains(before, "prompt: func (b *Buffer) \n") {
		t.Errorf("before the summary: %q, want the device and the prompt", before)
	}
	if diff := cmp.Diff([]string{"greedy", "production", fmt.Sprint(len(r.PromptIDs)), "12"}, m[1:5]); diff != "" {
		t.Errorf("summary: -want +got:\n%s", diff)
	}
}

// timeless is a result without its times.
func timeless(r runResult) runResult {
	r.PrefillS, r.DecodeS, r.TokensPerS = 0, 0, 0
	return r
}

// Sampling far from the model's opinion draws all kinds of tokens; the text is
// that of the ids, streamed or not.
func TestRunSampling(t *testing.T) {
	tok := tinyTokenizer(t)
	args := []string{"--prompt-ids", "0", "--temperature", "30", "--seed", "7", "--ignore-eos", "--max-new-tokens", "24"}
	a := generateJSON(t, args...)
	if text := decoded(t, tok, a.IDs); a.Text != text {
		t.Errorf("text %q, want %q", a.Text, text)
	}
	b := kiln(t, append([]string{"run", "--model", tinyModel}, args...)...).ok(t)
	if want := strings.TrimSuffix(a.Text, "\n") + "\n"; b.stdout != want {
		t.Errorf("the second run streams %q, want %q", b.stdout, want)
	}
	if m := summaryForm.FindStringSubmatch(withoutNotes(b.stderr)); m == nil || m[1] != "temperature 30, seed 7" {
		t.Errorf("standard error is %q", b.stderr)
	}
	args[5], args[8] = "8", "10"
	if c := generateJSON(t, args...); slices.Equal(c.IDs, a.IDs[:10]) {
		t.Errorf("seeds 7 and 8 draw the same tokens %v", c.IDs)
	}
	// The one largest logit is greedy at every temperature and seed.
	greedy := generateJSON(t, "--prompt-ids", "0", "--max-new-tokens", "4")
	top := generateJSON(t, "--prompt-ids", "0", "--max-new-tokens", "4", "--temperature", "30", "--seed", "7", "--top-k", "1", "--top-p", "0.9")
	if diff := cmp.Diff(timeless(greedy), timeless(top)); diff != "" {
		t.Errorf("greedy and top-k 1: -greedy +top-k:\n%s", diff)
	}
}

// chatFolder is the tiny model with a tokenizer that has the chat's tokens.
func chatFolder(t *testing.T) string {
	return modelFolder(t, map[string][]byte{"tokenizer.json": readFile(t, chatTokenizer)})
}

func TestRunChat(t *testing.T) {
	var golden []struct {
		Name     string          `json:"name"`
		Messages json.RawMessage `json:"messages"`
		Mode     string          `json:"thinking_mode"`
		Drop     *bool           `json:"drop_thinking"`
		Prompt   string          `json:"prompt"`
	}
	if err := json.Unmarshal(readFile(t, goldenChats), &golden); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(chatTokenizer)
	if err != nil {
		t.Fatal(err)
	}
	write := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, "chat.json", string(text))
	}
	if len(golden) == 0 {
		t.Fatal("no golden chats")
	}
	for _, tc := range golden {
		object := map[string]any{"messages": tc.Messages, "thinking_mode": tc.Mode}
		if tc.Drop != nil {
			object["drop_thinking"] = *tc.Drop
		}
		ways := map[string][]string{"object": {"--chat", write(object)}}
		if tc.Drop == nil { // an array has no place for it
			ways["array"] = []string{"--chat", write(tc.Messages), fmt.Sprintf("--thinking=%v", tc.Mode == "thinking")}
		}
		for way, args := range ways {
			ids, err := promptOf(args...)
			if err != nil {
				t.Errorf("%s as %s: %v", tc.Name, way, err)
				continue
			}
			if want := tok.Encode(tc.Prompt); !slices.Equal(ids, want) {
				t.Errorf("%s as %s: ids %v, want %v", tc.Name, way, ids, want)
			}
		}
	}

	dir := chatFolder(t)
	chat := write([]any{map[string]string{"role": "user", "content": "Hi"}})
	var r runResult
	kiln(t, "run", "--model", dir, "--chat", chat, "--thinking", "--max-new-tokens", "1", "--json").decode(t, &r)
	if want := tok.Encode("<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>"); !slices.Equal(r.PromptIDs, want) || len(r.IDs) != 1 {
		t.Errorf("prompt ids %v, want %v; new ids %v", r.PromptIDs, want, r.IDs)
	}
}

// promptOf is what readPrompt makes of a command line of run, for the chat
// tokenizer.
func promptOf(args ...string) ([]int32, error) {
	tok, err := tokenizer.Load(chatTokenizer)
	if err != nil {
		return nil, err
	}
	f, err := parsed("run", args...)
	if err != nil {
		return nil, err
	}
	return promptChat(f, tok, f.text("chat"))
}

func TestRunChatRefused(t *testing.T) {
	dir := chatFolder(t)
	const user = `{"role": "user", "content": "Hi"}`
	for _, tc := range []struct {
		name    string
		model   string
		chat    string
		args    []string
		environ []string
		code    int
		part    string
	}{
		{"tokenizer without the tokens", tinyModel, `[` + user + `]`, nil, nil, 3, "--chat: the tokenizer lacks the special token <｜User｜>\n  try: "},
		{"thinking against the file", dir, `{"messages": [` + user + `], "thinking_mode": "chat"}`, []string{"--thinking"}, nil, 3, `thinking_mode is "chat" and --thinking is true` + "\n  try: leave --thinking out\n"},
		{"no thinking against the file", dir, `{"messages": [` + user + `], "thinking_mode": "thinking"}`, []string{"--thinking=false"}, nil, 3, `thinking_mode is "thinking" and --thinking is false`},
		{"thinking of the environment against the file", dir, `{"messages": [` + user + `], "thinking_mode": "chat"}`, nil, []string{"KILN_THINKING=1"}, 3, `thinking_mode is "chat" and KILN_THINKING is true` + "\n  try: leave KILN_THINKING out\n"},
		{"no messages", dir, `[]`, nil, nil, 3, "no user message"},
		{"tools", dir, `{"messages": [` + user + `], "tools": []}`, nil, nil, 3, "tools"},
		{"a role", dir, `[{"role": "tool", "content": "x"}]`, nil, nil, 3, "messages[0].role"},
		{"no JSON", dir, `[`, nil, nil, 1, "offset 1"},
		{"prompt beside it", dir, `[` + user + `]`, []string{"--prompt", "x"}, nil, 2, "got 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"run", "--model", tc.model, "--chat", writeFile(t, "c.json", tc.chat)}, tc.args...)
			kilnWith(t, tc.environ, "", args...).failed(t, tc.code, tc.part)
		})
	}
}

// A token that the tokenizer does not have ends the run where it is drawn.
func TestRunTokenWithoutText(t *testing.T) {
	dir := chatFolder(t) // 1603 tokens, the model has 2048
	args := []string{"run", "--model", dir, "--prompt-ids", "0", "--temperature", "1000", "--seed", "1", "--ignore-eos", "--max-new-tokens", "4000"}
	r := kiln(t, append(args, "--json")...)
	r.failed(t, exitFailed, "is not in the vocabulary of 1603 tokens")
	if m := regexp.MustCompile(`^kiln: position \d{1,2}: token id (\d+) `).FindStringSubmatch(r.stderr); m == nil || m[1] < "1603" {
		t.Errorf("standard error is %q, want an early position and the id", r.stderr)
	}
}

// Without add_bos_token a prompt is only its text, and an empty one nothing.
func TestPromptText(t *testing.T) {
	text := strings.Replace(string(readFile(t, tinyModel+"/tokenizer_config.json")), `"add_bos_token": true`, `"add_bos_token": false`, 1)
	bare := filepath.Dir(writeFile(t, "tokenizer_config.json", text))
	tok := tinyTokenizer(t)
	for _, tc := range []struct {
		dir, prompt string
		want        []int32
	}{
		{bare, "a", []int32{66}},
		{tinyModel, "a", []int32{bos, 66}},
		{tinyModel, "", []int32{bos}},
		{tinyModel, "<｜begin▁of▁sentence｜>a", []int32{bos, bos, 66}}, // as written, with the one that is added
	} {
		got, err := promptText(tc.dir, tok, tc.prompt)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("prompt %q: ids %v and error %v, want %v", tc.prompt, got, err, tc.want)
		}
	}
	_, err := promptText(bare, tok, "")
	var c *codedError
	if !errors.As(err, &c) || c.code != exitUsage || c.Error() != "--prompt is empty" {
		t.Errorf("an empty prompt without a begin token: %v", err)
	}
}

// writerFunc makes a writer of a function.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRunInterrupted(t *testing.T) {
	args := []string{"run", "--model", tinyModel, "--prompt", "package main", "--max-new-tokens", "2000", "--ignore-eos"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	interrupt := writerFunc(func(p []byte) (int, error) {
		cancel()
		return stdout.Write(p)
	})
	code := run(&env{stdout: interrupt, stderr: &stderr, getenv: []string{onRef}, ctx: ctx, started: time.Now()}, args)
	if code != exitFailed || withoutNotes(stderr.String()) != "kiln: interrupted\n" {
		t.Errorf("exit code %d, standard error %q", code, stderr.String())
	}
	if text := stdout.String(); text == "" || !strings.HasSuffix(text, "\n") || len(text) > 50 {
		t.Errorf("standard output is %q, want the first tokens and a line end", text)
	}

	stdout.Reset()
	stderr.Reset()
	code = run(&env{stdout: &stdout, stderr: &stderr, getenv: []string{onRef}, ctx: cancelled(t), started: time.Now()}, append(args, "--json"))
	result{code, stdout.String(), stderr.String()}.failed(t, exitFailed, "kiln: interrupted\n")
}

// An output that cannot be written fails the command, whatever it writes.
func TestOutputFails(t *testing.T) {
	a := writeTensors(t, f32("x", one, 1))
	for _, args := range [][]string{
		{"--help"}, {"run", "--help"}, {"version"}, {"compare", a, a},
		{"dump", "--model", tinyModel, "--entry", "decode"},
		{"tokenize", "--model", tinyModel},
		{"tokenize", "--model", tinyModel, "--json"},
		{"tokenize", "--model", tinyModel, "--decode", "66"},
		{"run", "--model", tinyModel, "--prompt", "x", "--max-new-tokens", "2000", "--ignore-eos"},
		{"run", "--model", tinyModel, "--prompt", "x", "--max-new-tokens", "1", "--json"},
	} {
		calls := 0
		full := writerFunc(func(p []byte) (int, error) {
			calls++
			return 0, errors.New("no space")
		})
		var stderr bytes.Buffer
		code := run(&env{stdin: strings.NewReader("x"), stdout: full, stderr: &stderr, getenv: []string{onRef}, ctx: t.Context(), started: time.Now()}, args)
		if code != exitFailed || withoutNotes(stderr.String()) != "kiln: standard output: no space\n" || calls != 1 {
			t.Errorf("kiln %q: exit code %d after %d writes, standard error %q", args, code, calls, stderr.String())
		}
	}
	// The last line end counts as well.
	var text bytes.Buffer
	noEnd := writerFunc(func(p []byte) (int, error) {
		if string(p) == "\n" {
			return 0, io.ErrShortWrite
		}
		return text.Write(p)
	})
	var stderr bytes.Buffer
	code := run(&env{stdout: noEnd, stderr: &stderr, getenv: []string{onRef}, ctx: t.Context(), started: time.Now()}, []string{"run", "--model", tinyModel, "--prompt", "func (b *Buffer) ", "--max-new-tokens", "2"})
	if code != exitFailed || !strings.HasSuffix(stderr.String(), "kiln: standard output: short write\n") {
		t.Errorf("exit code %d, standard error %q", code, stderr.String())
	}
}
