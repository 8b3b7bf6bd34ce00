package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
)

// streams are three id sequences without a common part.
func streams(t testing.TB) [3][]int32 {
	long := goldenIDs(t, "long")
	reversed, mixed := slices.Clone(long), slices.Clone(long)
	slices.Reverse(reversed)
	for i, id := range long {
		mixed[i] = (7*id + int32(i)) % 2048
	}
	return [3][]int32{long, reversed, mixed}
}

// prefixes are the pools of each stream after some of its ids, made by prefilling
// one request in an engine of its own, each from the longest shorter one.
type prefixes struct {
	m    *tinyModel
	ids  [3][]int32
	kept [3]map[int]Tensors
}

var prefixCache = map[dsv4.Numerics]*prefixes{}

func prefixesOf(t *testing.T, numerics dsv4.Numerics) *prefixes {
	t.Helper()
	p := prefixCache[numerics]
	if p == nil {
		p = &prefixes{m: tiny(t, numerics), ids: streams(t)}
		for i := range p.kept {
			e, _ := p.m.one(t)
			p.kept[i] = map[int]Tensors{0: e.snapshot()}
		}
		prefixCache[numerics] = p
	}
	return p
}

// pools are the pools after n ids of stream i.
func (p *prefixes) pools(t *testing.T, i, n int) Tensors {
	t.Helper()
	if snap := p.kept[i][n]; snap != nil {
		return snap
	}
	from := 0
	for k := range p.kept[i] {
		if k < n {
			from = max(from, k)
		}
	}
	e, s := p.m.one(t)
	e.restore(p.kept[i][from])
	s.Len = from
	f, next := all(s, p.ids[i], n-from)
	p.m.step(t, e, entryPrefill, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
	p.kept[i][n] = e.snapshot()
	return p.kept[i][n]
}

// member is a request of a batch: stream i from position start, n tokens.
type member struct{ i, start, n int }

// alone is what a member gives by itself.
type alone struct {
	rows map[string][]float32
	live map[string][]float32
}

func (m *tinyModel) alone(t *testing.T, p *prefixes, x member, entry string) alone {
	t.Helper()
	e, s := m.one(t)
	e.restore(p.pools(t, x.i, x.start))
	s.Len = x.start
	f, next := all(s, p.ids[x.i], x.n)
	out := m.step(t, e, entry, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
	for name, v := range out {
		checkFinite(t, name, v)
	}
	Commit([]Feed{f})
	return alone{outRows(out, 0, x.n), m.liveRows(e, s)}
}

// placement says where the members of a batch live: pool sizes, and each
// member's ring and pages.
type placement struct {
	rings, pages int
	ring         []int
	table        [][]int
}

var (
	identity  = placement{3, 9, []int{0, 1, 2}, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}}
	scattered = placement{5, 13, []int{4, 0, 2}, [][]int{{12, 3, 7}, {1, 0, 11}, {5, 10, 8}}}
)

// batch runs members as one step in canary pools and checks each against itself
// alone, and that no row outside the members' own was touched.
func (m *tinyModel) batch(t *testing.T, p *prefixes, members []member, want []alone, entry string, pl placement, grow func(Shape) Shape) {
	t.Helper()
	e := m.engine(t, pl.rings, pl.pages)
	e.fillCanary()
	single := &Seq{Ring: 0, Pages: []int{0, 1, 2}}
	var feeds []Feed
	var next [][]int32
	for k, x := range members {
		s := &Seq{Ring: pl.ring[k], Pages: pl.table[k], Len: x.start}
		m.load(e, s, p.pools(t, x.i, x.start), single)
		f, after := all(s, p.ids[x.i], x.n)
		feeds, next = append(feeds, f), append(next, after)
	}
	shape := ShapeOf(feeds)
	if grow != nil {
		shape = grow(shape)
	}
	before := e.snapshot()
	out := m.step(t, e, entry, feeds, next, shape)
	m.checkUntouched(t, e, before, feeds)
	row := 0
	for k, x := range members {
		what := fmt.Sprintf("request %d (stream %d at %d, %d tokens)", k, x.i, x.start, x.n)
		sameRows(t, what, want[k].rows, outRows(out, row, x.n))
		row += x.n
		feeds[k].Seq.Len += x.n
		sameRows(t, what+": live rows", want[k].live, m.liveRows(e, feeds[k].Seq))
	}
}

// checkUntouched compares every pool row that the step must not write with what
// was there before.
func (m *tinyModel) checkUntouched(t *testing.T, e *Engine, before Tensors, feeds []Feed) {
	t.Helper()
	m.checkWrites(t, e, before, feeds, func(string) bool { return true }, true)
}

// checkWrites is checkUntouched of some pools, and tells of rows of feeds that were not
// written only if all should be.
func (m *tinyModel) checkWrites(t *testing.T, e *Engine, before Tensors, feeds []Feed, of func(pool string) bool, all bool) {
	t.Helper()
	for name, v := range e.allPools() {
		if !of(name) {
			continue
		}
		p, width := m.rows(name), v.Shape[1]
		mine := map[int]bool{}
		for _, f := range feeds {
			from, to := p.written(f.Seq.Len, f.Seq.Len+len(f.IDs))
			for i := from; i < to; i++ {
				mine[p.at(f.Seq, i)] = true
			}
		}
		old, format := numbers(before[name], 0, v.Len()), m.format(name)
		for i, x := range numbers(v, 0, v.Len()) {
			changed := math.Float32bits(x) != math.Float32bits(old[i])
			if changed && !mine[i/width] {
				t.Errorf("%s: row %d is nobody's and was written", name, i/width)
				break
			}
			bad := x != x
			if v.I != nil { // a scale that is NaN
				at := i % width
				bad = at >= format.Scales() && at < format.Used() && x == canaryByte
			}
			if all && mine[i/width] && bad {
				t.Errorf("%s: row %d was not written, or with NaN", name, i/width)
				break
			}
		}
	}
}

// mixedBatches have requests of different lengths at positions around 0, 3/4,
// 63..67 (window and ring) and 127/128 (group), one token included.
var mixedBatches = [][]member{
	{{0, 0, 1}, {1, 3, 2}, {2, 63, 3}},
	{{0, 127, 2}, {1, 4, 1}, {2, 0, 5}},
	{{1, 64, 4}, {2, 66, 1}, {0, 126, 3}},
	{{2, 128, 1}, {0, 133, 7}, {1, 1, 1}},
	{{0, 134, 2}, {1, 62, 70}, {2, 65, 1}},
}

// Requests of one step do not see each other: each gives what it gives alone, in
// whatever order they stand and wherever their rings and pages lie.
func TestBatchIsEachAlone(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {2, 0, 1}}
	variants := []dsv4.Numerics{dsv4.Production}
	if exhaustive {
		variants = append(variants, dsv4.Unrounded)
	}
	for _, numerics := range variants {
		m, p := tiny(t, numerics), prefixesOf(t, numerics)
		for b, members := range mixedBatches {
			var want []alone
			for _, x := range members {
				want = append(want, m.alone(t, p, x, entryPrefill))
			}
			for k, order := range orders {
				t.Run(fmt.Sprintf("%s %d order %v", numerics, b, order), func(t *testing.T) {
					place := []placement{identity, scattered}[k]
					m.batch(t, p, pick(members, order), pick(want, order), entryPrefill, place, nil)
				})
			}
		}
	}
}

func pick[V any](list []V, order []int) []V {
	out := make([]V, len(order))
	for i, k := range order {
		out[i] = list[k]
	}
	return out
}

func TestDecodeBatchIsEachAlone(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	for _, starts := range [][3]int{{0, 3, 63}, {127, 66, 4}, {133, 64, 128}, {67, 67, 67}} {
		var members []member
		var want []alone
		for i, start := range starts {
			members = append(members, member{i, start, 1})
			want = append(want, m.alone(t, p, members[i], entryDecode))
		}
		for k, order := range [][]int{{0, 1, 2}, {1, 2, 0}} {
			t.Run(fmt.Sprintf("%v order %v", starts, order), func(t *testing.T) {
				m.batch(t, p, pick(members, order), pick(want, order), entryDecode, []placement{identity, scattered}[k], nil)
			})
		}
	}
}

// Padding rows read nothing and write nothing: the real rows and pools of a
// padded step are those of the tight one.
func TestPaddingChangesNothing(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	for _, tc := range []struct {
		name    string
		entry   string
		members []member
		grow    func(Shape) Shape
	}{
		{"T", entryPrefill, mixedBatches[1], func(s Shape) Shape { s.T += 3; return s }},
		{"T by a group", entryPrefill, mixedBatches[0], func(s Shape) Shape { s.T += 128; return s }},
		{"B", entryPrefill, mixedBatches[1], func(s Shape) Shape { s.B += 2; return s }},
		{"O", entryPrefill, mixedBatches[1], func(s Shape) Shape { s.O += 4; return s }},
		{"P", entryPrefill, mixedBatches[3], func(s Shape) Shape { s.P += 2; return s }},
		{"T, B, O and P", entryPrefill, mixedBatches[3], func(s Shape) Shape { return Shape{s.T + 5, s.B + 1, s.O + 6, s.P + 1} }},
		{"decode", entryDecode, []member{{0, 127, 1}, {1, 66, 1}, {2, 3, 1}}, func(s Shape) Shape { return Shape{s.T + 1, s.B + 1, s.O + 1, s.P + 1} }},
		{"verify", entryVerify, []member{{0, 126, 3}, {1, 66, 1}, {2, 3, 2}}, func(s Shape) Shape { return Shape{12, 4, 12, s.P} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want []alone
			for _, x := range tc.members {
				want = append(want, m.alone(t, p, x, entryPrefill))
			}
			m.batch(t, p, tc.members, want, tc.entry, scattered, tc.grow)
		})
	}
}

// A padding row of the outputs is the same whatever the real rows are.
func TestPaddingRowsSeeNothing(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	var padding []map[string][]float32
	for _, x := range []member{{0, 127, 2}, {1, 3, 2}} {
		e, s := m.one(t)
		e.restore(p.pools(t, x.i, x.start))
		s.Len = x.start
		f, next := all(s, p.ids[x.i], x.n)
		out := m.step(t, e, entryPrefill, []Feed{f}, [][]int32{next}, Shape{T: 3, B: 1, O: 3, P: onePages})
		padding = append(padding, outRows(out, x.n, 1))
	}
	sameRows(t, "padding row", padding[0], padding[1])
}
