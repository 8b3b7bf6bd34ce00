package dsv4

import "github.com/kiln-project/kiln/ir"

// mtpBlock is the prefix of the MTP block's weights and pools.
const mtpBlock = "mtp.0"

// draft is the MTP step: from the last main layer's streams at position p and
// the token at p+1 it predicts the token at p+2. It keeps a window of its own,
// so it runs at every position, prompt included.
func (m *model) draft() {
	x := m.mtp(m.b.Input("h", ir.T(ir.BF16, m.t, ir.Int(m.HC), ir.Int(m.Hidden))))
	m.b.Output("hidden", x)
	m.b.At(mtpBlock + ".head")
	m.predict(x, mtpBlock+".hc_head", mtpBlock+".norm")
}

// mtp are the streams of the MTP block, from streams h [T,C,D] and the ids that follow.
func (m *model) mtp(h *ir.Value) *ir.Value {
	b := m.b
	const p = mtpBlock
	d, c := ir.Int(m.Hidden), ir.Int(m.HC)
	b.At(p + ".embed")
	e := b.Op1("gather_rows", nil, m.bf16("embed", m.Vocab, m.Hidden), m.ids())
	e = m.linear8(m.norm(e, p+".enorm"), p+".e_proj", m.Hidden)
	rows := m.t.Mul(c)
	hp := m.linear8(b.Reshape(m.norm(h, p+".hnorm"), rows, d), p+".h_proj", m.Hidden)
	x := b.Bin("add", b.Reshape(e, m.t, ir.Int(1), d), b.Reshape(hp, m.t, c, d))
	return m.block(x, p, m.Layers)
}
