package golden

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// opChecks are the checks of single operators against ops.safetensors. The
// production folder repeats only what its rounding changes: the attention parts
// (partChecks) and the quantisations.
func (s *Suite) opChecks() []Check {
	list := []Check{
		s.opCheck("op/act_quant", actQuant),
		s.inPlaceCheck("op/inplace64", ir.F8E4M3, "act_quant.inplace64"),
		s.inPlaceCheck("op/inplace32", ir.F4E2M1, "fp4_act_quant.inplace32"),
	}
	if s.cfg.Numerics == dsv4.Production {
		return list
	}
	for _, d := range []int{256, 4096, 7168} {
		list = append(list, s.opCheck(fmt.Sprintf("op/hc.%d", d), func(c *opCase) { hyperConnection(c, d) }))
	}
	return append(list,
		s.opCheck("op/sinkhorn", sinkhorn),
		s.opCheck("op/hc_head", hcHead),
		s.opCheck("op/rope.plain", func(c *opCase) {
			ropeTables(c, "rope.plain.", ir.A("dim", c.s.model.RopeDim, "base", c.s.model.RopeTheta))
		}),
		s.opCheck("op/rope.yarn", func(c *opCase) { ropeTables(c, "rope.yarn.", yarnPlan(c.s.model)) }),
		s.opCheck("op/rope.pro", ropeFar),
		s.opCheck("op/hadamard", func(c *opCase) {
			n := c.extent("hadamard.x", 1)
			x := c.in("x", c.golden("hadamard.x", ir.BF16, c.extent("hadamard.x", 0), n))
			c.expect("y", c.Op1("hadamard", nil, x), "hadamard.y", bf16Limit)
		}),
		s.opCheck("op/fp8_linear", func(c *opCase) { blockLinear(c, "fp8_linear.", ir.F8E4M3, 128, 128) }),
		s.opCheck("op/fp4_linear", func(c *opCase) { blockLinear(c, "fp4_linear.", ir.F4E2M1, 1, 32) }),
		s.opCheck("op/sparse_attn.a", func(c *opCase) { sparseAttention(c, "sparse_attn.a.") }),
		s.opCheck("op/sparse_attn.b", func(c *opCase) { sparseAttention(c, "sparse_attn.b.") }),
		s.opCheck("op/gate.0", func(c *opCase) { gate(c, 0) }),
		s.opCheck("op/gate.3", func(c *opCase) { gate(c, 3) }),
		s.opCheck("op/expert.3.2", expert),
	)
}

func actQuant(c *opCase) {
	x := c.in("x", c.golden("act_quant.x", ir.BF16, c.extent("act_quant.x", 0), c.extent("act_quant.x", 1)))
	q := c.Op1("quantize", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4), x)
	c.expect("q", q, "act_quant.q", exactLimit)
	c.expectScales("scale", q, "act_quant.scale")
}

// inPlaceCheck compares the cache rounding to dt.
func (s *Suite) inPlaceCheck(name string, dt ir.DType, goldenName string) Check {
	return s.opCheck(name, func(c *opCase) {
		n := c.extent("act_quant.x", 1)
		x := c.in("x", c.golden("act_quant.x", ir.BF16, c.extent("act_quant.x", 0), n))
		c.expect("y", c.cacheRound(dt, x), goldenName, exactLimit)
	})
}

// cacheRound rounds all of x to dt as the model's own decode graph packs what
// it caches, with the block and floor found there. The unrounded variant must
// have no such op, and leaves x alone.
func (c *opCase) cacheRound(dt ir.DType, x *ir.Value) *ir.Value {
	g, err := dsv4.Build(c.s.model, dsv4.Decode, c.s.options())
	if err != nil {
		c.fail(err)
		return x
	}
	var pack *ir.Op
	for _, op := range g.Ops {
		if op.Def.Name == "pack_rows" && op.DType("to") == dt {
			pack = op
		}
	}
	switch rounds := c.s.cfg.Numerics == dsv4.Production; {
	case rounds && pack == nil:
		c.fail(fmt.Errorf("the model's decode graph packs nothing to %s", dt))
	case !rounds && pack != nil:
		c.fail(fmt.Errorf("the model's decode graph packs to %s at %s", dt, pack.Where()))
	case rounds:
		n, _ := x.Type.Dims[x.Type.Rank()-1].Const()
		f := ir.RowFormat{To: dt, Block: pack.Int("block"), Dims: n, D: n}
		return c.Unpack(f, c.Op1("pack_rows", append(f.Attrs(), ir.A("floor", pack.Float("floor"))...), x))
	}
	return x
}

// hyperConnection is hc_pre, and hc_post on its results, at width d.
func hyperConnection(c *opCase, d int) {
	p, m := fmt.Sprintf("hc.%d.", d), c.s.model
	n := c.extent(p+"x", 1)
	mix := (2 + m.HC) * m.HC
	x := c.in("x", c.golden(p+"x", ir.BF16, n, m.HC, d))
	o := c.in("o", c.golden(p+"attn_out", ir.BF16, n, d))
	pre := c.Op("hc_pre", ir.A("iters", m.SinkhornIters, "eps", m.HCEps, "norm_eps", m.Eps), x,
		c.own("fn", c.golden(p+"fn", ir.F32, mix, m.HC*d)),
		c.own("scale", c.golden(p+"scale", ir.F32, 3)),
		c.own("base", c.golden(p+"base", ir.F32, mix)))
	post := c.Op1("hc_post", nil, append([]*ir.Value{o, x}, pre[1:]...)...)
	c.expect("pre_out", pre[0], p+"pre_out", hcLimit)
	c.expect("post", pre[1], p+"post", f32Limit)
	c.expect("comb", pre[2], p+"comb", f32Limit)
	c.expect("post_out", post, p+"post_out", hcLimit)
}

func sinkhorn(c *opCase) {
	m := c.s.model
	mix := (2 + m.HC) * m.HC
	x := c.in("mixes", c.golden("sinkhorn.mixes", ir.F32, c.extent("sinkhorn.mixes", 1), mix))
	r := c.Op("hc_split", ir.A("iters", m.SinkhornIters, "eps", m.HCEps), x,
		c.own("scale", c.floats(ir.F32, []float32{1, 1, 1}, 3)),
		c.own("base", c.floats(ir.F32, make([]float32, mix), mix)))
	for i, name := range []string{"pre", "post", "comb"} {
		c.expect(name, r[i], "sinkhorn."+name, f32Limit)
	}
}

func hcHead(c *opCase) {
	m := c.s.model
	x := c.in("x", c.golden("hc_head.x", ir.BF16, c.extent("hc_head.x", 1), m.HC, m.Hidden))
	y := c.Op1("hc_head", ir.A("eps", m.HCEps, "norm_eps", m.Eps), x,
		c.Weight("hc_head_fn", ir.T(ir.F32, ir.Int(m.HC), ir.Int(m.HC*m.Hidden))),
		c.Weight("hc_head_scale", ir.T(ir.F32, ir.Int(1))),
		c.Weight("hc_head_base", ir.T(ir.F32, ir.Int(m.HC))))
	c.expect("y", y, "hc_head.y", hcLimit)
}

// yarnPlan is the rope plan of the compressed layers.
func yarnPlan(m *dsv4.Config) ir.Attrs {
	y := m.Yarn
	return ir.A("dim", m.RopeDim, "base", m.CompressRopeTheta,
		"orig", y.Orig, "factor", y.Factor, "beta_fast", y.BetaFast, "beta_slow", y.BetaSlow)
}

// ropePositions is the distance of the positions at which the reference rotated
// its rows: row t is at t*ropeStride.
const ropeStride = 93

// ropeTables checks a plan's tables, and the rotation forth and back.
func ropeTables(c *opCase, p string, plan ir.Attrs) {
	n, rows, heads, dim := c.extent(p+"cos", 0), c.extent(p+"x", 1), c.extent(p+"x", 2), c.extent(p+"x", 3)
	tables := c.Op("freqs_cis", append(ir.A("len", n), plan...))
	pos := make([]int32, rows)
	for i := range pos {
		pos[i] = int32(ropeStride * i)
	}
	at := c.in("pos", c.ints(pos, rows))
	cos, sin := c.Op1("gather_rows", nil, tables[0], at), c.Op1("gather_rows", nil, tables[1], at)
	x := c.in("x", c.golden(p+"x", ir.BF16, rows, heads, dim))
	c.expect("cos", tables[0], p+"cos", ropeTableLimit)
	c.expect("sin", tables[1], p+"sin", ropeTableLimit)
	c.expect("y", c.Op1("rope", ir.A("inverse", false), x, cos, sin), p+"y", bf16Limit)
	c.expect("inv", c.Op1("rope", ir.A("inverse", true), x, cos, sin), p+"inv", bf16Limit)
}

// ropeFar checks the plan of the published models (docs/dsv4.md section 6) near
// position 2^20. Its tables would be 2^20 rows, so only the wanted rows are
// computed, as freqs_cis defines them.
func ropeFar(c *opCase) {
	const p = "rope.pro."
	f := c.Op1("rope_freqs", ir.A("dim", 64, "base", 160000.0, "orig", 65536, "factor", 16.0, "beta_fast", 32.0, "beta_slow", 1.0))
	n := c.extent(p+"positions", 0)
	pos := c.Cast(c.in("positions", c.golden(p+"positions", ir.I32, n)), ir.F32)
	angle := c.Bin("mul", c.Reshape(pos, ir.Int(n), ir.Int(1)), c.Reshape(f, ir.Int(1), ir.Int(32)))
	c.expect("cos", c.Un("cos", angle), p+"cos", ropeTableLimit)
	c.expect("sin", c.Un("sin", angle), p+"sin", ropeTableLimit)
}

func blockLinear(c *opCase, p string, dt ir.DType, block0, block1 int) {
	m, k, n := c.extent(p+"a", 0), c.extent(p+"a", 1), c.extent(p+"w", 0)
	x := c.in("x", c.golden(p+"a", ir.BF16, m, k))
	w, err := c.s.ops.scaled(p+"w", p+"w_scale", ir.Scaled(dt, block0, block1, ir.Int(n), ir.Int(k)))
	if err != nil {
		c.fail(err)
		w = stub
	}
	c.expect("y", c.Op1("block_linear", nil, x, c.own("w", w)), p+"y", bf16Limit)
}

func sparseAttention(c *opCase, p string) {
	t, h, d := c.extent(p+"q", 1), c.extent(p+"q", 2), c.extent(p+"q", 3)
	o := c.Op1("sparse_attention", ir.A("scale", ir.AttentionScale(d)),
		c.in("q", c.golden(p+"q", ir.BF16, t, h, d)),
		c.own("sink", c.golden(p+"sink", ir.F32, h)),
		c.in("kv", c.golden(p+"kv", ir.BF16, c.extent(p+"kv", 1), d)),
		c.in("rows", c.golden(p+"idx", ir.I32, t, c.extent(p+"idx", 2))))
	c.expect("o", o, p+"o", bf16Limit)
}

// gate checks the routing of a layer with the checkpoint's weights. Only a hash
// layer looks at the token ids; the golden file has them for both kinds.
func gate(c *opCase, layer int) {
	p, m := fmt.Sprintf("gate.%d.", layer), c.s.model
	w := fmt.Sprintf("layers.%d.ffn.gate", layer)
	n := c.extent(p+"x", 0)
	attrs := ir.A("k", m.TopK, "scale", m.RouteScale)
	x := c.in("x", c.golden(p+"x", ir.BF16, n, m.Hidden))
	gw := c.Weight(w, ir.T(ir.BF16, ir.Int(m.Experts), ir.Int(m.Hidden)))
	ids := c.golden(p+"ids", ir.I32, n)
	var r []*ir.Value
	if layer < m.HashLayers {
		table := c.Weight(w+".tid2eid", ir.T(ir.I64, ir.Int(m.Vocab), ir.Int(m.TopK)))
		r = c.Op("hash_gate", attrs, x, gw, table, c.in("ids", ids))
	} else {
		r = c.Op("gate", attrs, x, gw, c.Weight(w+".bias", ir.T(ir.F32, ir.Int(m.Experts))))
	}
	c.expect("indices", r[0], p+"indices", exactLimit)
	c.expect("weights", r[1], p+"weights", f32Limit)
}

// expert checks one routed expert, on its own and as the only choice of the
// routed sum, bit for bit: in a whole layer a weight applied too late or a clamp
// too many hides behind the shared expert.
func expert(c *opCase) {
	const p, layer, number = "expert.3.2.", 3, 2
	m := c.s.model
	n := c.extent(p+"x", 0)
	limit := ir.A("limit", m.SwigluLimit)
	x := c.in("x", c.golden(p+"x", ir.BF16, n, m.Hidden))
	route := c.in("route", c.golden(p+"route", ir.F32, n, 1))
	fp4 := func(of, w string, dims ...int) *ir.Value {
		return c.Weight(fmt.Sprintf("layers.%d.ffn.experts.%s.%s", layer, of, w), ir.Scaled(ir.F4E2M1, 1, 32, intDims(dims)...))
	}
	one := fmt.Sprint(number)
	y := c.Op1("expert", limit, x, fp4(one, "w1", m.Inter, m.Hidden), fp4(one, "w3", m.Inter, m.Hidden), fp4(one, "w2", m.Hidden, m.Inter), route)
	c.expect("y", y, p+"y", exactLimit)

	e := m.Experts
	chosen := make([]int32, n)
	for i := range chosen {
		chosen[i] = number
	}
	sum := c.Op1("moe_experts", limit, x, fp4("*", "w1", e, m.Inter, m.Hidden), fp4("*", "w3", e, m.Inter, m.Hidden), fp4("*", "w2", e, m.Hidden, m.Inter),
		c.in("ids", c.ints(chosen, n, 1)), route)
	c.expect("sum", c.Cast(sum, ir.BF16), p+"y", exactLimit) // a bf16 sum of one: the cast changes nothing
}

func intDims(shape []int) []ir.Dim {
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		dims[i] = ir.Int(n)
	}
	return dims
}
