//go:build gpu

package cuda

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
)

var speculative = flag.String("speculative", "speculative.kiln", "bundle of the tiny model for sm_90 with --speculate 3 and batches 1 to 8")

// TestSpeculate: greedy text with drafts is the plain one, and what is accepted is the
// same launched and replayed.
func TestSpeculate(t *testing.T) {
	b := devicetest.OpenBundle(t, *speculative, "sm_90", tinyModel)
	counts := map[string][]int{} // accepted drafts, by case
	for _, w := range ways {
		r := b.Start(t, openPlans(t, w.opts))
		for _, batch := range []int{1, 3, 8} {
			for _, k := range []int{1, 2, 3} {
				what := fmt.Sprintf("batch %d, K=%d", batch, k)
				t.Run(w.name+"/"+what, func(t *testing.T) {
					st := devicetest.SpeculateIsGreedy(t, r.Engine, r.Engine, b.Pages, 256, k, devicetest.SpeculativePrompts(batch))
					if counts[what] == nil {
						counts[what] = st.Drafts.Accepted
					}
					same := slices.Equal(counts[what], st.Drafts.Accepted)
					if !same {
						t.Errorf("accepted %v, launched %v", st.Drafts.Accepted, counts[what])
					}
					emit(t, "SPECULATE", map[string]any{
						"graph": w.name, "batch": batch, "k": k, "steps": st.Steps, "acceptance": st.Drafts.Acceptance(), "equal": !t.Failed(),
					})
				})
			}
		}
		r.Close(t)
	}
}

// TestSpeculateAlternates: decode steps and speculative ones by turns, of requests that
// change, give the same tokens launched and replayed.
func TestSpeculateAlternates(t *testing.T) {
	b := devicetest.OpenBundle(t, *speculative, "sm_90", tinyModel)
	run := func(o PlanOptions) [][]int32 {
		r := b.Start(t, openPlans(t, o))
		defer r.Close(t)
		var all [][]int32
		nobody := func(int, int32) error { return nil }
		for round := range 40 {
			for turn := range 2 {
				var seqs []*engine.Seq
				var reqs []engine.Request
				for i := range 1 + (round+3*turn)%8 {
					s, err := r.NewSeq((i+round)%b.Rings, b.Pages)
					if err != nil {
						t.Fatal(err)
					}
					seqs = append(seqs, s)
					reqs = append(reqs, engine.Request{Prompt: devicetest.Prompt(60)[round+i : round+i+6], MaxNew: 7 + i})
				}
				var got []engine.Outcome
				var err error
				if turn == 0 {
					got, err = r.GenerateBatch(t.Context(), seqs, reqs, nobody)
				} else {
					got, _, err = r.Speculate(t.Context(), seqs, reqs, 1+round%3, nil, nobody)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range got {
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					all = append(all, o.IDs)
				}
			}
		}
		return all
	}
	eager := run(ways[0].opts)
	for _, w := range ways[1:] {
		got := run(w.opts)
		for i := range eager {
			if !slices.Equal(got[i], eager[i]) {
				t.Errorf("%s: generation %d: %v, launched %v", w.name, i, got[i], eager[i])
			}
		}
		emit(t, "ALTERNATES", map[string]any{"graph": w.name, "generations": len(eager), "equal": !t.Failed()})
	}
}
