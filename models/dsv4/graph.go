package dsv4

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// Numerics chooses how caches are rounded.
type Numerics string

// The two numeric variants of docs/dsv4.md section 3.
const (
	// Production rounds KV vectors through e4m3 and indexer vectors through e2m1,
	// as the model was trained.
	Production Numerics = "production"
	// Unrounded keeps both in bf16, for comparison with the plain reference.
	Unrounded Numerics = "unrounded"
)

// ParseNumerics reads a numerics name.
func ParseNumerics(s string) (Numerics, error) {
	switch n := Numerics(s); n {
	case Production, Unrounded:
		return n, nil
	}
	return "", fmt.Errorf("unknown numerics %q: want %s or %s", s, Production, Unrounded)
}

// Head says what the heads give of each wanted row. What comes first says more: it
// serves whoever wants something that comes later, but HeadGreedy does not sample.
type Head uint8

// The heads.
const (
	HeadLogits Head = iota // logits, f32 [O,V]
	HeadSample             // sample_ids and sample_flags, i32 [O]: the results of op sample
	HeadGreedy             // greedy_ids and greedy_flags, i32 [O]: the results of op argmax
)

var headNames = [...]string{"logits", "sample", "greedy"}

func (h Head) String() string {
	if int(h) >= len(headNames) {
		return fmt.Sprintf("Head(%d)", uint8(h))
	}
	return headNames[h]
}

// ParseHead reads a head's name; none is that of the zero value.
func ParseHead(s string) (Head, error) {
	if s == "" {
		return HeadLogits, nil
	}
	if i := slices.Index(headNames[:], s); i >= 0 {
		return Head(i), nil
	}
	return 0, fmt.Errorf("unknown head %q: want %s", s, strings.Join(headNames[:], ", "))
}

// Serves reports whether what a head gives holds what another one does.
func (h Head) Serves(want Head) bool { return h <= want }

// Entry names a graph of the model.
type Entry string

// The entries. T is the number of token rows, B of requests, O of output rows.
const (
	Prefill Entry = "prefill" // any T, B and O
	Decode  Entry = "decode"  // T = O = B
	Verify  Entry = "verify"  // T = O = B*(K+1): K drafts per request
	Draft   Entry = "draft"   // the MTP step, any T, B and O
)

// Entries lists the entries that Build knows, in the order of use.
var Entries = []Entry{Prefill, Decode, Verify, Draft}

// PageTokens is the number of positions that one page of the compressed pools
// holds: PageTokens/4 entries of ratio 4 and PageTokens/128 of ratio 128.
const PageTokens = 128

// Options are the parameters of a graph that are not in the config.
type Options struct {
	Numerics Numerics
	// BF16Pools keeps what production numerics round as bf16 numbers instead of codes.
	// It changes no bit of any output; the pools of a bundle are packed.
	BF16Pools bool
	// MaxDraft is the largest number of draft tokens in one verify step. Rings
	// have room for them, so rejecting drafts needs no undo (docs/dsv4.md section 5).
	MaxDraft int
	// Taps adds the residual streams after every layer as outputs hidden.N.
	Taps bool
	// Head is what the heads give; the zero value is logits. Others give tokens in
	// place of logits, which HeadGreedy never stores.
	Head Head
}

// DefaultOptions are production numerics with rings for three drafts.
func DefaultOptions() Options { return Options{Numerics: Production, MaxDraft: 3} }

// Rings are the ring sizes, in rows per request.
type Rings struct {
	Window int // window vectors
	C4     int // compressor state of ratio-4 layers
	C128   int // compressor state of ratio-128 layers
}

// RingSizes are the sizes with which nothing a later step needs is overwritten
// by up to o.MaxDraft rejected tokens.
func (o Options) RingSizes(c *Config) Rings {
	return Rings{Window: c.Window + o.MaxDraft, C4: 2*4 + o.MaxDraft, C128: 128 + o.MaxDraft}
}

// Build makes the graph of an entry. Its symbols:
//
//	T token rows, B requests, O output rows, K drafts per request (verify),
//	P pages per request, R request rings and N pages in the pools
//
// Its inputs, all i32, -1 for padding rows:
//
//	ids, pos, req [T]    token id, position, and index of its request
//	out [O]              token rows whose logits are wanted
//	ring [B]             ring number of each request
//	pages [B,P]          page table of each request
//	window_slots [T]     window pool row that each token is written to
//	cR_slots [T]         compressor state row, for ratio R = 4 and 128
//	cR_close [T/R+B]     token rows that close a group of R tokens
//	cR_entry_slots       pool row of the entry that each of those makes
//
// With HeadSample there are, for the output rows, what op sample draws by:
//
//	sample_temperature, sample_top_p [O]  f32
//	sample_top_k, sample_pos [O]          i32; the position of the row's token
//	sample_seed [O]                       i64
//
// draft takes h [T,C,D] as well, the last main layer's output at the same
// positions, and ids are the tokens at the positions that follow.
func Build(c *Config, entry Entry, o Options) (*ir.Graph, error) {
	if entry == Draft && c.NextN == 0 {
		return nil, fmt.Errorf("entry draft: the model has no MTP block (num_nextn_predict_layers is 0)")
	}
	m, err := newModel(c, string(entry), o)
	if err != nil {
		return nil, err
	}
	if err := m.symbols(entry, m.ratiosOf(entry)); err != nil {
		return nil, err
	}
	if entry == Draft {
		m.draft()
	} else {
		m.step()
	}
	return m.finish()
}

// newModel checks the options and starts a graph.
func newModel(c *Config, name string, o Options) (*model, error) {
	if _, err := ParseNumerics(string(o.Numerics)); err != nil {
		return nil, err
	}
	if o.MaxDraft < 0 {
		return nil, fmt.Errorf("MaxDraft is %d, want at least 0", o.MaxDraft)
	}
	if _, err := ParseHead(o.Head.String()); err != nil {
		return nil, err
	}
	rings := o.RingSizes(c)
	meta := []ir.Meta{{Key: "model", Val: "deepseek_v4"}, {Key: "numerics", Val: string(o.Numerics)}}
	// What a runtime must know to fill the index inputs (engine.LayoutOf).
	for _, n := range []struct {
		key string
		val int
	}{
		{"vocab", c.Vocab}, {"max_positions", c.MaxPositions}, {"page_tokens", PageTokens},
		{"window_ring", rings.Window}, {"c4_ring", rings.C4}, {"c128_ring", rings.C128},
		{"max_draft", o.MaxDraft},
	} {
		meta = append(meta, ir.Meta{Key: n.key, Val: strconv.Itoa(n.val)})
	}
	return &model{Config: c, o: o, rings: rings, b: ir.NewBuilder(name, meta...), pools: map[string]*ir.Value{}}, nil
}

func (m *model) finish() (*ir.Graph, error) {
	for _, name := range m.names {
		v := m.pools[name]
		m.b.Update(m.b.State(name, v.Type), v)
	}
	g, err := m.b.Finish()
	if err != nil {
		return nil, fmt.Errorf("models/dsv4: %w", err)
	}
	return g, nil
}

// model builds one graph.
type model struct {
	*Config
	o     Options
	rings Rings
	b     *ir.Builder

	t, reqs, outs, pages, ringPool, pagePool ir.Dim
	closed                                   map[int]ir.Dim // groups that a step can close, by ratio

	own   rows                 // in place of index inputs; the zero value: the inputs
	pools map[string]*ir.Value // pools as the last update left them, by name
	names []string             // of pools that were updated, in that order
}

// rows are index values that a graph computes instead of taking them as inputs.
type rows struct{ ids, pos, req, out, windowSlots *ir.Value }

// state is a pool as the last update left it.
func (m *model) state(name string, t ir.Type) *ir.Value {
	if v := m.pools[name]; v != nil {
		return v
	}
	return m.b.State(name, t)
}

// update replaces a pool that state gave.
func (m *model) update(name string, v *ir.Value) {
	if m.pools[name] == nil {
		m.names = append(m.names, name)
	}
	m.pools[name] = v
}

// symbols declares an entry's symbols; ratios are those of its layers.
func (m *model) symbols(entry Entry, ratios []int) error {
	b := m.b
	switch entry {
	case Prefill, Draft:
		m.t, m.reqs, m.outs = b.Sym("T"), b.Sym("B"), b.Sym("O")
	case Decode:
		m.reqs = b.Sym("B")
		m.t, m.outs = m.reqs, m.reqs
	case Verify:
		m.reqs = b.Sym("B")
		m.t = b.Let("T", m.reqs.Mul(b.Sym("K")).Add(m.reqs))
		m.outs = m.t
	default:
		return fmt.Errorf("unknown entry %q: want one of %v", entry, Entries)
	}
	m.poolSymbols(ratios)
	return nil
}

// poolSymbols declares the symbols of pools and of the groups that layers close.
func (m *model) poolSymbols(ratios []int) {
	b := m.b
	m.ringPool = b.Sym("R")
	m.closed = map[int]ir.Dim{}
	for _, r := range []int{4, 128} {
		if slices.Contains(ratios, r) {
			m.closed[r] = b.Let(fmt.Sprintf("E%d", r), m.t.Div(r).Add(m.reqs))
		}
	}
	if len(m.closed) > 0 {
		m.pages, m.pagePool = b.Sym("P"), b.Sym("N")
	}
}

// ratiosOf are the compression ratios of an entry's layers.
func (m *model) ratiosOf(entry Entry) []int {
	if entry == Draft {
		return m.Ratios[m.Layers:]
	}
	return m.Ratios[:m.Layers]
}

// The index inputs; each is declared where it is first used.

func (m *model) index(name string, dims ...ir.Dim) *ir.Value {
	return m.b.Input(name, ir.T(ir.I32, dims...))
}

// either is a computed index value if there is one, else the input.
func (m *model) either(own *ir.Value, name string, rows ir.Dim) *ir.Value {
	if own != nil {
		return own
	}
	return m.index(name, rows)
}

func (m *model) ids() *ir.Value         { return m.either(m.own.ids, "ids", m.t) }
func (m *model) pos() *ir.Value         { return m.either(m.own.pos, "pos", m.t) }
func (m *model) req() *ir.Value         { return m.either(m.own.req, "req", m.t) }
func (m *model) out() *ir.Value         { return m.either(m.own.out, "out", m.outs) }
func (m *model) ring() *ir.Value        { return m.index("ring", m.reqs) }
func (m *model) pageTable() *ir.Value   { return m.index("pages", m.reqs, m.pages) }
func (m *model) windowSlots() *ir.Value { return m.either(m.own.windowSlots, "window_slots", m.t) }

func (m *model) stateSlots(ratio int) *ir.Value {
	return m.index(fmt.Sprintf("c%d_slots", ratio), m.t)
}

func (m *model) closeRows(ratio int) *ir.Value {
	return m.index(fmt.Sprintf("c%d_close", ratio), m.closed[ratio])
}

func (m *model) entrySlots(ratio int) *ir.Value {
	return m.index(fmt.Sprintf("c%d_entry_slots", ratio), m.closed[ratio])
}

// step is the main model: token rows in, predictions of the wanted rows out.
func (m *model) step() {
	h := m.layers()
	if !m.o.Taps { // the draft step's input; with taps it is the last of them
		m.b.Output(fmt.Sprintf("hidden.%d", m.Layers-1), h)
	}
	m.b.At("head")
	m.predict(h, "hc_head", "norm")
}

// layers are the residual streams behind the last layer.
func (m *model) layers() *ir.Value {
	b := m.b
	b.At("embed")
	e := b.Op1("gather_rows", nil, m.bf16("embed", m.Vocab, m.Hidden), m.ids())
	h := b.Broadcast(b.Reshape(e, m.t, ir.Int(1), ir.Int(m.Hidden)), m.t, ir.Int(m.HC), ir.Int(m.Hidden))
	for i := range m.Layers {
		h = m.block(h, fmt.Sprintf("layers.%d", i), i)
		if m.o.Taps {
			b.Output(fmt.Sprintf("hidden.%d", i), h)
		}
	}
	return h
}

// predict outputs what the head says of the wanted rows: logits, or a choice.
func (m *model) predict(h *ir.Value, hc, norm string) {
	if m.o.Head == HeadLogits {
		m.b.Output("logits", m.head(h, hc, norm))
		return
	}
	ids, flags := m.choose(m.o.Head, h, hc, norm)
	m.b.Output(m.o.Head.String()+"_ids", ids)
	m.b.Output(m.o.Head.String()+"_flags", flags)
}

// choose gives the tokens of the wanted rows by a head that has no logits.
func (m *model) choose(head Head, h *ir.Value, hc, norm string) (ids, flags *ir.Value) {
	b, logits := m.b, m.head(h, hc, norm)
	if head == HeadGreedy {
		r := b.Op("argmax", nil, logits)
		return r[0], r[1]
	}
	by := func(name string, dt ir.DType) *ir.Value { return b.Input("sample_"+name, ir.T(dt, m.outs)) }
	r := b.Op("sample", nil, logits, by("temperature", ir.F32), by("top_k", ir.I32), by("top_p", ir.F32), by("seed", ir.I64), by("pos", ir.I32))
	return r[0], r[1]
}

// head turns the streams of the wanted rows into f32 logits [O,V].
func (m *model) head(h *ir.Value, hc, norm string) *ir.Value {
	b := m.b
	rows := b.Op1("gather_rows", nil, h, m.out())
	y := b.Op1("hc_head", ir.A("eps", m.HCEps, "norm_eps", m.Eps), rows,
		m.f32(hc+"_fn", m.HC, m.HC*m.Hidden), m.f32(hc+"_scale", 1), m.f32(hc+"_base", m.HC))
	y = m.norm(y, norm)
	return b.Op1("linear", ir.A("to", ir.F32), y, m.bf16("head", m.Vocab, m.Hidden))
}

// block is one transformer block; the residual streams h are [T,C,D].
func (m *model) block(h *ir.Value, prefix string, layer int) *ir.Value {
	m.b.At(prefix + ".attn")
	h = m.sublayer(h, prefix+".hc_attn", prefix+".attn_norm", func(x *ir.Value) *ir.Value {
		return m.attention(x, prefix, m.Ratios[layer])
	})
	m.b.At(prefix + ".ffn")
	return m.sublayer(h, prefix+".hc_ffn", prefix+".ffn_norm", func(x *ir.Value) *ir.Value {
		return m.moe(x, prefix+".ffn", layer < m.HashLayers)
	})
}

// sublayer wraps f in its hyper-connection: hc_pre, norm, f, hc_post.
func (m *model) sublayer(h *ir.Value, hc, norm string, f func(*ir.Value) *ir.Value) *ir.Value {
	mix := (2 + m.HC) * m.HC
	pre := m.b.Op("hc_pre", ir.A("iters", m.SinkhornIters, "eps", m.HCEps, "norm_eps", m.Eps), h,
		m.f32(hc+"_fn", mix, m.HC*m.Hidden), m.f32(hc+"_scale", 3), m.f32(hc+"_base", mix))
	y := f(m.norm(pre[0], norm))
	return m.b.Op1("hc_post", nil, y, h, pre[1], pre[2])
}

// Weights, by checkpoint name without ".weight".

func (m *model) bf16(name string, shape ...int) *ir.Value { return m.plain(ir.BF16, name, shape) }
func (m *model) f32(name string, shape ...int) *ir.Value  { return m.plain(ir.F32, name, shape) }

func (m *model) plain(dt ir.DType, name string, shape []int) *ir.Value {
	return m.b.Weight(name, ir.T(dt, ints(shape)...))
}

func (m *model) fp8(name string, n, k int) *ir.Value {
	return m.b.Weight(name, ir.Scaled(ir.F8E4M3, quantBlock, quantBlock, ir.Int(n), ir.Int(k)))
}

// mxfp4 stacks the weight of every expert: the * in the name is its number.
func (m *model) mxfp4(name string, n, k int) *ir.Value {
	return m.b.Weight(name, ir.Scaled(ir.F4E2M1, 1, 32, ir.Int(m.Experts), ir.Int(n), ir.Int(k)))
}

func ints(shape []int) []ir.Dim {
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Int(n)
	}
	return dims
}

func (m *model) norm(x *ir.Value, name string) *ir.Value {
	n, _ := x.Type.Dims[x.Type.Rank()-1].Const()
	return m.b.Op1("rms_norm", ir.A("eps", m.Eps), x, m.bf16(name, n))
}

// linear8 is a product with an fp8 weight [n,k].
func (m *model) linear8(x *ir.Value, name string, n int) *ir.Value {
	k, _ := x.Type.Dims[1].Const()
	return m.b.Op1("block_linear", nil, x, m.fp8(name, n, k))
}
