package passes

import "github.com/kiln-project/kiln/ir"

// fuseHeadArgmax makes one op of a bf16 product and the argmax of its rows, so that
// logits of which only the greedy token is wanted are never stored. At any number
// of rows it reads what the product reads: there is no threshold.
func fuseHeadArgmax(c *Context, g *ir.Graph) (*ir.Graph, error) { return Rewrite(c, g, headArgmax) }

var headArgmax = Rule{
	Pattern: Pattern{
		Op: "argmax", As: "argmax", Args: map[int]Pattern{0: {
			Op: "linear", As: "linear", Attrs: ir.A("to", ir.F32), DType: map[int]ir.DType{0: ir.BF16, 1: ir.BF16},
		}},
	},
	Anchor:  true,
	Results: []Result{{"argmax", 0}, {"argmax", 1}},
	Build: func(e *ir.Edit, m *Match) []*ir.Value {
		return e.Op("linear_argmax", ir.A("valid", m.Op("argmax").Int("valid")), e.Value(m.Arg("linear", 0)), e.Value(m.Arg("linear", 1)))
	},
	Says: "as linear_argmax",
}
