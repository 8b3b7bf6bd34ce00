package dsv4

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// rotary is one rope plan's tables, gathered at some positions.
type rotary struct{ cos, sin *ir.Value }

// ropeTables computes the plan of a layer: plain for ratio 0, YaRN else.
func (m *model) ropeTables(ratio int) rotary {
	a := ir.A("len", m.MaxPositions, "dim", m.RopeDim, "base", m.RopeTheta)
	if ratio > 0 {
		y := m.Yarn
		a = ir.A("len", m.MaxPositions, "dim", m.RopeDim, "base", m.CompressRopeTheta,
			"orig", y.Orig, "factor", y.Factor, "beta_fast", y.BetaFast, "beta_slow", y.BetaSlow)
	}
	t := m.b.Op("freqs_cis", a)
	return rotary{t[0], t[1]}
}

// at gathers the tables' rows of the given positions.
func (m *model) at(t rotary, pos *ir.Value) rotary {
	return rotary{m.b.Op1("gather_rows", nil, t.cos, pos), m.b.Op1("gather_rows", nil, t.sin, pos)}
}

func (m *model) rope(x *ir.Value, r rotary, inverse bool) *ir.Value {
	return m.b.Op1("rope", ir.A("inverse", inverse), x, r.cos, r.sin)
}

// cached is a kind of vector that pools hold.
type cached struct {
	hadamard bool         // rotated by it first
	round    ir.Attrs     // then rounded, by pack_rows or fake_quant; nil: neither
	rows     ir.RowFormat // what a pool has
}

// kvRows are KV vectors, whose unrotated part is rounded.
func (m *model) kvRows() cached {
	c := cached{}
	m.round(&c, ir.RowFormat{To: ir.F8E4M3, Block: kvBlock, Dims: m.HeadDim - m.RopeDim, D: m.HeadDim}, 1e-4)
	return c
}

// indexRows are what the indexer compares.
func (m *model) indexRows() cached {
	c := cached{hadamard: true}
	m.round(&c, ir.RowFormat{To: ir.F4E2M1, Block: indexBlock, Dims: m.IndexDim, D: m.IndexDim}, 6*0x1p-126)
	return c
}

// round says how vectors are rounded, if they are, and packed.
func (m *model) round(c *cached, f ir.RowFormat, floor float64) {
	c.rows = ir.RowFormat{D: f.D}
	if m.o.Numerics != Production || f.Dims == 0 {
		return
	}
	c.round = append(f.Attrs(), ir.A("floor", floor)...)
	if !m.o.BF16Pools {
		c.rows = f
	}
}

// row is v, rotated, as pools hold it.
func (m *model) row(c cached, v *ir.Value) *ir.Value {
	if !c.rows.Packed() {
		return m.rounded(c, v)
	}
	if c.hadamard {
		v = m.b.Op1("hadamard", nil, v)
	}
	return m.b.Op1("pack_rows", c.round, v)
}

// rounded is v, rotated, as the bf16 numbers that row stands for.
func (m *model) rounded(c cached, v *ir.Value) *ir.Value {
	if c.hadamard {
		v = m.b.Op1("hadamard", nil, v)
	}
	if c.round != nil {
		v = m.b.Op1("fake_quant", c.round, v)
	}
	return v
}

// attention is one attention sublayer on the normalised x [T,D].
//
// A token sees three row sets: window positions still in the ring, window
// positions of this step, and compressed entries. The ring is written after its
// last read; compressed entries are written first, since a token sees the entry
// that it closes.
func (m *model) attention(x *ir.Value, prefix string, ratio int) *ir.Value {
	b, p := m.b, prefix+".attn."
	tables := m.ropeTables(ratio)
	here := m.at(tables, m.pos())

	qr := m.norm(m.linear8(x, p+"wq_a", m.QRank), p+"q_norm")
	q := b.Reshape(m.linear8(qr, p+"wq_b", m.Heads*m.HeadDim), m.t, ir.Int(m.Heads), ir.Int(m.HeadDim))
	q = m.rope(b.Op1("head_rms_norm", ir.A("eps", m.Eps), q), here, false)
	kv := m.norm(m.linear8(x, p+"wkv", m.HeadDim), p+"kv_norm")
	vectors := m.kvRows()
	kv = m.row(vectors, m.rope(kv, here, false))

	window := m.state(prefix+".window", vectors.rows.Row(m.ringPool.Mul(ir.Int(m.rings.Window))))
	rows := b.Op("history_rows", ir.A("span", m.Window, "size", m.rings.Window), b.Iota(0, m.t), m.pos(), m.req(), m.ring())
	sets := []*ir.Value{window, rows[0], kv, rows[1]}
	if ratio > 0 {
		pool, picked := m.compressed(x, qr, prefix, ratio, tables, here)
		sets = append(sets, pool, picked)
	}
	attrs := append(ir.A("scale", ir.AttentionScale(m.HeadDim)), vectors.rows.Attrs()...)
	o := b.Op1("sparse_attention", attrs, append([]*ir.Value{q, m.f32(p+"attn_sink", m.Heads)}, sets...)...)
	m.update(prefix+".window", b.Op1("scatter_rows", nil, window, m.windowSlots(), kv))
	return m.outProjection(m.rope(o, here, true), p)
}

// outProjection is the grouped low-rank output: wo_a per head group, dequantised
// to bf16 and applied to the unquantised input, then wo_b.
func (m *model) outProjection(o *ir.Value, p string) *ir.Value {
	b, g := m.b, m.OGroups
	k := m.Heads * m.HeadDim / g
	wa := b.Op1("dequantize", ir.A("to", ir.BF16), m.fp8(p+"wo_a", g*m.ORank, k))
	wa = b.Reshape(wa, ir.Int(g), ir.Int(m.ORank), ir.Int(k))
	z := b.Op1("grouped_linear", nil, b.Reshape(o, m.t, ir.Int(g), ir.Int(k)), wa)
	return m.linear8(b.Reshape(z, m.t, ir.Int(g*m.ORank)), p+"wo_b", m.Hidden)
}

// compressed makes this step's new entries, writes them, and returns the pool
// with the rows that each token sees: all entries for ratio 128, the indexer's
// choice for ratio 4.
func (m *model) compressed(x, qr *ir.Value, prefix string, ratio int, tables, here rotary) (pool, rows *ir.Value) {
	b := m.b
	pool = m.compressor(x, prefix, prefix+".attn.compressor", "", ratio, m.kvRows(), tables)
	seen := b.Op1("entry_rows", ir.A("ratio", ratio, "per_page", PageTokens/ratio), m.pos(), m.req(), m.pageTable())
	if ratio != 4 {
		return pool, seen
	}
	p := prefix + ".attn.indexer."
	vectors := m.indexRows()
	keys := m.compressor(x, prefix, p+"compressor", "index_", ratio, vectors, tables)
	q := b.Reshape(m.linear8(qr, p+"wq_b", m.IndexHeads*m.IndexDim), m.t, ir.Int(m.IndexHeads), ir.Int(m.IndexDim))
	q = m.rounded(vectors, m.rope(q, here, false))
	w := b.Op1("linear", nil, x, m.bf16(p+"weights_proj", m.IndexHeads, m.Hidden))
	w = b.Cast(b.Bin("mul", b.Cast(w, ir.F32), b.F(ir.IndexerScale(m.IndexHeads, m.IndexDim))), ir.BF16)
	scores := b.Op1("indexer_scores", vectors.rows.Attrs(), q, w, keys, seen)
	cols := b.Op1("topk", ir.A("k", m.IndexTopK), scores)
	return pool, b.Op1("take_along", ir.A("fill", -1.0), seen, cols)
}

// compressor keeps per-token projections in a ring, pools each closed group into
// an entry, and returns the entry pool with the new entries written.
func (m *model) compressor(x *ir.Value, prefix, weights, kind string, ratio int, entry cached, tables rotary) *ir.Value {
	b, d := m.b, entry.rows.D
	overlap, ring, span := ratio == 4, m.rings.C128, ratio
	width := d
	if overlap {
		ring, span, width = m.rings.C4, 2*ratio, 2*d
	}
	k := b.Op1("linear", ir.A("to", ir.F32), x, m.bf16(weights+".wkv", width, m.Hidden))
	g := b.Op1("linear", ir.A("to", ir.F32), x, m.bf16(weights+".wgate", width, m.Hidden))
	slot := b.Bin("mod", m.pos(), b.I(ratio))
	g = b.Bin("add", g, b.Op1("gather_rows", nil, m.f32(weights+".ape", ratio, width), slot))

	stateType := ir.T(ir.F32, m.ringPool.Mul(ir.Int(ring)), ir.Int(width))
	kName, gName := prefix+"."+kind+"comp_k", prefix+"."+kind+"comp_g"
	kState, gState := m.state(kName, stateType), m.state(gName, stateType)
	members := b.Op("history_rows", ir.A("span", span, "size", ring), m.closeRows(ratio), m.pos(), m.req(), m.ring())
	v := b.Op1("compress", ir.A("overlap", overlap), kState, gState, k, g, members[0], members[1])
	m.update(kName, b.Op1("scatter_rows", nil, kState, m.stateSlots(ratio), k))
	m.update(gName, b.Op1("scatter_rows", nil, gState, m.stateSlots(ratio), g))

	v = m.norm(v, weights+".norm")
	start := b.Op1("group_start", ir.A("ratio", ratio), m.closeRows(ratio), m.pos())
	v = m.row(entry, m.rope(v, m.at(tables, start), false))
	name := fmt.Sprintf("%s.%sentries", prefix, kind)
	pool := m.state(name, entry.rows.Row(m.pagePool.Mul(ir.Int(PageTokens/ratio))))
	written := b.Op1("scatter_rows", nil, pool, m.entrySlots(ratio), v)
	m.update(name, written)
	return written
}
