package passes

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// fuseNormQuant makes one op of rms_norm, or of hc_fused, and the quantisation of
// the normed result for products. It works on steps, where fusions that take a whole norm have had
// their turn.
func fuseNormQuant(c *Context, g *ir.Graph) (*ir.Graph, error) {
	return Rewrite(c, g, normQuantRules...)
}

// normQuantRules: the norm itself is stored only if something else reads it. The
// second rule fits wherever the first does, and says of every norm that is left
// why neither applies.
var normQuantRules = []Rule{
	{
		Pattern: Pattern{Op: "rms_norm", As: "norm", User: map[int]Pattern{0: {Op: "fake_quant", As: "quant", Where: forProducts}}},
		Results: []Result{{"quant", 0}},
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			return normQuant(e, m, "rms_norm_quant")
		},
		Says: "as rms_norm_quant",
	},
	{
		Pattern: Pattern{Op: "rms_norm", As: "norm", Reader: map[int]Pattern{0: {Op: "fake_quant", As: "quant"}}},
		Anchor:  true,
		Gate:    func(_ *Context, m *Match) string { return forProducts(m, m.Op("quant")) },
		Results: []Result{{"norm", 0}, {"quant", 0}},
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			return normQuant(e, m, "rms_norm_and_quant")
		},
		Says: "as rms_norm_and_quant",
	},
	{
		Pattern: Pattern{Op: "hc_fused", As: "hc", Reader: map[int]Pattern{1: {Op: "fake_quant", As: "quant"}}},
		Anchor:  true,
		Gate:    func(_ *Context, m *Match) string { return forProducts(m, m.Op("quant")) },
		Results: []Result{{"hc", 0}, {"hc", 1}, {"hc", 2}, {"hc", 3}, {"quant", 0}},
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			hc := m.Op("hc")
			args := make([]*ir.Value, len(hc.Args))
			for i, a := range hc.Args {
				args[i] = e.Value(a)
			}
			return e.Op("hc_fused_quant", slices.Concat(hc.Attrs, ir.A("act_block", m.Op("quant").Int("block"))), args...)
		},
		Says: "as hc_fused_quant",
	},
}

func forProducts(_ *Match, quant *ir.Op) string {
	if _, ok := ir.RoundsActivations(quant); !ok {
		return "the quantisation of its result is not that of products"
	}
	return ""
}

func normQuant(e *ir.Edit, m *Match, op string) []*ir.Value {
	return e.Op(op, ir.A("act_block", m.Op("quant").Int("block"), "eps", m.Op("norm").Float("eps")),
		e.Value(m.Arg("norm", 0)), e.Value(m.Arg("norm", 1)))
}
