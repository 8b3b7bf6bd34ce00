//go:build gpu

package cuda

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
)

var serving = flag.String("serving", "serving.kiln", "bundle of the tiny model for sm_90 with --speculate 3, batches 1 to 64 and heads that are greedy")

// stepRows is where the order class of steps ends at the latest.
const stepRows = 128

// TestServing: requests beside each other, 1, 8 and 64 at a time, without drafts and with
// 1 to 3, by turns in one process: the same tokens, and tokens/s of each. The first of
// four rounds makes the graphs and is not timed.
func TestServing(t *testing.T) {
	const rounds, tokens = 4, 128
	b := devicetest.OpenBundle(t, *serving, "sm_90", tinyModel)
	row, err := passes.ThresholdOf(passes.FusedHCTokens, "sm_90")
	if err != nil {
		t.Fatal(err)
	}
	l := engine.Limits{SessionPages: b.Pages, Rows: stepRows}
	if row.Value > 0 {
		l.Rows = min(l.Rows, row.Value)
	}
	r := b.Start(t, openPlans(t, PlanOptions{}))
	defer r.Close(t)
	for _, batch := range []int{1, 8, 64} {
		prompts := devicetest.SpeculativePrompts(4 * batch)
		var rates [4][]float64 // by drafts
		var last [4]engine.Stats
		var want [][]int32
		equal := true
		for round := range rounds {
			for k := range rates {
				l.Sessions, l.Drafts, l.Queue = batch, k, len(prompts)
				s, err := engine.NewScheduler(r.Engine, l)
				if err != nil {
					t.Fatal(err)
				}
				var list []*engine.Session
				for _, p := range prompts {
					x, err := s.Submit(engine.Request{Prompt: p, MaxNew: tokens}, nil)
					if err != nil {
						t.Fatal(err)
					}
					list = append(list, x)
				}
				start := time.Now()
				if err := s.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				took := time.Since(start)
				if round > 0 {
					rates[k] = append(rates[k], float64(tokens*len(prompts))/took.Seconds())
				}
				last[k] = s.Stats()
				var got [][]int32
				for _, x := range list {
					out := x.Wait()
					if out.Err != nil || len(out.IDs) != tokens {
						t.Fatalf("%d at a time, K=%d: %d tokens, error %v", batch, k, len(out.IDs), out.Err)
					}
					got = append(got, out.IDs)
				}
				if want == nil {
					want = got
				}
				if !slices.EqualFunc(got, want, slices.Equal) {
					equal = false
					t.Errorf("%d at a time, K=%d: other tokens than without drafts", batch, k)
				}
			}
		}
		for k, list := range rates {
			slices.Sort(list)
			emit(t, "SERVING", map[string]any{
				"at_a_time": batch, "k": k, "requests": len(prompts), "new_tokens": tokens * len(prompts), "main_steps": last[k].Steps,
				"acceptance": last[k].Drafts.Acceptance(), "tokens_per_s": list[len(list)/2], "slowest": list[0], "fastest": list[len(list)-1], "equal": equal,
			})
		}
	}
}
