package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
)

// fed is everything a run over some ids left behind.
type fed struct {
	rows   map[string][]float32 // every output at every position
	logits []float32            // after the last id
	pools  Tensors
}

// feedAll prefills ids[:n] in chunks, the MTP step beside it.
func feedAll(t *testing.T, m *tinyModel, ids []int32, n, chunk int) fed {
	t.Helper()
	e, s := m.one(t)
	f := fed{rows: map[string][]float32{}}
	var err error
	f.logits, err = e.Prefill(s, ids[:n], chunk, func(feed Feed, out Tensors) error {
		from := feed.Seq.Len + 1
		next := Feed{Seq: s, IDs: ids[from : from+len(feed.IDs)], Out: feed.Out}
		draft, err := e.Draft([]Feed{next}, ShapeOf([]Feed{next}), out[m.lastHidden()])
		if err != nil {
			return err
		}
		f.keep(out)
		f.rows["draft.hidden"] = append(f.rows["draft.hidden"], draft["hidden"].F...)
		f.rows["draft.logits"] = draft["logits"].F
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Len != n {
		t.Fatalf("the sequence has %d positions after %d ids", s.Len, n)
	}
	f.pools = e.allPools()
	return f
}

// keep appends the hidden states.
func (f *fed) keep(out Tensors) {
	for name, v := range out {
		if name != "logits" {
			f.rows[name] = append(f.rows[name], v.F...)
		}
	}
}

func (f *fed) same(t *testing.T, what string, g fed) {
	t.Helper()
	sameBits(t, what+": logits", f.logits, g.logits)
	sameRows(t, what, f.rows, g.rows)
	samePools(t, what, f.pools, g.pools)
}

// Every chunking of a prompt gives the same hidden states at every position, the
// same logits, and the same pools to the last bit, rings and MTP window included.
// Longer prompts are in long_test.go.
func TestPrefillChunks(t *testing.T) {
	for _, tc := range []struct {
		name     string
		numerics dsv4.Numerics
		ids      string
		n        int
		chunks   []int
	}{
		{"37 production", dsv4.Production, "short", 37, []int{1, 7, 32}},
		{"37 unrounded", dsv4.Unrounded, "short", 37, []int{7}},
		{"140 production", dsv4.Production, "long", 140, []int{7, 64}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tiny(t, tc.numerics)
			ids := goldenIDs(t, tc.ids)
			whole := feedAll(t, m, ids, tc.n, tc.n)
			for _, chunk := range tc.chunks {
				got := feedAll(t, m, ids, tc.n, chunk)
				whole.same(t, fmt.Sprintf("chunks of %d against one of %d", chunk, tc.n), got)
			}
		})
	}
}

// The decode entry is the prefill entry at T = 1, and both are the whole prompt in
// one step: positions around the borders of groups and window one by one, the
// stretches between them in one step.
func TestDecodeIsPrefillOfOne(t *testing.T) {
	const n = 140
	variants := []dsv4.Numerics{dsv4.Production}
	if exhaustive {
		variants = append(variants, dsv4.Unrounded)
	}
	for _, numerics := range variants {
		m := tiny(t, numerics)
		ids := goldenIDs(t, "long")
		a, sa := m.one(t)
		b, sb := m.one(t)
		for _, stretch := range []struct {
			to     int
			single bool
		}{{10, true}, {60, false}, {72, true}, {124, false}, {140, true}} {
			if !stretch.single {
				f, next := all(sa, ids, stretch.to-sa.Len)
				m.step(t, a, entryPrefill, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
				Commit([]Feed{f})
				b.restore(a.snapshot())
				sb.Len = sa.Len
			}
			for sa.Len < stretch.to {
				fa, next := all(sa, ids, 1)
				fb, _ := all(sb, ids, 1)
				want := m.step(t, a, entryPrefill, []Feed{fa}, [][]int32{next}, ShapeOf([]Feed{fa}))
				got := m.step(t, b, entryDecode, []Feed{fb}, [][]int32{next}, ShapeOf([]Feed{fb}))
				sameRows(t, fmt.Sprintf("%s: position %d", numerics, sa.Len), outRows(want, 0, 1), outRows(got, 0, 1))
				Commit([]Feed{fa, fb})
			}
		}
		samePools(t, fmt.Sprintf("%s: decode against prefill of one", numerics), a.allPools(), b.allPools())
		whole := feedAll(t, m, ids, n, n)
		samePools(t, fmt.Sprintf("%s: decode against one step of %d", numerics, n), whole.pools, b.allPools())
	}
}

func TestPrefillCallback(t *testing.T) {
	m := tiny(t, dsv4.Production)
	e, s := m.one(t)
	var lens []int
	stop := fmt.Errorf("enough")
	_, err := e.Prefill(s, goldenIDs(t, "short")[:9], 4, func(f Feed, _ Tensors) error {
		lens = append(lens, f.Seq.Len, len(f.IDs))
		if f.Seq.Len == 8 {
			return stop
		}
		return nil
	})
	if err != stop || !slices.Equal(lens, []int{0, 4, 4, 4, 8, 1}) {
		t.Errorf("callbacks at %v with error %v, want chunks 0+4, 4+4, 8+1 and the callback's error", lens, err)
	}
}
