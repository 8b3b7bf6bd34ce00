package devicetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/runtime/engine"
)

// SpeculativePrompts are prompts of batch requests, of one length, so that they meet one
// binding. What the requests accept differs from each other.
func SpeculativePrompts(batch int) [][]int32 {
	var list [][]int32
	for i := range batch {
		list = append(list, Prompt(6 + 3*i)[3*i:])
	}
	return list
}

// SpeculateIsGreedy tests that n new tokens of a batch of requests with k drafts a step
// are those of plain greedy steps, and returns what was counted. Both engines are
// fresh.
func SpeculateIsGreedy(t testing.TB, plain, speculative *engine.Engine, pages, n, k int, prompts [][]int32) engine.Stats {
	t.Helper()
	var reqs []engine.Request
	for _, p := range prompts {
		reqs = append(reqs, engine.Request{Prompt: p, MaxNew: n})
	}
	seqs := func(e *engine.Engine) []*engine.Seq {
		var list []*engine.Seq
		for i := range prompts {
			s, err := e.NewSeq(i, pages)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		return list
	}
	nobody := func(int, int32) error { return nil }
	want, err := plain.GenerateBatch(t.Context(), seqs(plain), reqs, nobody)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := speculative.Speculate(t.Context(), seqs(speculative), reqs, k, nil, nobody)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reqs {
		what := fmt.Sprintf("K=%d, request %d of %d", k, i, len(reqs))
		if want[i].Err != nil || got[i].Err != nil {
			t.Fatalf("%s: errors %v and %v", what, want[i].Err, got[i].Err)
		}
		if len(want[i].IDs) != n || !slices.Equal(want[i].IDs, got[i].IDs) {
			t.Errorf("%s: plain %v, speculative %v", what, want[i].IDs, got[i].IDs)
		}
	}
	return stats
}
