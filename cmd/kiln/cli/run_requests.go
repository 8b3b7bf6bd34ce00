package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/tokenizer"
)

// requestResult is a line of --out.
type requestResult struct {
	ID           *string       `json:"id,omitempty"` // the request's
	PromptTokens int           `json:"prompt_tokens"`
	IDs          []int32       `json:"ids"` // new tokens
	Text         string        `json:"text"`
	Finish       engine.Ending `json:"finish"`
	Error        string        `json:"error,omitempty"`
	// With --stats: since the first step of any request; steps of the main model that it
	// was part of, behind its prompt; and of its drafts by place the fraction that was
	// right, with --speculate; null where none was verified.
	FirstS     *float64   `json:"first_token_s,omitempty"`
	DoneS      *float64   `json:"done_s,omitempty"`
	MainSteps  *int       `json:"main_steps,omitempty"`
	Acceptance []*float64 `json:"acceptance,omitempty"`
}

// manyFlags are the flags of run that only --requests has a use for, singleFlags those
// that it has none for: each request says it itself, or --out holds the result.
var (
	manyFlags   = []string{"out", "max-batch", "kv-tokens"}
	singleFlags = []string{"temperature", "top-k", "top-p", "seed", "thinking", "dry-run"}
)

// onlyRequests refuses flags of --requests without it. A variable may be meant for
// other commands.
func onlyRequests(f *flags) error {
	for _, name := range manyFlags {
		if f.given(name) && !f.fromEnv[name] {
			return usagef("kiln run --requests F.jsonl --out F.jsonl", "--%s applies to --requests only", name)
		}
	}
	return nil
}

// checkRequestFlags refuses what --requests has no use for.
func checkRequestFlags(f *flags) error {
	for _, name := range singleFlags {
		if f.given(name) {
			return usagef("leave "+f.origins(name)+" out", "%s does not apply to --requests: each request says it itself, and --out has the results", f.origins(name))
		}
	}
	for _, name := range []string{"max-batch", "kv-tokens"} {
		if f.number(name) < 0 {
			return usagef("kiln run --help", "%s is %d, want at least 0", f.origins(name), f.number(name))
		}
	}
	if f.text("out") == "" {
		return usagef("kiln run --requests F.jsonl --out F.jsonl", "--requests needs --out")
	}
	in, err := os.Stat(f.text("requests"))
	if err == nil && in.IsDir() {
		err = fmt.Errorf("%s is a folder", f.text("requests"))
	}
	if err != nil {
		return &codedError{exitFailed, fmt.Errorf("%s: %w", f.origins("requests"), err), "--requests F.jsonl, a file with a request a line: docs/serving.md"}
	}
	if out, err := os.Stat(f.text("out")); err == nil && os.SameFile(in, out) {
		return usagef("--out OTHER.jsonl", "--out is the file of --requests")
	}
	return canWrite(f, "out")
}

// canWrite finds the file of a flag that cannot be written before a model is read, and
// leaves what is in it. One that is new is not left behind.
func canWrite(f *flags, name string) error {
	path := f.text(name)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil // who reads a pipe would take it for ended
	}
	_, before := os.Lstat(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err == nil {
		err = file.Close()
	}
	if err == nil && before != nil {
		err = os.Remove(path)
	}
	if err != nil {
		return &codedError{exitFailed, fmt.Errorf("%s: %w", f.origins(name), err), fmt.Sprintf("--%s F%s in a folder that can be written", name, filepath.Ext(path))}
	}
	return nil
}

// runRequests runs the requests of a file beside each other.
func runRequests(e *env, f *flags) error {
	if err := checkRequestFlags(f); err != nil {
		return err
	}
	dir := f.text("model")
	if _, err := loadConfig(dir); err != nil {
		return err
	}
	tok, err := loadTokenizer(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return err
	}
	lines, err := readRequests(f.text("requests"))
	if err != nil {
		return err
	}
	want := dsv4.HeadGreedy
	if samples(lines) {
		want = dsv4.HeadSample
	}
	progress := newProgress(e, f)
	defer progress.close()
	progress.say("loading %s", dir)
	s, _, err := openModel(e, f, false, want, progress)
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	if err := speculates(f, s.config, s.layout.MaxDraft); err != nil {
		return err
	}
	if tok.VocabSize() > s.layout.Vocab {
		return refuse(fmt.Errorf("the tokenizer has %d tokens, the model %d", tok.VocabSize(), s.layout.Vocab), "")
	}
	b := &batch{e: e, f: f, s: s, tok: tok, progress: progress, drafts: f.number("speculate")}
	if err := b.read(lines); err != nil {
		return err
	}
	if err := b.submit(); err != nil {
		return err
	}
	out, err := os.Create(f.text("out"))
	if err != nil {
		return err
	}
	b.out = bufio.NewWriter(out)
	return b.finish(errors.Join(b.run(), out.Close()))
}

// batch are the requests of a file, and how far they are.
type batch struct {
	e        *env
	f        *flags
	s        *session
	tok      *tokenizer.Tokenizer
	progress *progress
	list     []*batched
	limits   engine.Limits
	sched    *engine.Scheduler // nil: no request can run
	out      *bufio.Writer
	written  int // results, in the order of the requests
	drafts   int // of a step
	started  time.Time
}

// batched is one of them.
type batched struct {
	*requestLine
	req     engine.Request
	refused error           // why it does not run
	session *engine.Session // nil if it does not
	stream  *tokenizer.Stream
	text    strings.Builder
	first   time.Time // of its tokens
}

// read makes the requests of the lines. What is wrong with one is its result.
func (b *batch) read(lines []*requestLine) error {
	q := &requestReader{f: b.f, tok: b.tok}
	var err error
	if q.encode, err = promptEncoder(b.f.text("model"), b.tok); err != nil {
		return err
	}
	if q.stop, err = stopTokens(b.f.text("model"), b.s.config); err != nil {
		return err
	}
	for _, line := range lines {
		x := &batched{requestLine: line, stream: b.tok.NewStream()}
		if x.req, x.refused = q.read(line); x.refused == nil {
			x.refused = b.s.layout.Check(x.req)
		}
		if x.refused == nil && b.s.compiled != nil {
			x.refused = b.s.compiled.holds(b.f, b.positions(x))
		}
		b.list = append(b.list, x)
	}
	return nil
}

// positions are those that a request may write.
func (b *batch) positions(x *batched) int { return len(x.req.Prompt) + x.req.MaxNew + b.drafts }

// submit makes the engine, and its sessions in the order of the requests.
func (b *batch) submit() error {
	want := serving{drafts: b.drafts}
	for _, x := range b.list {
		if x.refused == nil {
			want.requests++
			want.prompts = append(want.prompts, len(x.req.Prompt))
			want.positions = max(want.positions, b.positions(x))
		}
	}
	if want.requests == 0 {
		return nil
	}
	var err error
	if b.limits, err = b.s.serve(want); err != nil {
		return err
	}
	if b.sched, err = engine.NewScheduler(b.s.engine, b.limits); err != nil {
		hint := "kiln compile --batch 1,2,4,8,16,32,64"
		if rows := b.limits.Rows; b.drafts >= rows {
			hint = fmt.Sprintf("--speculate %d", rows-1)
		}
		return refuse(err, hint)
	}
	if n := b.sched.StepSessions(); n < b.limits.Sessions {
		b.progress.note("a step has at most %d of %d requests: the next larger one has more than %d rows, where its order class ends", n, b.limits.Sessions, b.limits.Rows)
	}
	for _, x := range b.list {
		if x.refused == nil {
			x.session, x.refused = b.sched.Submit(x.req, func(id int32) error { return b.hear(x, id) })
		}
	}
	return nil
}

// hear takes a new token of a request.
func (b *batch) hear(x *batched, id int32) error {
	if x.first.IsZero() {
		x.first = time.Now()
	}
	if slices.Contains(x.req.Stop, id) {
		return nil
	}
	x.text.WriteString(x.stream.Push(id))
	return x.stream.Err()
}

// run steps until all requests have ended, and writes results as soon as those before
// them are written. An interrupt ends all that are left, and their results say so.
func (b *batch) run() error {
	b.started = time.Now()
	var err error
	for ran := b.sched != nil; ran && err == nil; {
		b.progress.count("requests", b.written, len(b.list))
		if b.e.ctx.Err() != nil {
			err = b.sched.Drain(b.e.ctx)
		} else {
			ran, err = b.sched.Step()
		}
		if wrote := b.write(); wrote != nil {
			return b.unwritten(wrote)
		}
	}
	return errors.Join(err, b.unwritten(b.write()))
}

// unwritten is the error of results that could not be written, which are nowhere.
func (b *batch) unwritten(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{exitFailed, fmt.Errorf("%s: %w", b.f.origins("out"), err), "--out FILE, where there is room"}
}

// write writes the results that have become ready.
func (b *batch) write() error {
	for ; b.written < len(b.list); b.written++ {
		x := b.list[b.written]
		if x.session != nil {
			select {
			case <-x.session.Done():
			default:
				return b.out.Flush()
			}
		}
		if err := printJSON(b.out, b.result(x)); err != nil {
			return err
		}
	}
	return b.out.Flush()
}

// result is what became of a request that has ended.
func (b *batch) result(x *batched) requestResult {
	r := requestResult{ID: x.id, PromptTokens: len(x.req.Prompt), IDs: []int32{}, Finish: engine.EndError}
	if x.session == nil {
		r.Error = oneLine(x.refused)
		return r
	}
	out := x.session.Wait()
	x.text.WriteString(x.stream.Flush())
	r.IDs, r.Text, r.Finish = append(r.IDs, out.IDs...), x.text.String(), x.session.End()
	if r.Finish == engine.EndError {
		r.Error = oneLine(out.Err)
	}
	if b.f.boolean("stats") {
		done := time.Since(b.started).Seconds()
		r.DoneS, r.MainSteps, r.Acceptance = &done, &out.Steps, acceptanceOf(out.Drafts)
		if !x.first.IsZero() {
			first := x.first.Sub(b.started).Seconds()
			r.FirstS = &first
		}
	}
	return r
}

// finish says what there is to say behind the results.
func (b *batch) finish(err error) error {
	b.progress.clear()
	if err != nil {
		err = stuck(b.f, err)
		var coded *codedError
		if b.e.ctx.Err() != nil {
			return errors.Join(err, b.tellInterrupted())
		}
		if errors.As(err, &coded) {
			return err
		}
		return &codedError{exitFailed, err, "kiln doctor; what became of each request is in " + b.f.text("out")}
	}
	if err := b.s.device.tellCounters(b.e.stderr); err != nil {
		return err
	}
	r, first := b.sum()
	if err := b.tell(r); err != nil {
		return err
	}
	if r.Failed > 0 {
		why := first.refused
		if first.session != nil {
			why = first.session.Wait().Err
		}
		return &codedError{exitFailed, fmt.Errorf("%d of %s ended with an error, the first on line %d: %w", r.Failed, count(int64(len(b.list)), "request"), first.line, why), "the results in " + b.f.text("out")}
	}
	if b.f.boolean("json") {
		return nil
	}
	b.e.log.Info(fmt.Sprintf("%s | %s, at most %d at a time | %s numerics | %d prompt + %d new tokens | %.1f tokens/s | peak memory %s",
		b.s.device.describe(), count(int64(len(b.list)), "request"), r.AtATime, b.s.numerics, r.PromptTokens, r.NewTokens, r.TokensPerS, peakMemory()),
		"device", b.s.device.name, "numerics", string(b.s.numerics), "requests", len(b.list), "failed", r.Failed, "prompt_tokens", r.PromptTokens, "new_tokens", r.NewTokens)
	return nil
}
