package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/tokenizer"
)

const runHelp = `Completes a prompt and streams the text. Standard error shows the device and why
it was chosen, the prompt, and last one line that sums up: device, sampling,
tokens, tokens per second, time to the first token, peak memory.

With --stats it ends with the numbers of steps and what they took, and with the
memory that is used. Standard error is also what --quiet, -v and --log-format are
about. A model runs on one device: --tp and --ep are refused.

On emu, GPU code is compiled for gfx950 (emu, emu:gfx950) or gfx942 and executed by
an emulator on this CPU: docs/emulator.md. --sanitize and --counters watch it.

Devices: hip and cuda are GPUs of AMD and NVIDIA, host is native code for this CPU,
emu is GPU code, emulated, and ref the evaluator. auto takes the first of hip, cuda
and host that is there. On GPUs a step is replayed as a graph, --graph off launches
kernel by kernel. With --bundle neither LLVM nor Go is needed; what does not fit the
device's memory is refused before weights are read, and --dry-run stops there.

Before the first step each fused kernel is compared with the ops that it stands for,
and a replay with the same launches one by one: docs/gpu.md, "Start-up checks". What
does not hold is replaced, and one line says so; with --strict it is an error. On emu
the checks run with --startup-check only.

With --watchdog 30s a step on a GPU that does not end in time is an error, which
names the entry, its bucket and the command that finds the kernel: the same with
--graph off, where each kernel is waited for, which is slow.

With --speculate K the MTP block drafts K tokens ahead, and one step of the main model
verifies them: fewer steps, and the same text at any temperature; docs/speculative.md.

Generation stops at the end-of-sentence token, which is kept in the ids and left
out of the text; with --ignore-eos it goes on to --max-new-tokens.

With --requests F.jsonl --out F.jsonl the requests of a file run beside each other,
each as it would alone: a line is {"prompt": "package main", "max_new_tokens": 16}, with
the sampling and an id if wanted, a result has ids, text and what ended it. One that
fails has its error as its result; then the exit code is 1. With --speculate K they
speculate beside each other. docs/serving.md.`

// runResult is the JSON of run.
type runResult struct {
	PromptIDs []int32 `json:"prompt_ids"`
	IDs       []int32 `json:"ids"` // new tokens
	Text      string  `json:"text"`
	PrefillS  float64 `json:"prefill_s"` // prompt in, first token out
	DecodeS   float64 `json:"decode_s"`  // the other tokens
	// TokensPerS is the rate of the decode steps; of a single token, its own.
	TokensPerS float64 `json:"tokens_per_s"`
	// MainSteps are steps of the main model behind the prompt. Acceptance is, with
	// --speculate K, for each of the K places behind the last token the fraction of the
	// drafts there that were right, and all before them; null where none was verified.
	MainSteps  int        `json:"main_steps"`
	Acceptance []*float64 `json:"acceptance,omitempty"`
	OtherClass string     `json:"order_class_note,omitempty"` // why the text may differ from the plain one
	Device     string     `json:"device"`
	Stats      *runStats  `json:"stats,omitempty"` // with --stats
	// StartupChecks say what they found, and what runs in its place.
	StartupChecks []string `json:"startup_checks,omitempty"`
}

func runRun(e *env, f *flags, _ []string) error {
	if err := oneDevice(f); err != nil {
		return err
	}
	sampling := engine.Sampling{Temperature: f.float("temperature"), TopK: f.number("top-k"), TopP: f.float("top-p"), Seed: f.seed("seed")}
	if err := sampling.Check(); err != nil {
		return usagef("kiln run --temperature 0.7 ...", "%s: %v", f.origins("temperature", "top-k", "top-p", "seed"), err)
	}
	if f.number("max-new-tokens") < 1 {
		return usagef("kiln run --help", "%s is %d, want at least 1", f.origins("max-new-tokens"), f.number("max-new-tokens"))
	}
	from, err := f.oneOf("prompt", "prompt-ids", "chat", "requests")
	if err != nil {
		return err
	}
	if err := checkSpeculate(f); err != nil {
		return err
	}
	if from == "requests" {
		return runRequests(e, f)
	}
	if err := onlyRequests(f); err != nil {
		return err
	}
	tok, prompt, err := readPrompt(f)
	if err != nil {
		return err
	}
	want := dsv4.HeadSample
	if sampling.Temperature == 0 {
		want = dsv4.HeadGreedy
	}
	if f.boolean("dry-run") {
		return runDry(e, f, want, len(prompt)+f.number("max-new-tokens"))
	}
	progress := newProgress(e, f)
	defer progress.close()
	progress.say("loading %s", f.text("model"))
	s, place, err := openModel(e, f, false, want, progress)
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	if tok.VocabSize() > s.layout.Vocab {
		return refuse(fmt.Errorf("the tokenizer has %d tokens, the model %d", tok.VocabSize(), s.layout.Vocab), "")
	}
	if err := checkVocabulary(f, prompt, s.layout.Vocab, describeSource(f)); err != nil {
		return err
	}
	req := engine.Request{Prompt: prompt, MaxNew: f.number("max-new-tokens"), Sampling: sampling}
	if !f.boolean("ignore-eos") {
		if req.Stop, err = stopTokens(f.text("model"), s.config); err != nil {
			return err
		}
	}
	if err := s.layout.Check(req); err != nil {
		hint := ""
		if left := s.layout.MaxPositions - len(prompt); left > 0 && req.MaxNew > left {
			hint = fmt.Sprintf("--max-new-tokens %d", left)
		} else if left <= 0 {
			hint = fmt.Sprintf("a prompt of at most %d tokens", s.layout.MaxPositions-1)
		}
		return refuse(err, hint)
	}
	k := f.number("speculate")
	if err := speculates(f, s.config, s.layout.MaxDraft); err != nil {
		return err
	}
	seq, err := place(len(prompt), len(prompt)+req.MaxNew, beside{mtp: k > 0, drafts: k})
	if err != nil {
		return err
	}
	if s.otherClass, err = s.classes(k); err != nil {
		return err
	}
	if s.otherClass != "" {
		progress.note("%s", s.otherClass)
	}
	return generate(e, f, s, seq, req, tok, progress)
}

func generate(e *env, f *flags, s *session, seq *engine.Seq, req engine.Request, tok *tokenizer.Tokenizer, progress *progress) error {
	asJSON := f.boolean("json")
	var first time.Duration
	var text strings.Builder
	stream := tok.NewStream()
	show := func(piece string) error {
		text.WriteString(piece)
		if asJSON {
			return nil
		}
		_, err := fmt.Fprint(e.stdout, piece)
		return err
	}
	progress.note("prompt: %s", describePrompt(f, len(req.Prompt)))
	count := func(done int) { progress.count("reading the prompt", done, len(req.Prompt)) }
	ids, stats, err := s.generate(e.ctx, f.number("speculate"), seq, req, count, func(id int32) error {
		if first == 0 {
			first = time.Since(e.started)
			progress.clear()
		}
		if slices.Contains(req.Stop, id) {
			return nil
		}
		piece := stream.Push(id)
		if err := stream.Err(); err != nil {
			return fmt.Errorf("position %d: %w", seq.Len, err)
		}
		return show(piece)
	})
	if flushErr := show(stream.Flush()); err == nil {
		err = flushErr
	}
	if !asJSON && text.Len() > 0 && !strings.HasSuffix(text.String(), "\n") {
		fmt.Fprintln(e.stdout)
	}
	if errors.Is(err, engine.ErrUnusable) {
		return &codedError{exitFailed, err, fmt.Sprintf("kiln logits --model %s --device %s --ids %s --prefill %d --out F.safetensors: the logits themselves", f.text("model"), s.device.name, joinInts(req.Prompt), len(req.Prompt))}
	}
	if err != nil {
		return stuck(f, err)
	}
	progress.clear()
	if err := s.device.tellCounters(e.stderr); err != nil {
		return err
	}
	r := runResult{
		StartupChecks: e.replaced,
		PromptIDs:     req.Prompt, IDs: ids, Text: text.String(), Device: s.device.name,
		MainSteps: stats.Steps, Acceptance: acceptanceOf(stats.Drafts), OtherClass: s.otherClass,
		Stats: s.stats(len(req.Prompt), len(ids)), PrefillS: stats.Prefill.Seconds(), DecodeS: stats.Decode.Seconds(), TokensPerS: rate(len(ids), stats),
	}
	if asJSON {
		return printJSON(e.stdout, r)
	}
	e.log.Info(fmt.Sprintf("%s | %s | %s numerics | %d prompt + %d new tokens | %.1f tokens/s | first token after %.2f s | peak memory %s",
		s.device.describe(), req.Sampling, s.numerics, len(req.Prompt), len(ids), r.TokensPerS, first.Seconds(), peakMemory()),
		"device", s.device.name, "numerics", string(s.numerics), "prompt_tokens", len(req.Prompt), "new_tokens", len(ids), "tokens_per_s", r.TokensPerS, "first_token_s", first.Seconds())
	if r.Stats != nil {
		r.Stats.print(e.stderr)
		printSteps(e.stderr, "the prompt", r.MainSteps, r.Acceptance)
	}
	return nil
}

func rate(tokens int, st engine.Stats) float64 {
	if tokens > 1 && st.Decode > 0 {
		return float64(tokens-1) / st.Decode.Seconds()
	}
	return float64(tokens) / max(st.Prefill.Seconds(), 1e-9)
}

// readPrompt loads the tokenizer and makes the prompt's ids.
func readPrompt(f *flags) (*tokenizer.Tokenizer, []int32, error) {
	from, err := f.oneOf("prompt", "prompt-ids", "chat")
	if err != nil {
		return nil, nil, err
	}
	if f.boolean("thinking") && from != "chat" {
		return nil, nil, usagef("kiln run --chat FILE.json --thinking", "%s applies to --chat only", f.origins("thinking"))
	}
	dir := f.text("model")
	if _, err := loadConfig(dir); err != nil { // the clearer message when the folder is wrong
		return nil, nil, err
	}
	tok, err := loadTokenizer(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, nil, err
	}
	var ids []int32
	switch from {
	case "prompt":
		ids, err = promptText(dir, tok, f.text("prompt"))
	case "prompt-ids":
		ids, err = readIDs(f, "prompt-ids")
	default:
		ids, err = promptChat(f, tok, f.text("chat"))
	}
	return tok, ids, err
}

// promptText encodes a plain prompt.
func promptText(dir string, tok *tokenizer.Tokenizer, text string) ([]int32, error) {
	encode, err := promptEncoder(dir, tok)
	if err != nil {
		return nil, err
	}
	ids, err := encode(text)
	if errors.Is(err, errNoPrompt) {
		return nil, usagef("kiln run --prompt 'package main'", "--prompt is empty")
	}
	return ids, err
}

// errNoPrompt is the error of a prompt without tokens.
var errNoPrompt = errors.New("the prompt is empty")

// promptEncoder encodes plain prompts; tokenizer_config.json says what goes around them.
func promptEncoder(dir string, tok *tokenizer.Tokenizer) (func(text string) ([]int32, error), error) {
	c, err := tokenizer.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	if c.AddEOS {
		return nil, refuse(fmt.Errorf("%s: add_eos_token is true: a prompt that ends with the end-of-sentence token has no continuation", filepath.Join(dir, "tokenizer_config.json")), "")
	}
	var before []int32
	if c.AddBOS {
		id, ok := tok.ID(c.BOS)
		if !ok {
			return nil, refuse(fmt.Errorf("tokenizer_config.json: add_bos_token is true and bos_token %q is not in the tokenizer", c.BOS), "")
		}
		before = []int32{id}
	}
	return func(text string) ([]int32, error) {
		ids := slices.Concat(before, tok.Encode(text))
		if len(ids) == 0 {
			return nil, errNoPrompt
		}
		return ids, nil
	}, nil
}

// shownPrompt is how many characters of a prompt are shown: the last ones, which
// the completion goes on from.
const shownPrompt = 72

// describePrompt is the prompt, of n tokens, on one line.
func describePrompt(f *flags, n int) string {
	from, _ := f.oneOf("prompt", "prompt-ids", "chat") // readPrompt has checked
	if from == "chat" {
		return fmt.Sprintf("%s, %d tokens", f.text("chat"), n)
	}
	if from == "prompt-ids" {
		return fmt.Sprintf("%d ids", n)
	}
	text, before := []rune(f.text("prompt")), ""
	if cut := len(text) - shownPrompt; cut > 0 {
		text, before = text[cut:], "..."
	}
	shown := string(text)
	if !utf8.ValidString(f.text("prompt")) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
		shown = strconv.Quote(shown)
	}
	return before + shown
}

// describeSource is where the ids of the prompt are from.
func describeSource(f *flags) string {
	from, _ := f.oneOf("prompt", "prompt-ids", "chat") // readPrompt has checked
	return f.origins(from)
}

// promptChat encodes a chat. The begin-of-sentence token is part of its text.
func promptChat(f *flags, tok *tokenizer.Tokenizer, path string) ([]int32, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &codedError{exitFailed, fmt.Errorf("%s: %w", f.origins("chat"), err), `--chat F.json, a file with messages: [{"role": "user", "content": "Hi"}]`}
	}
	chat, err := dsv4.ParseChat(data)
	if err != nil {
		return nil, refuse(fmt.Errorf("%s: %w", path, err), "")
	}
	if f.given("thinking") {
		mode := chatMode(f.boolean("thinking"))
		if chat.ThinkingMode != "" && chat.ThinkingMode != mode {
			return nil, refuse(fmt.Errorf("%s: thinking_mode is %q and %s is %v", path, chat.ThinkingMode, f.origins("thinking"), f.boolean("thinking")), "leave "+f.origins("thinking")+" out")
		}
		chat.ThinkingMode = mode
	}
	ids, err := encodeChat(chat, tok)
	var lacks *tokenError
	switch {
	case errors.As(err, &lacks):
		return nil, refuse(fmt.Errorf("--chat: %w", err), "kiln run --prompt TEXT")
	case err != nil:
		return nil, refuse(fmt.Errorf("%s: %w", path, err), "")
	}
	return ids, nil
}

func chatMode(thinking bool) string {
	if thinking {
		return "thinking"
	}
	return "chat"
}

// tokenError is a special token that the tokenizer lacks.
type tokenError struct{ token string }

func (e *tokenError) Error() string { return "the tokenizer lacks the special token " + e.token }

// encodeChat encodes a chat.
func encodeChat(chat dsv4.Chat, tok *tokenizer.Tokenizer) ([]int32, error) {
	prompt, err := dsv4.EncodeChat(chat)
	if err != nil {
		return nil, err
	}
	needed, err := dsv4.ChatTokens(chat)
	if err != nil {
		return nil, err
	}
	for _, t := range needed {
		if _, ok := tok.ID(t); !ok {
			return nil, &tokenError{t}
		}
	}
	return tok.Encode(prompt), nil
}

// stopTokens are generation_config.json's end tokens, else config.json's.
func stopTokens(dir string, c *dsv4.Config) ([]int32, error) {
	g, err := dsv4.LoadGeneration(dir)
	if err != nil {
		return nil, refuse(err, "")
	}
	if g.EOS != nil {
		return g.EOS, nil
	}
	return c.EOS, nil
}
