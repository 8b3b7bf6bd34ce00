package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

// wrongIDs are n ids that differ from the right ones at every place.
func wrongIDs(right []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = (right[i] + 1 + int32(37*i)) % 2048
	}
	return out
}

// A verify step over a token and K drafts is K+1 decode steps over the same
// tokens, to the last bit, whether the drafts are right or wrong, for one request
// and for two.
func TestVerifyIsDecodeSteps(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	for _, k := range []int{1, 2, 3} {
		for _, start := range []int{1, 63, 66, 126} {
			for _, right := range []bool{true, false} {
				t.Run(fmt.Sprintf("K=%d at %d right=%t", k, start, right), func(t *testing.T) {
					stream := slices.Clone(p.ids[0])
					if !right {
						copy(stream[start+1:], wrongIDs(stream[start+1:], k))
					}
					a, sa := m.one(t)
					b, sb := m.one(t)
					a.restore(p.pools(t, 0, start))
					b.restore(p.pools(t, 0, start))
					sa.Len, sb.Len = start, start

					f, next := all(sa, stream, k+1)
					verified := m.step(t, a, entryVerify, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
					Commit([]Feed{f})
					for i := range k + 1 {
						f, next := all(sb, stream, 1)
						decoded := m.step(t, b, entryDecode, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
						Commit([]Feed{f})
						sameRows(t, fmt.Sprintf("row %d", i), outRows(decoded, 0, 1), outRows(verified, i, 1))
					}
					samePools(t, "after all", b.allPools(), a.allPools())
				})
			}
		}
	}
	members := []member{{1, 62, 3}, {0, 126, 3}}
	want := []alone{m.alone(t, p, members[0], entryVerify), m.alone(t, p, members[1], entryVerify)}
	m.batch(t, p, members, want, entryVerify, scattered, nil)
}

// rejectRun decodes ids from start to end. Before every step it runs, and does
// not commit, 1..3 wrong drafts after the right token, the MTP step over them
// included. It compares every step with the run that never saw them.
func rejectRun(t *testing.T, m *tinyModel, ids []int32, prefix Tensors, start, end int) {
	t.Helper()
	clean, sc := m.one(t)
	dirty, sd := m.one(t)
	clean.restore(prefix)
	dirty.restore(prefix)
	sc.Len, sd.Len = start, start
	for sc.Len < end {
		n := sc.Len
		ks := []int{3, 1 + n%2} // the rings just have room for 3
		if exhaustive {
			ks = []int{1, 2, 3, 2}
		}
		for _, k := range ks {
			stream := append(slices.Clone(ids[:n+1]), wrongIDs(ids[n+1:], k+1)...)
			f, next := all(sd, stream, k+1)
			m.step(t, dirty, entryVerify, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
		}

		fc, next := all(sc, ids, 1)
		fd, _ := all(sd, ids, 1)
		want := m.step(t, clean, entryDecode, []Feed{fc}, [][]int32{next}, ShapeOf([]Feed{fc}))
		got := m.step(t, dirty, entryDecode, []Feed{fd}, [][]int32{next}, ShapeOf([]Feed{fd}))
		Commit([]Feed{fc, fd})
		what := fmt.Sprintf("position %d after %v rejected drafts", n, ks)
		sameRows(t, what, outRows(want, 0, 1), outRows(got, 0, 1))
		sameRows(t, what+": live rows", m.liveRows(clean, sc), m.liveRows(dirty, sd))
		if t.Failed() {
			return
		}
	}
}

// Not committing a step undoes it: wrong drafts before every decode step change
// nothing, across borders of groups of 4 and of 128 and where the window's ring
// and those of the compressors wrap. The golden `long` run is in long_test.go.
func TestRejectedDraftsChangeNothing(t *testing.T) {
	for _, tc := range []struct {
		numerics   dsv4.Numerics
		start, end int
	}{
		{dsv4.Production, 0, 13},    // groups of 4, the wrap of their ring of 11
		{dsv4.Production, 62, 70},   // window of 64, ring of 67
		{dsv4.Production, 126, 137}, // group of 128, its ring of 131, second wrap of the window
		{dsv4.Unrounded, 126, 130},
	} {
		t.Run(fmt.Sprintf("%s %d-%d", tc.numerics, tc.start, tc.end), func(t *testing.T) {
			m, p := tiny(t, tc.numerics), prefixesOf(t, tc.numerics)
			rejectRun(t, m, p.ids[0], p.pools(t, 0, tc.start), tc.start, tc.end)
		})
	}
}

// Accepting a drafts is committing a+1 tokens: the rest of a verify step leaves
// no trace. The MTP step runs over the accepted tokens alone, with the tokens
// that truly follow them.
func TestPartlyAcceptedDrafts(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	const start = 126
	ids := p.ids[0]
	for accepted := range 3 {
		e, s := m.one(t)
		e.restore(p.pools(t, 0, start))
		s.Len = start
		right := start + 1 + accepted
		stream := append(slices.Clone(ids[:right]), wrongIDs(ids[right:], 3-accepted)...)
		f := Feed{Seq: s, IDs: stream[start : start+4], Out: []int{0, 1, 2, 3}}
		out, err := e.Step(entryVerify, []Feed{f}, ShapeOf([]Feed{f}))
		if err != nil {
			t.Fatal(err)
		}
		h, err := eval.FromF32(ir.BF16, outRows(out, 0, 1+accepted)[m.lastHidden()], 1+accepted, m.cfg.HC, m.cfg.Hidden)
		if err != nil {
			t.Fatal(err)
		}
		ahead := Feed{Seq: s, IDs: ids[start+1 : right+1], Out: []int{0}}
		if _, err := e.Draft([]Feed{ahead}, ShapeOf([]Feed{ahead}), h); err != nil {
			t.Fatal(err)
		}
		Commit([]Feed{ahead})
		want := m.alone(t, p, member{0, start, 1 + accepted}, entryPrefill)
		sameRows(t, fmt.Sprintf("%d drafts accepted", accepted), want.live, m.liveRows(e, s))
	}
}

// A model without MaxDraft has rings of exactly the window and the groups. Its
// numbers are those of one with room for drafts, but rejected tokens destroy what
// later steps need: the control that the tests above can fail.
func TestRingRoom(t *testing.T) {
	m := tiny(t, dsv4.Production)
	o := tinyOptions(dsv4.Production)
	o.MaxDraft = 0
	tight, err := buildModel(m.cfg, o, CheckpointSource{m.file})
	if err != nil {
		t.Fatal(err)
	}
	if tight.layout.Window != m.cfg.Window || tight.layout.MaxDraft != 0 {
		t.Fatalf("layout %+v, want a window ring of %d and no drafts", tight.layout, m.cfg.Window)
	}
	ids := goldenIDs(t, "long")
	const n = 70
	a, b := feedAll(t, m, ids, n, 40), feedAll(t, tight, ids, n, 35)
	sameBits(t, "logits", a.logits, b.logits)
	sameRows(t, "rings with and without room", a.rows, b.rows)

	for _, tc := range []struct {
		m       *tinyModel
		pools   Tensors
		damaged bool
	}{{m, a.pools, false}, {tight, b.pools, true}} {
		e, s := tc.m.one(t)
		e.restore(tc.pools)
		s.Len = n
		before := tc.m.liveRows(e, s)
		f, next := all(s, ids, 4)
		tc.m.step(t, e, entryPrefill, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
		after := tc.m.liveRows(e, s)
		for name, rows := range before {
			same := slices.EqualFunc(rows, after[name], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
			if strings.HasSuffix(name, ".window") && same == tc.damaged {
				t.Errorf("MaxDraft %d: %s equal after 4 tokens that were not committed: %t", tc.m.layout.MaxDraft, name, same)
			}
		}
		f.IDs, f.Out = ids[n:n+2], []int{0, 1}
		_, err := e.Step(entryVerify, []Feed{f}, Shape{2, 1, 2, onePages})
		if refused := err != nil; refused != tc.damaged {
			t.Errorf("MaxDraft %d: one draft gives error %v", tc.m.layout.MaxDraft, err)
		}
	}
}
