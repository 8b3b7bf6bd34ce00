package mypasses

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

var fuseAddRound = passes.Pass{
	Name:  "fuse-add-round",
	Doc:   "Makes the sum of routed and shared experts, with its two casts, one op.",
	Graph: fuse,
}

func fuse(c *passes.Context, g *ir.Graph) (*ir.Graph, error) {
	return passes.Rewrite(c, g, sum)
}

// sum is bf16(x + f32(y)) with x f32 and y bf16, from its end to its start.
var sum = passes.Rule{
	Pattern: passes.Pattern{
		Op: "cast", As: "round", Attrs: ir.A("to", ir.BF16),
		Args: map[int]passes.Pattern{0: {
			Op: "add", As: "add", DType: map[int]ir.DType{0: ir.F32},
			Args: map[int]passes.Pattern{1: {
				Op: "cast", As: "widen", DType: map[int]ir.DType{0: ir.BF16},
			}},
		}},
	},
	Gate: func(_ *passes.Context, m *passes.Match) string {
		if !ir.SameDims(m.Arg("add", 0).Type.Dims, m.Arg("add", 1).Type.Dims) {
			return "an operand is broadcast"
		}
		return ""
	},
	Results: []passes.Result{{As: "round"}},
	Build: func(e *ir.Edit, m *passes.Match) []*ir.Value {
		x, y := e.Value(m.Arg("add", 0)), e.Value(m.Arg("widen", 0))
		return []*ir.Value{e.Op1("my.add_round", nil, x, y)}
	},
	Says: "as my.add_round",
}
