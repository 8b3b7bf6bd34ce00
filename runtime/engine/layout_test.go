package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// tinyLayout is what the tiny config gives for every entry.
func tinyLayout(window, maxDraft int, groups ...Group) Layout {
	return Layout{Vocab: 2048, MaxPositions: 4096, Window: window, MaxDraft: maxDraft, PageTokens: 128, Groups: groups}
}

func TestLayoutOf(t *testing.T) {
	cfg := tiny(t, dsv4.Production).cfg
	o := dsv4.DefaultOptions()
	for _, tc := range []struct {
		entry  dsv4.Entry
		draft  int
		ratios []int
		want   Layout
	}{
		{dsv4.Prefill, 3, cfg.Ratios, tinyLayout(67, 3, Group{4, 11}, Group{128, 131})},
		{dsv4.Verify, 0, cfg.Ratios, tinyLayout(64, 0, Group{4, 8}, Group{128, 128})},
		{dsv4.Draft, 3, cfg.Ratios, tinyLayout(67, 3)},
		{dsv4.Decode, 1, []int{0, 0, 0, 0, 0, 0, 0}, tinyLayout(65, 1)},
		{dsv4.Decode, 1, []int{128, 0, 128, 128, 0, 0, 0}, tinyLayout(65, 1, Group{128, 129})},
	} {
		c := *cfg
		c.Ratios, o.MaxDraft = tc.ratios, tc.draft
		g, err := dsv4.Build(&c, tc.entry, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := LayoutOf(g)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s %v: -want +got:\n%s", tc.entry, tc.ratios, diff)
		}
	}
}

func TestLayoutOfErrors(t *testing.T) {
	build := func(change func(key, val string) (string, bool)) *ir.Graph {
		var meta []ir.Meta
		for _, m := range []ir.Meta{{Key: "vocab", Val: "9"}, {Key: "max_positions", Val: "8"}, {Key: "page_tokens", Val: "8"}, {Key: "window_ring", Val: "5"}, {Key: "max_draft", Val: "1"}, {Key: "c4_ring", Val: "9"}} {
			if v, keep := change(m.Key, m.Val); keep {
				meta = append(meta, ir.Meta{Key: m.Key, Val: v})
			}
		}
		b := ir.NewBuilder("decode", meta...)
		b.Output("y", b.Input("c4_close", ir.T(ir.I32, ir.Int(1))))
		b.Output("z", b.Input("c4_closed", ir.T(ir.I32, ir.Int(1)))) // no group
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	same := func(_, val string) (string, bool) { return val, true }
	without := func(name string) func(string, string) (string, bool) {
		return func(key, val string) (string, bool) { return val, key != name }
	}
	with := func(name, v string) func(string, string) (string, bool) {
		return func(key, val string) (string, bool) {
			if key == name {
				val = v
			}
			return val, true
		}
	}
	if l, err := LayoutOf(build(same)); err != nil || len(l.Groups) != 1 {
		t.Fatalf("layout %+v, error %v; want one group", l, err)
	}
	for _, tc := range []struct {
		change func(string, string) (string, bool)
		want   string
	}{
		{without("vocab"), `graph @decode: attribute vocab is "", want a number`},
		{without("max_draft"), `graph @decode: attribute max_draft is "", want a number`},
		{without("c4_ring"), `graph @decode: attribute c4_ring is "", want a number`},
		{with("window_ring", "x"), `graph @decode: attribute window_ring is "x", want a number`},
		{with("window_ring", "0"), "layout: vocab 9, max positions 8 and window 0 must be at least 1"},
		{with("vocab", "-2"), "layout: vocab -2, max positions 8 and window 5 must be at least 1"},
		{with("max_draft", "-1"), "layout: max draft -1 must be at least 0"},
		{with("page_tokens", "6"), "layout: ratio 4 with ring 9 does not fit pages of 6 tokens"},
		{with("page_tokens", "0"), "layout: ratio 4 with ring 9 does not fit pages of 0 tokens"},
		{with("c4_ring", "0"), "layout: ratio 4 with ring 0 does not fit pages of 8 tokens"},
	} {
		wantError(t, tc.want, func() error { _, err := LayoutOf(build(tc.change)); return err }, tc.want)
	}
}

func TestPages(t *testing.T) {
	l := small // 8 tokens a page
	for n, want := range map[int]int{0: 1, 1: 1, 8: 1, 9: 2, 64: 8} {
		if got := l.Pages(n); got != want {
			t.Errorf("%d positions take %d pages, want %d", n, got, want)
		}
	}
	if got := (Layout{Vocab: 1, MaxPositions: 99, Window: 1}).Pages(99); got != 1 {
		t.Errorf("a model without compressed pools takes %d pages, want 1", got)
	}
}
