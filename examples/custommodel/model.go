package main

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
)

// Config is the size of the model.
type Config struct {
	Layers, Dim, Heads, FFN, Vocab int
	MaxPos                         int // positions that the rotary tables cover
	Theta, Eps                     float64
}

// tiny is large enough to have every part of a transformer, and small enough to
// run in the evaluator at once. A token is a byte.
var tiny = Config{Layers: 2, Dim: 64, Heads: 4, FFN: 128, Vocab: 256, MaxPos: positions, Theta: 10000, Eps: 1e-5}

// An entry is a graph that a program calls. Both compute the same; they differ in
// the number of token rows, which is what a compiled plan is made for.
const (
	Prefill = "prefill" // T tokens, a prompt or a piece of it
	Decode  = "decode"  // the one token that was generated last
)

// Entries lists the entries, in the order in which they are compiled.
var Entries = []string{Prefill, Decode}

// Build makes the graph of an entry. Its symbols, which are bound to integers when
// it is compiled:
//
//	T  token rows of a step (prefill)
//	C  positions that attention looks at
//	N  rows of the key and value pools
//
// Its inputs, all i32; a row that is padding has -1 in pos and slots:
//
//	ids [T]    tokens
//	pos [T]    their positions
//	slots [T]  pool rows that their keys and values are written to
//	rows [C]   pool rows of the positions 0, 1, ...; -1 where there is none yet
func Build(c Config, entry string) (*ir.Graph, error) {
	m := &model{Config: c, b: ir.NewBuilder(entry, ir.Meta{Key: "model", Val: "custommodel"})}
	switch entry {
	case Prefill:
		m.t = m.b.Sym("T")
	case Decode:
		m.t = ir.Int(1)
	default:
		return nil, fmt.Errorf("custommodel: unknown entry %q: want one of %v", entry, Entries)
	}
	m.context, m.pool = m.b.Sym("C"), m.b.Sym("N")
	m.step()
	return m.b.Finish() // checks the graph; the first mistake above is its error
}

// model builds one graph.
type model struct {
	Config
	b                *ir.Builder
	t, context, pool ir.Dim

	ids, pos, slots, rows *ir.Value
	cos, sin              *ir.Value // rotary factors of this step's positions [T,d/2]
	visible               *ir.Value // whether a token sees a position, bool [1,T,C]
}

// step is the whole model: tokens in, logits out.
func (m *model) step() {
	b := m.b
	m.ids, m.pos = b.Input("ids", ir.T(ir.I32, m.t)), b.Input("pos", ir.T(ir.I32, m.t))
	m.slots, m.rows = b.Input("slots", ir.T(ir.I32, m.t)), b.Input("rows", ir.T(ir.I32, m.context))

	b.At("positions") // a label that printed graphs, plans and errors carry
	table := b.Op("freqs_cis", ir.A("len", m.MaxPos, "dim", m.Dim/m.Heads, "base", m.Theta))
	m.cos, m.sin = b.Op1("gather_rows", nil, table[0], m.pos), b.Op1("gather_rows", nil, table[1], m.pos)
	causal := b.Bin("le", b.Iota(1, ir.Int(1), m.context), b.Reshape(m.pos, m.t, ir.Int(1)))
	m.visible = b.Reshape(causal, ir.Int(1), m.t, m.context)

	b.At("embed")
	embed := b.Weight("embed", ir.T(ir.BF16, ir.Int(m.Vocab), ir.Int(m.Dim)))
	x := b.Op1("gather_rows", nil, embed, m.ids)
	for i := range m.Layers {
		layer := fmt.Sprintf("layers.%d", i)
		b.At(layer + ".attn")
		x = b.Bin("add", x, m.attention(m.norm(x, layer+".attn_norm"), layer))
		b.At(layer + ".ffn")
		x = b.Bin("add", x, m.ffn(m.norm(x, layer+".ffn_norm"), layer))
	}
	b.At("head") // tied: the embedding again
	b.Output("logits", b.Op1("linear", ir.A("to", ir.F32), m.norm(x, "norm"), embed))
}

// norm and linear are library ops: what each means stands in docs/ops.md.

func (m *model) norm(x *ir.Value, name string) *ir.Value {
	w := m.b.Weight(name, ir.T(ir.BF16, ir.Int(m.Dim)))
	return m.b.Op1("rms_norm", ir.A("eps", m.Eps), x, w)
}

// linear is x [T,k] times a weight [n,k], in bf16.
func (m *model) linear(x *ir.Value, name string, n int) *ir.Value {
	w := m.b.Weight(name, ir.T(ir.BF16, ir.Int(n), x.Type.Dims[1]))
	return m.b.Op1("linear", nil, x, w)
}

// ffn is a SwiGLU MLP. The op takes a factor per row as well, here 1.
func (m *model) ffn(x *ir.Value, layer string) *ir.Value {
	gate, up := m.linear(x, layer+".ffn.gate", m.FFN), m.linear(x, layer+".ffn.up", m.FFN)
	one := m.b.Broadcast(m.b.F(1), m.t, ir.Int(1))
	return m.linear(m.b.Op1("swiglu", ir.A("limit", 0.0), gate, up, one), layer+".ffn.down", m.Dim)
}

// attention is causal multi-head attention, written out in primitives.
func (m *model) attention(x *ir.Value, layer string) *ir.Value {
	b, p := m.b, layer+".attn."
	q := m.rope(m.heads(m.linear(x, p+"wq", m.Dim)))
	k := m.rope(m.heads(m.linear(x, p+"wk", m.Dim)))
	v := m.linear(x, p+"wv", m.Dim)
	keys := m.heads(m.remember(layer+".k", b.Reshape(k, m.t, ir.Int(m.Dim))))
	values := m.heads(m.remember(layer+".v", v))

	// dot multiplies [H,T,d] by [H,C,d], both with the summed axis last.
	s := b.Dot(b.Transpose(q, 1, 0, 2), b.Transpose(keys, 1, 0, 2), ir.F32)
	s = b.Bin("mul", s, b.F(1/math.Sqrt(float64(m.Dim/m.Heads))))
	// Not -inf: a padding row sees nothing, and its softmax would be 0/0.
	s = b.Select(m.visible, s, b.F(-1e30))
	o := b.Dot(softmax(b, s), b.Transpose(values, 1, 2, 0), ir.BF16) // [H,T,d]
	return m.linear(b.Reshape(b.Transpose(o, 1, 0, 2), m.t, ir.Int(m.Dim)), p+"wo", m.Dim)
}

// remember writes this step's vectors into a state pool and returns those of
// every position, this step's included: [C,Dim]. Pools are values too: the write
// gives a new one, which Update makes the pool of the next step. Reading through
// rows keeps out what an earlier text has left there: attention gives it factor 0,
// but 0 times NaN is NaN.
func (m *model) remember(name string, v *ir.Value) *ir.Value {
	pool := m.b.State(name, ir.T(ir.BF16, m.pool, ir.Int(m.Dim)))
	written := m.b.Op1("scatter_rows", nil, pool, m.slots, v)
	m.b.Update(pool, written)
	return m.b.Op1("gather_rows", nil, written, m.rows)
}

// heads splits [n,Dim] into [n,H,d].
func (m *model) heads(v *ir.Value) *ir.Value {
	return m.b.Reshape(v, v.Type.Dims[0], ir.Int(m.Heads), ir.Int(m.Dim/m.Heads))
}

func (m *model) rope(x *ir.Value) *ir.Value { return m.b.Op1("rope", nil, x, m.cos, m.sin) }

// softmax normalises the last axis. The largest is taken off first: exp of
// anything larger than 88 is infinite in f32.
func softmax(b *ir.Builder, s *ir.Value) *ir.Value {
	axis := s.Type.Rank() - 1
	e := b.Un("exp", b.Bin("sub", s, b.Op1("reduce_max", ir.A("axis", axis), s)))
	return b.Bin("div", e, b.Sum(e, axis, ir.F32))
}
