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
func TestPrefillChunks(t *testing.T) {
	for _, tc := range []struct {
		name     string
		numerics dsv4.Numerics
		ids      string
		n        int
		chunks   []int
	}{
		{"37 production", dsv4.Production, "short", 37, []int{1, 7, 32}},
		{"37 unrounded", dsv4.Unrounded, "short", 37, []int{1, 7, 32}},
		{"300 production", dsv4.Production, "long", 300, []int{1, 7, 32}},
		{"140 unrounded", dsv4.Unrounded, "long", 140, []int{7, 32}},
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

// The decode entry is the prefill entry at T = 1: positions around the borders
// of groups and window, from equal pools, and a whole short prompt.
func TestDecodeIsPrefillOfOne(t *testing.T) {
	for _, numerics := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		m := tiny(t, numerics)
		ids := goldenIDs(t, "long")
		a, sa := m.one(t)
		b, sb := m.one(t)
		for p := range 140 {
			if single := p < 10 || 60 <= p && p < 72 || 124 <= p; !single {
				// Between the borders both take the same cheap way.
				end := 60
				if p > 60 {
					end = 124
				}
				if sa.Len == p {
					for e, s := range map[*Engine]*Seq{a: sa, b: sb} {
						f, next := all(s, ids, end-p)
						m.step(t, e, entryPrefill, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
						Commit([]Feed{f})
					}
				}
				continue
			}
			fa, next := all(sa, ids, 1)
			fb, _ := all(sb, ids, 1)
			want := m.step(t, a, entryPrefill, []Feed{fa}, [][]int32{next}, Shape{T: 1, B: 1, O: 1, P: onePages})
			got, err := b.DecodeOne(sb, fb.IDs[0])
			if err != nil {
				t.Fatal(err)
			}
			ahead := Feed{Seq: sb, IDs: next, Out: []int{0}}
			draft, err := b.Draft([]Feed{ahead}, ShapeOf([]Feed{ahead}), got[m.lastHidden()])
			if err != nil {
				t.Fatal(err)
			}
			got["draft.logits"], got["draft.hidden"] = draft["logits"], draft["hidden"]
			sameRows(t, fmt.Sprintf("%s: position %d", numerics, p), outRows(want, 0, 1), outRows(got, 0, 1))
			Commit([]Feed{fa, fb})
		}
		if sa.Len != 140 || sb.Len != 140 {
			t.Fatalf("fed %d and %d positions, want 140", sa.Len, sb.Len)
		}
		samePools(t, string(numerics), a.allPools(), b.allPools())
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
