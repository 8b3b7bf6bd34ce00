//go:build long

package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/tokenizer"
	"github.com/kiln-project/kiln/runtime/weights"
)

// acceptancePrompts are the golden prompts, and those of testdata/prompts, which are in
// no text that the tiny checkpoint was trained on.
func acceptancePrompts(t *testing.T) (names []string, prompts [][]int32) {
	t.Helper()
	file, err := weights.Open("../../testdata/golden/expected-production/e2e.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name   string
		prompt int
	}{{"one", 1}, {"short", 37}, {"edge128", 128}, {"long", 300}} {
		raw, err := file.Lookup(c.name + ".greedy.ids")
		if err != nil {
			t.Fatal(err)
		}
		wide, err := raw.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, id := range wide[:c.prompt] {
			ids = append(ids, int32(id))
		}
		names, prompts = append(names, c.name), append(prompts, ids)
	}
	tok, err := tokenizer.Load("../../testdata/tiny-dsv4/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := filepath.Glob("../../testdata/prompts/*.txt")
	if err != nil || len(texts) != 4 {
		t.Fatalf("%d prompts, want 4 (%v)", len(texts), err)
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names, prompts = append(names, filepath.Base(path)), append(prompts, append([]int32{0}, tok.Encode(string(text))...)) // begin of sentence
	}
	return names, prompts
}

// 256 new tokens from each prompt, in one draft a step at least 1.5 times fewer steps of
// the main model, and at least 0.6 of the drafts accepted on average. Each text is the
// plain greedy one. docs/measurements/acceptance-host.md has what it prints.
func TestAcceptance(t *testing.T) {
	const n = 256
	m := greedyTiny(t)
	names, prompts := acceptancePrompts(t)
	for k := 1; k <= 3; k++ {
		var mean, steps float64
		for i, p := range prompts {
			pages := m.Layout.Pages(len(p) + n)
			plain, _ := m.Engine(t, 1, pages)
			speculative, _ := m.Engine(t, 1, pages)
			st := devicetest.SpeculateIsGreedy(t, plain, speculative, pages, n, k, [][]int32{p})
			mean += st.Drafts.Acceptance()[0] / float64(len(prompts))
			steps += float64(st.Steps)
			t.Logf("K=%d | %s | %d | %d | %d | %.3f", k, names[i], len(p), n-1, st.Steps, st.Drafts.Acceptance())
		}
		fewer := float64(len(prompts)*(n-1)) / steps
		t.Logf("K=%d: mean acceptance of the first draft %.3f, %.2f times fewer steps", k, mean, fewer)
		if k == 1 && (mean < 0.6 || fewer < 1.5) {
			t.Errorf("K=1: mean acceptance %.3f and %.2f times fewer steps, want 0.6 and 1.5", mean, fewer)
		}
	}
}
