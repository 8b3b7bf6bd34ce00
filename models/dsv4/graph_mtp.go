package dsv4

import "github.com/kiln-project/kiln/ir"

// draft is the MTP step: from the last main layer's streams at position p and
// the token at p+1 it predicts the token at p+2. It keeps a window of its own,
// so it runs at every position, prompt included.
func (m *model) draft() {
	b := m.b
	const p = "mtp.0"
	d, c := ir.Int(m.Hidden), ir.Int(m.HC)
	h := b.Input("h", ir.T(ir.BF16, m.t, c, d))

	b.At(p + ".embed")
	e := b.Op1("gather_rows", nil, m.bf16("embed", m.Vocab, m.Hidden), m.ids())
	e = m.linear8(m.norm(e, p+".enorm"), p+".e_proj", m.Hidden)
	rows := m.t.Mul(c)
	hp := m.linear8(b.Reshape(m.norm(h, p+".hnorm"), rows, d), p+".h_proj", m.Hidden)
	x := b.Bin("add", b.Reshape(e, m.t, ir.Int(1), d), b.Reshape(hp, m.t, c, d))
	x = m.block(x, p, m.Layers)
	b.Output("hidden", x)
	b.At(p + ".head")
	m.predict(x, p+".hc_head", p+".norm")
}
