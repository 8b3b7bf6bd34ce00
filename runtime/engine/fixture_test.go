package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/weights"
)

const (
	tinyDir   = "../../testdata/tiny-dsv4"
	goldenE2E = "../../testdata/golden/expected/e2e.safetensors"
)

// tinyModel is the tiny checkpoint under one numeric variant, with every layer's
// streams as outputs: a difference shows even where the logits hide it.
type tinyModel struct {
	cfg    *dsv4.Config
	file   *weights.Checkpoint // nil if the weights come from elsewhere
	ref    *Ref
	layout Layout
}

// tinyOptions are those of every tiny model of the tests: MaxDraft 3, and taps.
func tinyOptions(n dsv4.Numerics) dsv4.Options {
	o := dsv4.DefaultOptions()
	o.Numerics, o.Taps = n, true
	return o
}

// buildModel makes the entries (all of them if none are named) of a model.
func buildModel(cfg *dsv4.Config, o dsv4.Options, src eval.WeightSource, entries ...dsv4.Entry) (*tinyModel, error) {
	return buildSpeculating(cfg, o, src, nil, entries...)
}

// buildSpeculating is buildModel with whole speculative steps of some numbers of drafts.
func buildSpeculating(cfg *dsv4.Config, o dsv4.Options, src eval.WeightSource, drafts []int, entries ...dsv4.Entry) (*tinyModel, error) {
	if len(entries) == 0 {
		entries = dsv4.Entries
	}
	mod := &passes.Module{}
	for _, e := range entries {
		g, err := dsv4.Build(cfg, e, o)
		if err != nil {
			return nil, err
		}
		mod.Entries = append(mod.Entries, g)
	}
	for _, k := range drafts {
		g, err := dsv4.BuildSpeculate(cfg, k, o)
		if err != nil {
			return nil, err
		}
		mod.Entries = append(mod.Entries, g)
	}
	if err := passes.Run(mod); err != nil {
		return nil, err
	}
	ref, err := NewRef(mod.Entries, mod.Pack, src)
	if err != nil {
		return nil, err
	}
	layout, err := LayoutOf(mod.Entries[0])
	return &tinyModel{cfg: cfg, ref: ref, layout: layout}, err
}

func loadTiny(n dsv4.Numerics) (*tinyModel, error) {
	cfg, err := dsv4.LoadConfig(tinyDir)
	if err != nil {
		return nil, err
	}
	file, err := weights.Open(tinyDir)
	if err != nil {
		return nil, err
	}
	m, err := buildModel(cfg, tinyOptions(n), CheckpointSource{file})
	if err == nil {
		m.file = file
	}
	return m, err
}

var tinyModels = map[dsv4.Numerics]func() (*tinyModel, error){
	dsv4.Production: sync.OnceValues(func() (*tinyModel, error) { return loadTiny(dsv4.Production) }),
	dsv4.Unrounded:  sync.OnceValues(func() (*tinyModel, error) { return loadTiny(dsv4.Unrounded) }),
}

// tiny shares one executor per variant: programs are compiled once per shape.
func tiny(t testing.TB, n dsv4.Numerics) *tinyModel {
	t.Helper()
	m, err := tinyModels[n]()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// goldenIDs are the ids of a golden case, prompt and continuation.
func goldenIDs(t testing.TB, name string) []int32 {
	t.Helper()
	file, err := weights.Open(goldenE2E)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	raw, err := file.Lookup(name + ".ids")
	if err != nil {
		t.Fatal(err)
	}
	wide, err := raw.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, len(wide))
	for i, id := range wide {
		ids[i] = int32(id)
	}
	return ids
}

// The one-request engine of most tests: one ring and pages for 384 positions.
// Equal pool sizes share programs.
const onePages = 3

func (m *tinyModel) engine(t testing.TB, rings, pages int) *Engine {
	t.Helper()
	e, err := New(m.ref, m.layout, rings, pages)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (m *tinyModel) one(t testing.TB) (*Engine, *Seq) {
	t.Helper()
	e := m.engine(t, 1, onePages)
	s, err := e.NewSeq(0, onePages)
	if err != nil {
		t.Fatal(err)
	}
	return e, s
}

// step runs the entry and the draft entry over feeds and returns the outputs of
// both, the latter under "draft.": next is what follows each feed's tokens.
func (m *tinyModel) step(t testing.TB, e *Engine, entry string, feeds []Feed, next [][]int32, s Shape) Tensors {
	t.Helper()
	out, err := e.Step(entry, feeds, s)
	if err != nil {
		t.Fatal(err)
	}
	ahead := slices.Clone(feeds)
	for i := range ahead {
		ahead[i].IDs = next[i]
	}
	draft, err := e.Draft(ahead, s, out[m.lastHidden()])
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range draft {
		out["draft."+name] = v
	}
	return out
}

func (m *tinyModel) lastHidden() string { return fmt.Sprintf("hidden.%d", m.cfg.Layers-1) }

// all is a feed of ids whose every row gives logits, with the ids that follow.
func all(s *Seq, stream []int32, n int) (Feed, []int32) {
	f := Feed{Seq: s, IDs: stream[s.Len : s.Len+n]}
	for i := range n {
		f.Out = append(f.Out, i)
	}
	return f, stream[s.Len+1 : s.Len+1+n]
}

// pools are all pools of an engine; the names of main and draft do not clash.
func (e *Engine) allPools() Tensors {
	p := maps.Clone(poolsOf(e.state))
	maps.Copy(p, poolsOf(e.draft))
	return p
}

// snapshot copies all pools.
func (e *Engine) snapshot() Tensors {
	p := e.allPools()
	for name, v := range p {
		p[name] = v.Clone()
	}
	return p
}

// restore puts a snapshot of an engine of the same size back.
func (e *Engine) restore(snap Tensors) {
	for name, v := range e.allPools() {
		copy(v.F, snap[name].F)
		copy(v.I, snap[name].I)
	}
}

// numbers are elements from..to-1 of a tensor, bytes of packed rows as they are.
func numbers(v *eval.Tensor, from, to int) []float32 {
	if v.F != nil {
		return v.F[from:to:to]
	}
	var list []float32
	for _, x := range v.I[from:to] {
		list = append(list, float32(x))
	}
	return list
}

// spoil fills elements from..to-1 of a pool with NaN.
func spoil(v *eval.Tensor, from, to int) {
	for i := from; i < to; i++ {
		if v.F != nil {
			v.F[i] = canary
		} else {
			v.I[i] = canaryByte
		}
	}
}

// isSpoiled reports whether an element has what spoil leaves.
func isSpoiled(v *eval.Tensor, i int) bool {
	if v.F != nil {
		return v.F[i] != v.F[i]
	}
	return v.I[i] == canaryByte
}

// poolRows says how a pool is laid out: a ring of that many rows per request, or
// pages of that many entries made of ratio tokens each.
type poolRows struct {
	ring           int
	ratio, perPage int
}

func (m *tinyModel) rows(name string) poolRows {
	var layer, ratio int
	if n, _ := fmt.Sscanf(name, "layers.%d.", &layer); n == 1 {
		ratio = m.cfg.Ratios[layer]
	}
	switch {
	case strings.HasSuffix(name, "entries"):
		return poolRows{ratio: ratio, perPage: m.layout.PageTokens / ratio}
	case strings.HasSuffix(name, ".window"):
		return poolRows{ring: m.layout.Window}
	}
	for _, g := range m.layout.Groups {
		if g.Ratio == ratio {
			return poolRows{ring: g.Ring, ratio: ratio}
		}
	}
	panic("pool " + name + " has no layout")
}

// format is how a pool that is packed packs its rows.
func (m *tinyModel) format(name string) ir.RowFormat {
	if strings.HasSuffix(name, "index_entries") {
		return ir.RowFormat{To: ir.F4E2M1, Block: 32, Dims: m.cfg.IndexDim, D: m.cfg.IndexDim}
	}
	return ir.RowFormat{To: ir.F8E4M3, Block: 64, Dims: m.cfg.HeadDim - m.cfg.RopeDim, D: m.cfg.HeadDim}
}

// at is the pool row of a position, or of an entry.
func (p poolRows) at(s *Seq, i int) int {
	if p.ring > 0 {
		return s.Ring*p.ring + i%p.ring
	}
	return s.Pages[i/p.perPage]*p.perPage + i%p.perPage
}

// live is the range of positions or entries that a step at n or later may read.
func (m *tinyModel) live(p poolRows, n int) (from, to int) {
	switch {
	case p.ring == 0:
		return 0, n / p.ratio
	case p.ratio == 0:
		return max(0, n-m.cfg.Window+1), n
	case p.ratio == 4: // the group before the open one as well
		return max(0, n/4*4-4), n
	}
	return n / p.ratio * p.ratio, n
}

// written is the range of positions or entries whose rows hold their values
// after a step over positions from..to-1, apart from what was there before.
func (p poolRows) written(from, to int) (int, int) {
	if p.ring == 0 {
		return from / p.ratio, to / p.ratio
	}
	return max(from, to-p.ring), to
}

// liveRows copies what a later step of s may read, in position order, by pool.
func (m *tinyModel) liveRows(e *Engine, s *Seq) map[string][]float32 {
	out := map[string][]float32{}
	for name, v := range e.allPools() {
		p, width := m.rows(name), v.Shape[1]
		from, to := m.live(p, s.Len)
		for i := from; i < to; i++ {
			row := p.at(s, i)
			out[name] = append(out[name], numbers(v, row*width, (row+1)*width)...)
		}
	}
	return out
}

// load copies a request's rows from a snapshot under another placement.
func (m *tinyModel) load(e *Engine, s *Seq, snap Tensors, from *Seq) {
	for name, v := range e.allPools() {
		p, width := m.rows(name), v.Shape[1]
		first, last := p.written(0, s.Len)
		for i := first; i < last; i++ {
			a, b := p.at(s, i), p.at(from, i)
			if v.F != nil {
				copy(v.F[a*width:(a+1)*width], snap[name].F[b*width:(b+1)*width])
			} else {
				copy(v.I[a*width:(a+1)*width], snap[name].I[b*width:(b+1)*width])
			}
		}
	}
}

// canary is a bf16 NaN that no computation makes. Pools filled with it show
// writes to rows that are nobody's, and reads of them as NaN results.
var canary = math.Float32frombits(0x7fd50000)

// canaryByte is that of packed rows: with all bytes so, their scales are NaN.
const canaryByte = 0xFF

func (e *Engine) fillCanary() {
	for _, v := range e.allPools() {
		spoil(v, 0, v.Len())
	}
}

// sameBits reports the first difference between two float slices.
func sameBits(t testing.TB, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) {
			t.Errorf("%s: value %d is %v (%#08x), want %v (%#08x)", what, i, got[i], math.Float32bits(got[i]), w, math.Float32bits(w))
			return
		}
	}
}

// sameRows is sameBits for every name of two maps.
func sameRows(t testing.TB, what string, want, got map[string][]float32) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		sameBits(t, what+": "+name, want[name], got[name])
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is not expected", what, name)
		}
	}
}

// samePools compares two engines of one size row for row.
func samePools(t testing.TB, what string, want, got Tensors) {
	t.Helper()
	flat := func(p Tensors) map[string][]float32 {
		out := map[string][]float32{}
		for name, v := range p {
			out[name] = numbers(v, 0, v.Len())
		}
		return out
	}
	sameRows(t, what+": pools", flat(want), flat(got))
}

// outRows are rows from..from+n-1 of every output of a step. Logits have a row
// per output row, hidden states one per token row; both agree where every token
// gives logits.
func outRows(out Tensors, from, n int) map[string][]float32 {
	rows := map[string][]float32{}
	for name, v := range out {
		width := v.Len() / v.Shape[0]
		rows[name] = v.F[from*width : (from+n)*width]
	}
	return rows
}

// checkFinite guards against a comparison of NaN with NaN.
func checkFinite(t testing.TB, what string, v *eval.Tensor) {
	t.Helper()
	for i, x := range v.F {
		if x != x || math.IsInf(float64(x), 0) {
			t.Fatalf("%s: value %d is %v", what, i, x)
		}
	}
}

// poolsOf is the oracle's state; nil where there is none.
func poolsOf(s State) Tensors {
	t, _ := s.(Tensors)
	return t
}
