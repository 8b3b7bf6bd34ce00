package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/models/dsv4"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// What acceptance is measured on, with a checkpoint's weights: so many new tokens of each
// of these prompts, greedy.
const acceptanceTokens = 64

var acceptancePrompts = []string{"package main\n\nimport ", "func (b *Buffer) ", "// Package ", "The quick brown fox "}

// benchDrafts is what a step with drafts is worth: of a step of one request.
type benchDrafts struct {
	Drafts int `json:"drafts"`
	// Acceptance is, by place behind the last token, the fraction of the drafts there
	// that were right, and all before them; TokensPerStep what a request gets of a step
	// on average. Both are null where they are not measured: with random weights.
	Acceptance    []*float64 `json:"acceptance"`
	TokensPerStep *float64   `json:"tokens_per_step"`
	// PerAccepted is tokens/s if every request accepts 0, 1, ... drafts of each step.
	PerAccepted []float64 `json:"tokens_per_s_by_accepted"`
}

// checkDrafts refuses what --speculate cannot time.
func (b *bench) checkDrafts() error {
	k, most := b.f.number("speculate"), b.manifest.Settings.Speculate
	switch {
	case k < 0:
		return usagef("kiln bench "+b.path+" --speculate 1", "%s is %d, want at least 0", b.f.origins("speculate"), k)
	case k == 0:
		return nil
	case b.f.text("entry") != string(dsv4.Decode):
		return usagef("leave "+b.f.origins("entry")+" out", "%s is of decode steps, %s is %s", b.f.origins("speculate"), b.f.origins("entry"), b.f.text("entry"))
	case b.config.NextN == 0:
		return refuse(fmt.Errorf("%s %d: the model has no MTP block", b.f.origins("speculate"), k), "--speculate 0")
	case k > most:
		return refuse(fmt.Errorf("%s %d: %s was compiled with --speculate %d", b.f.origins("speculate"), k, b.path, most),
			fmt.Sprintf("--speculate %d, or kiln compile --speculate %d -o OTHER.kiln", most, k))
	}
	return nil
}

// rightDrafts makes the drafts of a step's inputs the tokens that truly follow, so that all
// are accepted and the MTP block runs over all rows: one more of them is found by each run.
func (b *bench) rightDrafts(s benchPlan, k int, program *rt.Program, in engine.Tensors, state *rt.State) error {
	for right := 0; ; right++ {
		out, err := program.Run(in, state)
		if err != nil {
			return err
		}
		if err := finite(out, s.plan.Outputs); err != nil {
			return fmt.Errorf("the step's results are of no use: %w", err)
		}
		for request, n := range out["accept_len"].I {
			if int(n) < right || right == k && int(n) != k {
				return fmt.Errorf("request %d of the step accepts %d drafts, of its own tokens %d are right", request, n, right)
			}
		}
		if right == k {
			return nil
		}
		next := out["greedy_ids"]
		if next == nil {
			next = out["sample_ids"]
		}
		for row := right + 1; row < len(in["ids"].I); row += k + 1 {
			in["ids"].I[row] = next.I[row-1]
		}
	}
}

// measureAcceptance generates with the checkpoint's weights, as kiln run --speculate does.
func (b *bench) measureAcceptance(k int) (err error) {
	dir := b.f.text("model")
	if k == 0 || dir == "" {
		return nil
	}
	b.progress.say("measuring acceptance")
	tok, err := loadTokenizer(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return err
	}
	encode, err := promptEncoder(dir, tok)
	if err != nil {
		return err
	}
	entry := string(dsv4.SpeculateEntry(k))
	var plans []*plan.Plan
	for _, p := range b.code.Module.Plans {
		if slices.Contains([]string{string(dsv4.Prefill), string(dsv4.Draft), entry}, p.Entry) {
			plans = append(plans, p)
		}
	}
	exec, err := b.model.Executor(plans)
	if err != nil {
		return err
	}
	states := &statesOf{Executor: exec}
	defer func() { err = errors.Join(err, states.close()) }()
	layout := b.sizer.layout
	pages := layout.Pages(b.manifest.Settings.MaxSeq)
	tokens, steps := 0, 0
	count := engine.DraftStats{Drafted: make([]int, k), Accepted: make([]int, k)}
	rings := slices.Max(b.manifest.Settings.Batch)
	e, err := engine.New(states, layout, rings, rings*pages)
	if err != nil {
		return err
	}
	for i, text := range acceptancePrompts {
		ids, err := encode(text)
		if err != nil {
			return err
		}
		n := min(acceptanceTokens, b.manifest.Settings.MaxSeq-len(ids))
		if n <= k {
			return refuse(fmt.Errorf("%s has room for %d tokens of a request (--max-seq): too few to measure acceptance", b.path, b.manifest.Settings.MaxSeq), "--random-weights")
		}
		seq, err := e.NewSeq(i%rings, pages)
		if err != nil {
			return err
		}
		list, _, err := e.Speculate(b.e.ctx, []*engine.Seq{seq}, []engine.Request{{Prompt: ids, MaxNew: n}}, k, nil, func(int, int32) error { return nil })
		if err == nil {
			err = list[0].Err
		}
		if err != nil {
			return fmt.Errorf("measuring acceptance: %w", err)
		}
		tokens, steps = tokens+n-1, steps+list[0].Steps
		for j := range k {
			count.Drafted[j] += list[0].Drafts.Drafted[j]
			count.Accepted[j] += list[0].Drafts.Accepted[j]
		}
	}
	b.acceptance, b.tokensPerStep = acceptanceOf(count), float64(tokens)/float64(steps)
	return nil
}

// statesOf closes the states that an engine makes.
type statesOf struct {
	*rt.Executor
	made []*rt.State
}

// NewState implements engine.Executor.
func (s *statesOf) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := s.Executor.NewState(entry, bind)
	if own, ok := st.(*rt.State); ok && err == nil {
		s.made = append(s.made, own)
	}
	return st, err
}

func (s *statesOf) close() error {
	var errs []error
	for _, st := range s.made {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

// speculates fills in what a step with drafts that takes so many seconds is worth.
func (r *benchStep) speculates(k int, acceptance []*float64, perStep float64, seconds float64) {
	d := &benchDrafts{Drafts: k}
	for n := range k + 1 {
		d.PerAccepted = append(d.PerAccepted, float64(r.Batch*(n+1))/seconds)
	}
	r.Drafts, r.TokensPerS = d, nil
	if acceptance != nil {
		d.Acceptance, d.TokensPerStep = acceptance, &perStep
		r.TokensPerS = ptrTo(float64(r.Batch) * perStep / seconds)
	}
}

// describe says what the drafts are worth, on a line.
func (d *benchDrafts) describe() string {
	text := fmt.Sprintf("acceptance of %d drafts is not measured with random weights", d.Drafts)
	if d.Acceptance != nil {
		text = fmt.Sprintf("acceptance %s, %.2f tokens a step of a request", fractions(d.Acceptance), *d.TokensPerStep)
	}
	text += "; tokens/s by accepted drafts:"
	for n, rate := range d.PerAccepted {
		text += fmt.Sprintf(" %d: %.1f", n, rate)
	}
	return text
}
