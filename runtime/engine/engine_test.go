package engine

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
)

func TestNewErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	noDecode, err := buildModel(m.cfg, tinyOptions(dsv4.Production), CheckpointSource{m.file}, dsv4.Prefill)
	if err != nil {
		t.Fatal(err)
	}
	wrong := m.layout
	wrong.Groups = nil
	for _, tc := range []struct {
		name         string
		exec         Executor
		layout       Layout
		rings, pages int
		want         string
	}{
		{"rings", m.ref, m.layout, 0, 1, "engine: 0 rings and 1 pages: want at least 1"},
		{"pages", m.ref, m.layout, 1, 0, "engine: 1 rings and 0 pages: want at least 1"},
		{"layout", m.ref, Layout{}, 1, 1, "layout: vocab 0, max positions 0 and window 0 must be at least 1"},
		{"entry", noDecode.ref, m.layout, 1, 1, `no entry "decode": have [prefill]`},
		{"layout without groups", m.ref, wrong, 1, 1, "state !layers.2.comp_k: f32[11*R,256]: extent N is not bound"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.exec, tc.layout, tc.rings, tc.pages)
			if tc.name == "layout without groups" { // which pool comes first is not the point
				if err == nil || !strings.Contains(err.Error(), "is not bound") {
					t.Errorf("error %v, want one about an extent that is not bound", err)
				}
				return
			}
			wantError(t, tc.name, func() error { return err }, tc.want)
		})
	}
}

func TestNewSeq(t *testing.T) {
	e := tiny(t, dsv4.Production).engine(t, 2, 5)
	s, err := e.NewSeq(1, 2)
	if err != nil || s.Ring != 1 || !slices.Equal(s.Pages, []int{2, 3}) || s.Len != 0 {
		t.Errorf("sequence %+v, error %v; want ring 1, pages 2 and 3, length 0", s, err)
	}
	for _, bad := range [][2]int{{-1, 1}, {2, 1}, {1, 3}, {0, 0}, {0, 6}} {
		if s, err := e.NewSeq(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "does not fit 2 rings and 5 pages") {
			t.Errorf("NewSeq(%d, %d) gives %+v and error %v", bad[0], bad[1], s, err)
		}
	}
}

// A step that cannot be is refused by name, before and while it runs.
func TestStepErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	e := m.engine(t, 2, 6)
	seq := func(ring int) *Seq { return &Seq{Ring: ring, Pages: []int{3 * ring, 3*ring + 1, 3*ring + 2}} }
	one := func(ids ...int32) []Feed { return []Feed{{Seq: seq(0), IDs: ids}} }
	long := make([]int32, 4)
	far := &Seq{Ring: 0, Pages: make([]int, 33), Len: 4093}
	for _, tc := range []struct {
		name  string
		entry string
		feeds []Feed
		shape Shape
		want  string // part of the error
	}{
		{"vocabulary", entryPrefill, one(5, 2048), Shape{2, 1, 1, 3}, "request 0: token 1: id 2048 is out of vocabulary (2048)"},
		{"negative id", entryDecode, one(-1), Shape{1, 1, 1, 3}, "request 0: token 0: id -1 is out of vocabulary (2048)"},
		{"last position", entryPrefill, []Feed{{Seq: far, IDs: long}}, Shape{4, 1, 1, 33}, "request 0: position 4096 is beyond max_position_embeddings 4096"},
		{"page table", entryDecode, []Feed{{Seq: &Seq{Pages: []int{1}, Len: 128}, IDs: []int32{1}}}, Shape{1, 1, 1, 1}, "request 0: position 128 is beyond its 1 pages of 128 tokens"},
		{"one ring", entryDecode, []Feed{one(1)[0], one(2)[0]}, Shape{2, 2, 2, 3}, "request 1: ring 0 is used by two requests of the step"},
		{"decode T", entryDecode, one(1, 2), Shape{2, 1, 2, 3}, "entry decode: shape {T:2 B:1 O:2 P:3}: want T = O = B"},
		{"decode O", entryDecode, one(1), Shape{1, 1, 2, 3}, "entry decode: shape {T:1 B:1 O:2 P:3}: want T = O = B"},
		{"verify without drafts", entryVerify, one(1), Shape{1, 1, 1, 3}, "entry verify: shape {T:1 B:1 O:1 P:3}: want T = O = B*(K+1), K >= 1"},
		{"verify ragged", entryVerify, one(1, 2, 3), Shape{3, 2, 3, 3}, "entry verify: shape {T:3 B:2 O:3 P:3}: want T = O = B*(K+1), K >= 1"},
		{"verify O", entryVerify, one(1, 2), Shape{2, 1, 1, 3}, "entry verify: shape {T:2 B:1 O:1 P:3}: want T = O = B*(K+1), K >= 1"},
		{"verify too many drafts", entryVerify, one(1, 2, 3, 4, 5), Shape{5, 1, 5, 3}, "entry verify: shape {T:5 B:1 O:5 P:3} has 4 drafts, the rings have room for 3"},
		{"draft as a step", entryDraft, one(1), Shape{1, 1, 1, 3}, `entry "draft" is not a step of the main model`},
		{"unknown entry", "prefil", one(1), Shape{1, 1, 1, 3}, `entry "prefil" is not a step of the main model`},
		{"ring beyond the pools", entryPrefill, []Feed{{Seq: seq(2), IDs: []int32{1}}}, Shape{1, 1, 1, 3}, "scatter_rows: slot 0: row 134 is outside 0..133"},
		{"page beyond the pools", entryPrefill, []Feed{{Seq: &Seq{Pages: []int{6}}, IDs: long}}, Shape{4, 1, 1, 1}, "scatter_rows: slot 0: row 192 is outside 0..191"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := e.Step(tc.entry, tc.feeds, tc.shape)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tc.want)
			}
		})
	}
}

// An entry that the module lacks is named.
func TestMissingEntry(t *testing.T) {
	m := tiny(t, dsv4.Production)
	short, err := buildModel(m.cfg, tinyOptions(dsv4.Production), CheckpointSource{m.file}, dsv4.Decode)
	if err != nil {
		t.Fatal(err)
	}
	e, s := short.one(t)
	f := []Feed{{Seq: s, IDs: []int32{1, 2}}}
	wantError(t, "prefill", func() error { _, err := e.Step(entryPrefill, f, ShapeOf(f)); return err }, `no entry "prefill": have [decode]`)
	h, err := eval.New(ir.T(ir.BF16, ir.Int(2), ir.Int(m.cfg.HC), ir.Int(m.cfg.Hidden)))
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "draft", func() error { _, err := e.Draft(f, ShapeOf(f), h); return err }, "the model has no draft entry (no MTP block)")
	if short.ref.Has("prefill") || !short.ref.Has("decode") || short.ref.Device() != "ref" {
		t.Errorf("executor %s has prefill: %t, decode: %t", short.ref.Device(), short.ref.Has("prefill"), short.ref.Has("decode"))
	}
}

func TestDraftErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	e, s := m.one(t)
	f := []Feed{{Seq: s, IDs: []int32{1, 2}}}
	shape := ShapeOf(f)
	h := func(rows int) *eval.Tensor {
		v, err := eval.New(ir.T(ir.BF16, ir.Int(rows), ir.Int(m.cfg.HC), ir.Int(m.cfg.Hidden)))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		name  string
		feeds []Feed
		h     *eval.Tensor
		want  string
	}{
		{"no hidden state", f, nil, "the draft step needs the main step's last hidden output"},
		{"rows", f, h(3), "graph @draft: input %h is bf16[3,4,256], want bf16[2,4,256]"},
		{"vocabulary", []Feed{{Seq: s, IDs: []int32{1, -7}}}, h(2), "request 0: token 1: id -7 is out of vocabulary (2048)"},
	} {
		wantError(t, tc.name, func() error { _, err := e.Draft(tc.feeds, shape, tc.h); return err }, tc.want)
	}
}

func TestPrefillErrors(t *testing.T) {
	e, s := tiny(t, dsv4.Production).one(t)
	wantError(t, "chunk", func() error { _, err := e.Prefill(s, []int32{1}, -1, nil); return err }, "prefill: chunk -1, want at least 1")
	wantError(t, "empty", func() error { _, err := e.Prefill(s, nil, 8, nil); return err }, "prefill: the prompt is empty")
	wantError(t, "id", func() error { _, err := e.Prefill(s, []int32{1, 9999}, 8, nil); return err }, "request 0: token 1: id 9999 is out of vocabulary (2048)")
	if s.Len != 0 {
		t.Errorf("refused prompts advanced the sequence to %d", s.Len)
	}
}

func TestForceErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	o := tinyOptions(dsv4.Production)
	o.Taps = false
	bare, err := buildModel(m.cfg, o, CheckpointSource{m.file})
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{5, 6, 7}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name    string
		ctx     context.Context
		m       *tinyModel
		prefill int
		layers  int
		taps    bool
		mtp     bool
		want    string
	}{
		{"no prompt", t.Context(), m, 0, 6, false, false, "prefill is 0, want 1..3 (the number of ids)"},
		{"prompt too long", t.Context(), m, 4, 6, false, false, "prefill is 4, want 1..3 (the number of ids)"},
		{"MTP at the end", t.Context(), m, 3, 6, false, true, "MTP at the last prompt position needs the id that follows it: give more than 3 ids"},
		{"no taps", t.Context(), bare, 2, 6, true, false, "the model has no output hidden.0: it was built without taps, or with fewer layers"},
		{"too many layers", t.Context(), m, 2, 7, true, false, "the model has no output hidden.6: it was built without taps, or with fewer layers"},
		{"too many layers for MTP", t.Context(), m, 2, 7, false, true, "the draft step needs the main step's last hidden output"},
		{"cancelled", cancelled, m, 2, 6, false, false, "context canceled"},
	} {
		e, s := tc.m.one(t)
		wantError(t, tc.name, func() error {
			_, err := e.Force(tc.ctx, s, ids, tc.prefill, 2, tc.layers, tc.taps, tc.mtp)
			return err
		}, tc.want)
	}
}

// Force records what separate steps give.
func TestForceIsSteps(t *testing.T) {
	m := tiny(t, dsv4.Production)
	ids := goldenIDs(t, "long")[:74]
	const prefill = 70 // above 64: the last 8 rows of hidden states are kept
	e, s := m.one(t)
	got, err := e.Force(t.Context(), s, ids, prefill, 32, m.cfg.Layers, true, true)
	if err != nil {
		t.Fatal(err)
	}
	want := feedAll(t, m, ids, prefill, 32)
	sameBits(t, "prefill logits", want.logits, got.PrefillLogits)
	sameBits(t, "prefill MTP logits", want.rows["draft.logits"], got.PrefillMTP)
	width := m.cfg.HC * m.cfg.Hidden
	for l, rows := range got.Hidden {
		all := want.rows["hidden."+string(rune('0'+l))]
		sameBits(t, "hidden states", all[(prefill-8)*width:], rows)
	}
	if !slices.Equal(got.HiddenShape, []int{8, m.cfg.HC, m.cfg.Hidden}) || len(got.Hidden) != m.cfg.Layers {
		t.Errorf("%d layers of hidden states %v", len(got.Hidden), got.HiddenShape)
	}
	if len(got.DecodeLogits) != 4 || len(got.DecodeMTP) != 3 || s.Len != len(ids) {
		t.Fatalf("%d decode and %d MTP rows, length %d; want 4, 3 and %d", len(got.DecodeLogits), len(got.DecodeMTP), s.Len, len(ids))
	}
	a, sa := m.one(t)
	a.restore(want.pools)
	sa.Len = prefill
	for i := range 3 {
		f, next := all(sa, ids, 1)
		out := m.step(t, a, entryDecode, []Feed{f}, [][]int32{next}, ShapeOf([]Feed{f}))
		Commit([]Feed{f})
		sameBits(t, "decode logits", out["logits"].F, got.DecodeLogits[i])
		sameBits(t, "decode MTP logits", out["draft.logits"].F, got.DecodeMTP[i])
	}
	for n, want := range map[int]int{1: 1, 64: 64, 65: 8, 300: 8} {
		if got := hiddenRows(n); got != want {
			t.Errorf("%d hidden rows of %d are kept, want %d", got, n, want)
		}
	}
}

func TestNewRefErrors(t *testing.T) {
	m := tiny(t, dsv4.Production)
	g, err := dsv4.Build(m.cfg, dsv4.Decode, dsv4.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "twice", func() error { _, err := NewRef([]*ir.Graph{g, g}, nil, CheckpointSource{m.file}); return err }, `entry "decode" is given twice`)

	ref, err := NewRef([]*ir.Graph{g}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(ref, m.layout, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSeq(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.DecodeOne(s, 1); err == nil || !strings.Contains(err.Error(), "no weights are bound") || !strings.Contains(err.Error(), "embed") {
		t.Errorf("a step without weights: error %v", err)
	}
	wantError(t, "state", func() error { _, err := ref.NewState("verify", nil); return err }, `no entry "verify": have [decode]`)
}
