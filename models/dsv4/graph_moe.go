package dsv4

import "github.com/kiln-project/kiln/ir"

// moe is one mixture-of-experts sublayer on the normalised x [T,D]: routed fp4
// experts plus the shared fp8 expert, summed in f32 and rounded once.
func (m *model) moe(x *ir.Value, p string, hash bool) *ir.Value {
	b := m.b
	route := ir.A("k", m.TopK, "scale", m.RouteScale)
	gateW := m.bf16(p+".gate", m.Experts, m.Hidden)
	var gate []*ir.Value
	if hash {
		table := b.Weight(p+".gate.tid2eid", ir.T(ir.I64, ir.Int(m.Vocab), ir.Int(m.TopK)))
		gate = b.Op("hash_gate", route, x, gateW, table, m.ids())
	} else {
		gate = b.Op("gate", route, x, gateW, m.f32(p+".gate.bias", m.Experts))
	}
	limit := ir.A("limit", m.SwigluLimit)
	e := p + ".experts.*."
	routed := b.Op1("moe_experts", limit, x, m.mxfp4(e+"w1", m.Inter, m.Hidden), m.mxfp4(e+"w3", m.Inter, m.Hidden), m.mxfp4(e+"w2", m.Hidden, m.Inter), gate[0], gate[1])

	s := p + ".shared_experts."
	one := b.Broadcast(b.F(1), m.t, ir.Int(1))
	shared := b.Op1("expert", limit, x, m.fp8(s+"w1", m.Inter, m.Hidden), m.fp8(s+"w3", m.Inter, m.Hidden), m.fp8(s+"w2", m.Hidden, m.Inter), one)
	return b.Cast(b.Bin("add", routed, b.Cast(shared, ir.F32)), ir.BF16)
}
