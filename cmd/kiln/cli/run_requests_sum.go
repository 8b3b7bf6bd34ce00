package cli

import (
	"time"

	"github.com/kiln-project/kiln/runtime/engine"
)

// requestsResult is the JSON of run --requests: what --out does not have.
type requestsResult struct {
	Requests     int     `json:"requests"`
	Failed       int     `json:"failed"`        // that ended with an error
	Cancelled    int     `json:"cancelled"`     // by an interrupt
	AtATime      int     `json:"at_a_time"`     // at most
	PromptTokens int     `json:"prompt_tokens"` // of those that ran, without what was cancelled before its first token
	NewTokens    int     `json:"new_tokens"`
	Seconds      float64 `json:"seconds"` // from the first step of any on
	TokensPerS   float64 `json:"tokens_per_s"`
	// MainSteps are steps of the main model behind prompts, each of any number of requests.
	MainSteps     int        `json:"main_steps"`
	Acceptance    []*float64 `json:"acceptance,omitempty"` // of all drafts by place, with --speculate
	Device        string     `json:"device"`
	Stats         *runStats  `json:"stats,omitempty"` // with --stats
	StartupChecks []string   `json:"startup_checks,omitempty"`
}

// sum is what there is to say of all requests, which have ended, and the first that
// failed, if one did.
func (b *batch) sum() (r requestsResult, first *batched) {
	r = requestsResult{Requests: len(b.list), AtATime: b.limits.Sessions, Device: b.s.device.name, StartupChecks: b.e.replaced}
	decoded := 0
	for _, x := range b.list {
		end := engine.EndError
		if x.session != nil {
			n := len(x.session.Wait().IDs)
			if end = x.session.End(); end != engine.EndCancelled || n > 0 {
				r.PromptTokens += len(x.req.Prompt)
			}
			r.NewTokens, decoded = r.NewTokens+n, decoded+max(n-1, 0)
		}
		switch end {
		case engine.EndError:
			if r.Failed++; first == nil {
				first = x
			}
		case engine.EndCancelled:
			r.Cancelled++
		}
	}
	r.Seconds = time.Since(b.started).Seconds()
	r.TokensPerS = float64(r.NewTokens) / max(r.Seconds, 1e-9)
	if b.sched != nil {
		st := b.sched.Stats()
		r.MainSteps, r.Acceptance = st.Steps, acceptanceOf(st.Drafts)
	}
	r.Stats = b.s.stats(r.PromptTokens, decoded+1)
	return r, first
}

// tell prints the sum, where it is asked for.
func (b *batch) tell(r requestsResult) error {
	if b.f.boolean("json") {
		return printJSON(b.e.stdout, r)
	}
	if r.Stats != nil {
		r.Stats.print(b.e.stderr)
		printSteps(b.e.stderr, "the prompts", r.MainSteps, r.Acceptance)
	}
	return nil
}

// tellInterrupted says what was done before an interrupt. Where results could not be
// written, requests are left that have not ended, and nothing is said.
func (b *batch) tellInterrupted() error {
	if b.written < len(b.list) {
		return nil
	}
	r, _ := b.sum()
	return b.tell(r)
}
