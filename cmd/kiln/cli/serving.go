package cli

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// serving is what requests beside each other need.
type serving struct {
	requests  int   // how many there are
	prompts   []int // their lengths
	positions int   // of the longest one, new tokens and drafts included
	drafts    int   // of a step
}

// served are the sizes that they run in.
type served struct {
	limits       engine.Limits
	rings, pages int // of the pools
	prompts      []int
}

// defaultBatch is how many requests run at a time where no bundle says.
const defaultBatch = 16

// refPrefill are the prefill steps of the evaluator, which computes padding too.
var refPrefill = []int{4, 16, 32}

// size chooses the sizes, by --max-batch and --kv-tokens. Those of a bundle are given:
// less of them may be used.
func (w serving) size(f *flags, l engine.Layout, bundle *compiledModel) (*served, error) {
	batch, tokens := f.number("max-batch"), f.number("kv-tokens")
	s := &served{prompts: w.prompts}
	s.limits.Queue, s.limits.Drafts = max(1, w.requests), w.drafts
	if bundle != nil {
		if batch == 0 {
			batch = bundle.rings
		}
		if batch > bundle.rings {
			return nil, refuse(fmt.Errorf("%s %d: %s was compiled for %d requests at a time", f.origins("max-batch"), batch, bundle.path, bundle.rings),
				fmt.Sprintf("--max-batch %d, or kiln compile --batch 1,...,%d", bundle.rings, batch))
		}
		s.rings, s.pages, s.limits.SessionPages = bundle.rings, bundle.rings*bundle.pages, bundle.pages
	} else {
		if batch == 0 {
			batch = defaultBatch
		}
		batch = min(batch, w.requests)
		s.limits.SessionPages = l.Pages(w.positions)
		s.rings, s.pages = batch, batch*s.limits.SessionPages
	}
	s.limits.Sessions, s.limits.Pages = batch, s.pages
	if tokens == 0 || len(l.Groups) == 0 { // without compressed pools there are no pages to share
		return s, nil
	}
	pages := tokens / l.PageTokens
	switch {
	case pages < 1:
		return nil, refuse(fmt.Errorf("%s %d: a page has %d positions", f.origins("kv-tokens"), tokens, l.PageTokens), fmt.Sprintf("--kv-tokens %d", l.PageTokens))
	case bundle != nil && pages > s.pages:
		return nil, refuse(fmt.Errorf("%s %d: %s was compiled for %d positions in all", f.origins("kv-tokens"), tokens, bundle.path, s.pages*l.PageTokens), fmt.Sprintf("--kv-tokens %d", s.pages*l.PageTokens))
	}
	s.limits.Pages = min(pages, s.pages)
	s.limits.SessionPages = min(s.limits.SessionPages, s.limits.Pages)
	if bundle == nil {
		s.pages = s.limits.Pages
	}
	return s, nil
}

// most is how many requests a step with k drafts has rows for.
func (s *served) most(k int) int { return max(1, min(s.limits.Sessions, s.limits.Rows/(k+1))) }

// batches are the steps, with k drafts, of more requests past their prompts than some:
// powers of two, and the most that a step of one order class has.
func (s *served) batches(k, some int) []int {
	most := s.most(k)
	var list []int
	for n := 1; n < most; n *= 2 {
		if n > some {
			list = append(list, n)
		}
	}
	if most > some {
		list = append(list, most)
	}
	return list
}

// buckets are the plans.
func (s *served) buckets() []passes.Bucket {
	bind := func(t, b int) map[string]int {
		return map[string]int{"T": t, "B": b, "O": b, "R": s.rings, "P": s.limits.SessionPages, "N": s.pages}
	}
	var sizes []int
	for _, n := range s.prompts {
		sizes = append(sizes, prefillSizes(n)...)
	}
	slices.Sort(sizes)
	var out []passes.Bucket
	sizes = slices.Compact(sizes)
	for _, t := range sizes {
		out = append(out, passes.Bucket{Entry: "prefill", Bind: bind(t, 1)})
	}
	k := s.limits.Drafts
	if k == 0 {
		for _, b := range s.batches(0, 0) {
			out = append(out, passes.Bucket{Entry: "decode", Bind: bind(b, b)})
		}
	}
	some := 0
	for n := k; n > 0; n-- { // fewer drafts where there are no rows for more
		for _, b := range s.batches(n, some) {
			out = append(out, passes.Bucket{Entry: string(dsv4.SpeculateEntry(n)), Bind: bind(b*(n+1), b)})
		}
		some = s.most(n)
	}
	if k > 0 { // what start-up checks replay; the MTP block over the prompts
		out = append(out, passes.Bucket{Entry: "decode", Bind: bind(1, 1)})
		for _, t := range sizes {
			out = append(out, passes.Bucket{Entry: "draft", Bind: bind(t, 1)})
		}
	}
	return out
}

// stepRows is how many rows a decode step may have, so that all of them are of one
// order class: what a request gets does not depend on how many run beside it.
func stepRows(config passes.Config, bundle *compiledModel, chip string) (int, error) {
	const key = passes.FusedHCTokens
	set := config.Set
	if bundle != nil && bundle.bundle.Manifest.Settings.Passes != nil {
		set = bundle.bundle.Manifest.Settings.Passes.Set
	}
	row, err := passes.ThresholdOf(key, chip)
	if n, ok := set[key]; ok {
		row.Value = n // below 1: no step is fused
	}
	if err != nil || row.Value < 1 {
		return stepClassRows, err
	}
	return min(row.Value, stepClassRows), nil
}
