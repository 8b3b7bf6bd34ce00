//go:build long

package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
)

// A long prompt token by token and in chunks, and the decode entry over all of it.
func TestLongPromptOneByOne(t *testing.T) {
	for _, numerics := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		m := tiny(t, numerics)
		ids := goldenIDs(t, "long")
		const n = 300
		whole := feedAll(t, m, ids, n, n)
		for _, chunk := range []int{1, 7, 32, 64} {
			whole.same(t, fmt.Sprintf("%s: chunks of %d", numerics, chunk), feedAll(t, m, ids, n, chunk))
		}
		e, s := m.one(t)
		for s.Len < n {
			f, next := all(s, ids, 1)
			m.step(t, e, entryDecode, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
			Commit([]Feed{f})
		}
		samePools(t, string(numerics)+": decode", whole.pools, e.allPools())
	}
}

// Wrong drafts before every step, over the golden `long` continuation and over
// the first 140 positions; the engine has pages up to position 383.
func TestRejectedDraftsLong(t *testing.T) {
	ids := goldenIDs(t, "long")
	for _, numerics := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		m, p := tiny(t, numerics), prefixesOf(t, numerics)
		rejectRun(t, m, ids, p.pools(t, 0, 0), 0, 140)
		rejectRun(t, m, ids, feedAll(t, m, ids, 300, 32).pools, 300, 381)
	}
}

// Every weight of the model, turned into NaN, ends in an error. The prompt closes
// a group of 128 and has more entries of ratio 4 than the indexer picks.
//
// Left out are the weights whose only use is a choice: what they make are scores
// of topk, which by its definition never picks NaN. The indexer's scores then pick
// no entry and the gate's no expert, and the logits stay finite.
func TestEveryNaNWeight(t *testing.T) {
	m := tiny(t, dsv4.Production)
	g, err := dsv4.Build(m.cfg, dsv4.Prefill, tinyOptions(dsv4.Production))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range g.Weights {
		scored := strings.Contains(w.Name, ".ffn.gate") && !strings.HasPrefix(w.Name, "layers.0.")
		if w.Type.DType.IsInt() || scored || strings.Contains(w.Name, ".indexer.") {
			continue
		}
		t.Run(w.Name, func(t *testing.T) { checkPoison(t, m, w.Name, 140, dsv4.HeadLogits) })
	}
}
