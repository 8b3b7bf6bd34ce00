package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

// small has rings and pages that fit on a line.
var small = Layout{Vocab: 10, MaxPositions: 64, Window: 5, PageTokens: 8, MaxDraft: 1, Groups: []Group{{4, 9}, {8, 9}}}

// ints reads the index inputs back.
func ints(t testing.TB, in Tensors) map[string][]int64 {
	t.Helper()
	out := map[string][]int64{}
	for name, v := range in {
		if v.DType != ir.I32 {
			t.Errorf("%s is %s, want i32", name, v.DType)
		}
		out[name] = v.I
	}
	return out
}

// Every index input of a step over three requests, worked out by hand.
func TestMetadata(t *testing.T) {
	feeds := []Feed{
		{Seq: &Seq{Ring: 2, Pages: []int{4, 1}, Len: 6}, IDs: []int32{3, 9, 1}, Out: []int{2}},                    // 6..8: closes 4-7 and 0-7
		{Seq: &Seq{Ring: 0, Pages: []int{0}, Len: 0}, IDs: []int32{7}},                                            // 0
		{Seq: &Seq{Ring: 1, Pages: []int{3, 5, 2}, Len: 11}, IDs: []int32{1, 2, 3, 4, 5, 6}, Out: []int{0, 3, 5}}, // 11..16: closes 8-11, 12-15, 8-15
	}
	in, err := Metadata(small, feeds, Shape{T: 12, B: 4, O: 5, P: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int64{
		"ids":  {3, 9, 1, 7, 1, 2, 3, 4, 5, 6, 0, 0},
		"pos":  {6, 7, 8, 0, 11, 12, 13, 14, 15, 16, -1, -1},
		"req":  {0, 0, 0, 1, 2, 2, 2, 2, 2, 2, -1, -1},
		"out":  {2, 4, 7, 9, -1},
		"ring": {2, 0, 1, -1},
		"pages": {
			4, 1, -1,
			0, -1, -1,
			3, 5, 2,
			-1, -1, -1,
		},
		// Position 11 is overwritten by 16 in the same step.
		"window_slots": {11, 12, 13, 0, -1, 7, 8, 9, 5, 6, -1, -1},
		"c4_slots":     {24, 25, 26, 0, 11, 12, 13, 14, 15, 16, -1, -1},
		"c8_slots":     {24, 25, 26, 0, 11, 12, 13, 14, 15, 16, -1, -1},
		// 12/4 + 4 and 12/8 + 4 places.
		"c4_close":       {1, 4, 8, -1, -1, -1, -1},
		"c4_entry_slots": {9, 10, 11, -1, -1, -1, -1},
		"c8_close":       {1, 8, -1, -1, -1},
		"c8_entry_slots": {4, 5, -1, -1, -1},
	}
	if diff := cmp.Diff(want, ints(t, in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := in["pages"].Shape; !slices.Equal(got, []int{4, 3}) {
		t.Errorf("pages has shape %v, want [4 3]", got)
	}
	if got, want := ShapeOf(feeds), (Shape{T: 10, B: 3, O: 4, P: 3}); got != want {
		t.Errorf("ShapeOf gives %+v, want %+v", got, want)
	}
	if got, want := ShapeOf(feeds[1:2]), (Shape{T: 1, B: 1, O: 1, P: 1}); got != want {
		t.Errorf("ShapeOf without outputs gives %+v, want %+v", got, want)
	}
}

// A layout without compressed pools has no pages and no groups.
func TestMetadataWindowOnly(t *testing.T) {
	l := Layout{Vocab: 10, MaxPositions: 64, Window: 5}
	in, err := Metadata(l, []Feed{{Seq: &Seq{Ring: 1, Len: 20}, IDs: []int32{4}}}, Shape{1, 1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int64{"ids": {4}, "pos": {20}, "req": {0}, "out": {-1}, "ring": {1}, "window_slots": {5}}
	if diff := cmp.Diff(want, ints(t, in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever the step, each pool row is written at most once and ends with the
// token that writing one by one would leave there.
func TestMetadataWritesAreLastWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var feeds []Feed
		for b := range rapid.IntRange(1, 3).Draw(t, "requests") {
			s := &Seq{Ring: 2 - b, Len: rapid.IntRange(0, 30).Draw(t, "len"), Pages: []int{20 + b, 10 + b, 3 * b, 30 + b, 3*b + 1, 3*b + 2, 40 + b}}
			feeds = append(feeds, Feed{Seq: s, IDs: make([]int32, rapid.IntRange(1, 24).Draw(t, "tokens"))})
		}
		shape := ShapeOf(feeds)
		shape.T += rapid.IntRange(0, 5).Draw(t, "padding")
		in, err := Metadata(small, feeds, shape)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]map[int64]int{"window_slots": {}, "c4_slots": {}, "c8_slots": {}, "c4_entry_slots": {}, "c8_entry_slots": {}}
		row := 0
		for _, f := range feeds {
			for i := range f.IDs {
				p := f.Seq.Len + i
				want["window_slots"][int64(f.Seq.Ring*small.Window+p%small.Window)] = row
				for _, g := range small.Groups {
					want[fmt.Sprintf("c%d_slots", g.Ratio)][int64(f.Seq.Ring*g.Ring+p%g.Ring)] = row
					if (p+1)%g.Ratio == 0 {
						per := small.PageTokens / g.Ratio
						e := p / g.Ratio
						want[fmt.Sprintf("c%d_entry_slots", g.Ratio)][int64(f.Seq.Pages[e/per]*per+e%per)] = row
					}
				}
				row++
			}
		}
		for name, rows := range want {
			got := map[int64]int{}
			for i, slot := range in[name].I {
				if slot < 0 {
					continue
				}
				if _, dup := got[slot]; dup {
					t.Fatalf("%s: row %d is written twice", name, slot)
				}
				got[slot] = i
				if close, ok := in[strings.Replace(name, "entry_slots", "close", 1)]; ok && strings.HasSuffix(name, "entry_slots") {
					got[slot] = int(close.I[i])
				}
			}
			if diff := cmp.Diff(rows, got); diff != "" {
				t.Fatalf("%s, -one by one +step:\n%s", name, diff)
			}
		}
	})
}

func TestMetadataErrors(t *testing.T) {
	seq := func(n int) *Seq { return &Seq{Ring: 0, Pages: []int{0, 1}, Len: n} }
	wide := &Seq{Ring: 0, Pages: slices.Repeat([]int{0}, 9), Len: 60}
	shared := seq(0)
	for _, tc := range []struct {
		name  string
		feeds []Feed
		shape Shape // zero: the smallest that fits
		want  string
	}{
		{"no feeds", nil, Shape{1, 1, 1, 1}, "a step needs at least one token"},
		{"no tokens", []Feed{{Seq: seq(0)}}, Shape{1, 1, 1, 2}, "a step needs at least one token"},
		{"one without tokens", []Feed{{Seq: seq(0), IDs: []int32{1}}, {Seq: &Seq{Ring: 1}}}, Shape{}, "request 1: no tokens"},
		{"vocabulary", []Feed{{Seq: seq(0), IDs: []int32{1, 10}}}, Shape{}, "request 0: token 1: id 10 is out of vocabulary (10)"},
		{"negative id", []Feed{{Seq: seq(0), IDs: []int32{-1}}}, Shape{}, "request 0: token 0: id -1 is out of vocabulary (10)"},
		{"output row", []Feed{{Seq: seq(0), IDs: []int32{1}, Out: []int{1}}}, Shape{}, "request 0: output row 1 is outside its 1 tokens"},
		{"negative output row", []Feed{{Seq: seq(0), IDs: []int32{1}, Out: []int{-1}}}, Shape{}, "request 0: output row -1 is outside its 1 tokens"},
		{"last position", []Feed{{Seq: wide, IDs: make([]int32, 5)}}, Shape{}, "request 0: position 64 is beyond max_position_embeddings 64"},
		{"page table", []Feed{{Seq: seq(15), IDs: []int32{1, 1}}}, Shape{}, "request 0: position 16 is beyond its 2 pages of 8 tokens"},
		{"one ring twice", []Feed{{Seq: seq(0), IDs: []int32{1}}, {Seq: seq(3), IDs: []int32{1}}}, Shape{}, "request 1: ring 0 is used by two requests of the step"},
		{"one sequence twice", []Feed{{Seq: shared, IDs: []int32{1}}, {Seq: shared, IDs: []int32{1}}}, Shape{}, "request 1: ring 0 is used by two requests of the step"},
		{"negative ring", []Feed{{Seq: &Seq{Ring: -1, Pages: []int{0}}, IDs: []int32{1}}}, Shape{}, "request 0: ring -1 and length 0 must be at least 0"},
		{"negative length", []Feed{{Seq: seq(-1), IDs: []int32{1}}}, Shape{}, "request 0: ring 0 and length -1 must be at least 0"},
		{"negative page", []Feed{{Seq: &Seq{Pages: []int{0, -1}}, IDs: []int32{1}}}, Shape{}, "request 0: page 1 of its table is -1, want at least 0"},
		{"T", []Feed{{Seq: seq(0), IDs: []int32{1, 2}}}, Shape{1, 1, 1, 2}, "step shape {T:1 B:1 O:1 P:2} is too small for {T:2 B:1 O:1 P:2}"},
		{"B", []Feed{{Seq: seq(0), IDs: []int32{1, 2}}}, Shape{2, 0, 1, 2}, "step shape {T:2 B:0 O:1 P:2} is too small for {T:2 B:1 O:1 P:2}"},
		{"O", []Feed{{Seq: seq(0), IDs: []int32{1, 2}, Out: []int{0, 1}}}, Shape{2, 1, 1, 2}, "step shape {T:2 B:1 O:1 P:2} is too small for {T:2 B:1 O:2 P:2}"},
		{"P", []Feed{{Seq: seq(0), IDs: []int32{1, 2}}}, Shape{2, 1, 1, 1}, "step shape {T:2 B:1 O:1 P:1} is too small for {T:2 B:1 O:1 P:2}"},
	} {
		shape := tc.shape
		if shape == (Shape{}) {
			shape = ShapeOf(tc.feeds)
		}
		wantError(t, tc.name, func() error { _, err := Metadata(small, tc.feeds, shape); return err }, tc.want)
	}
}

// wantError checks that f fails with exactly one line.
func wantError(t testing.TB, name string, f func() error, want string) {
	t.Helper()
	switch err := f(); {
	case err == nil:
		t.Errorf("%s: no error, want %q", name, want)
	case err.Error() != want:
		t.Errorf("%s: error %q, want %q", name, err, want)
	}
}

// perturbed is a step to damage: its index inputs and pools, and what a correct
// run gives.
type perturbed struct {
	entry string
	bind  map[string]int
	in    Tensors
	e     *Engine
	pools Tensors // before the step
	state Tensors // the entry's part of e's pools
}

func (p *perturbed) run(in Tensors) (Tensors, error) {
	p.e.restore(p.pools)
	out, err := p.e.exec.Run(p.entry, p.bind, in, p.state)
	if err != nil {
		return nil, err
	}
	for name, v := range p.state {
		out["!"+name] = v.Clone()
	}
	return out, nil
}

// Every element of every index input matters: changed alone, the outputs or the
// pools change, or the step fails.
func TestMetadataFieldsMatter(t *testing.T) {
	m, p := tiny(t, dsv4.Production), prefixesOf(t, dsv4.Production)
	e := m.engine(t, 3, 9)
	var feeds []Feed
	var next []Feed
	single := &Seq{Pages: []int{0, 1, 2}}
	for k, x := range []member{{0, 126, 3}, {1, 3, 1}, {2, 131, 2}} {
		s, err := e.NewSeq(k, onePages)
		if err != nil {
			t.Fatal(err)
		}
		s.Len = x.start
		m.load(e, s, p.pools(t, x.i, x.start), single)
		f, ahead := all(s, p.ids[x.i], x.n)
		feeds, next = append(feeds, f), append(next, Feed{Seq: s, IDs: ahead, Out: f.Out})
	}
	shape := ShapeOf(feeds)
	pools := e.snapshot()

	main := &perturbed{entry: entryPrefill, e: e, pools: pools, state: poolsOf(e.state)}
	var err error
	if main.in, err = Metadata(m.layout, feeds, shape); err != nil {
		t.Fatal(err)
	}
	if main.bind, err = e.bind(entryPrefill, shape); err != nil {
		t.Fatal(err)
	}
	want, err := main.run(main.in)
	if err != nil {
		t.Fatal(err)
	}
	main.check(t, want)

	draft := &perturbed{entry: entryDraft, e: e, pools: pools, state: poolsOf(e.draft), bind: map[string]int{"T": shape.T, "B": shape.B, "O": shape.O, "R": 3}}
	if draft.in, err = Metadata(m.layout.Draft(), next, shape); err != nil {
		t.Fatal(err)
	}
	draft.in["h"] = want[m.lastHidden()]
	if want, err = draft.run(draft.in); err != nil {
		t.Fatal(err)
	}
	draft.check(t, want)
}

func (p *perturbed) check(t *testing.T, want Tensors) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(p.in)) {
		v := p.in[name]
		for i := range max(len(v.I), min(1, len(v.F))) {
			for _, change := range p.changes(name, i) {
				in := maps.Clone(p.in)
				bad := v.Clone()
				if v.F != nil {
					bad.F[i] += 1
				} else {
					bad.I[i] = change
				}
				in[name] = bad
				got, err := p.run(in)
				if err == nil && equalTensors(want, got) {
					t.Errorf("%s: %s[%d] = %d instead of %v changes nothing", p.entry, name, i, change, at(v, i))
				}
			}
		}
	}
}

func at(v *eval.Tensor, i int) any {
	if v.F != nil {
		return v.F[i]
	}
	return v.I[i]
}

// changes are the wrong values to try for an element: the next number and -1, one
// of them unless the test is exhaustive. A place that holds no row gets row 0.
func (p *perturbed) changes(name string, i int) []int64 {
	v := p.in[name]
	if v.F != nil {
		return []int64{0}
	}
	x := v.I[i]
	switch {
	case name == "pages" && i%onePages >= []int{1, 1, 2}[i/onePages]:
		return nil // no entry of that page is made or seen
	case x < 0 && strings.HasSuffix(name, "_close"):
		return nil // an entry that is made and not stored is not seen
	case x < 0:
		return []int64{0}
	}
	both := []int64{x + 1, -1}
	if exhaustive {
		return both
	}
	return both[i%2:][:1]
}

func equalTensors(a, b Tensors) bool {
	return maps.EqualFunc(a, b, func(x, y *eval.Tensor) bool {
		return slices.Equal(x.I, y.I) && slices.EqualFunc(x.F, y.F, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
	})
}
