package cli

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

// entryNames are the entries of a model, for messages.
const entryNames = "prefill, decode, verify, draft, speculateK"

// draftsOfEntry is the number of drafts of an entry speculateK, for buildEntries; none of
// another entry. The rings get room for them. What no model has is refused.
func draftsOfEntry(f *flags, c *dsv4.Config, entry string, o *dsv4.Options) ([]int, error) {
	k := engine.DraftsOf(entry)
	switch {
	case k == 0:
		return nil, nil
	case k > maxSpeculate:
		return nil, refuse(fmt.Errorf("%s %s: at most %d draft tokens", f.origins("entry"), entry, maxSpeculate), "--entry "+string(dsv4.SpeculateEntry(maxSpeculate)))
	case c.NextN == 0:
		return nil, noGraph(f, entry)
	}
	o.MaxDraft = max(o.MaxDraft, k)
	return []int{k}, nil
}

// noGraph refuses a graph that other models have.
func noGraph(f *flags, entry string) error {
	return refuse(fmt.Errorf("%s %s: this model has no such graph", f.origins("entry"), entry), "--entry decode")
}

// buildEntry builds one entry.
func buildEntry(c *dsv4.Config, entry dsv4.Entry, o dsv4.Options) (*ir.Graph, error) {
	if k := engine.DraftsOf(string(entry)); k > 0 {
		return dsv4.BuildSpeculate(c, k, o)
	}
	return dsv4.Build(c, entry, o)
}
