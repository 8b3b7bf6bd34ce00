package passes

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// fuseMoEAdd has moe_experts add the shared expert's output, which spares a pass
// over the sum.
func fuseMoEAdd(c *Context, g *ir.Graph) (*ir.Graph, error) { return Rewrite(c, g, moeAdd) }

var moeAdd = Rule{
	Pattern: Pattern{Op: "moe_experts", As: "moe", User: map[int]Pattern{0: {
		Op: "add", As: "add",
		Args: map[int]Pattern{1: {Op: "cast", As: "widen", DType: map[int]ir.DType{0: ir.BF16}}},
		User: map[int]Pattern{0: {Op: "cast", As: "narrow", Attrs: ir.A("to", ir.BF16)}},
	}}},
	Anchor:  true,
	Gate:    sameShape,
	Results: []Result{{"narrow", 0}},
	Build: func(e *ir.Edit, m *Match) []*ir.Value {
		var args []*ir.Value
		for _, v := range append(slices.Clone(m.Op("moe").Args), m.Arg("widen", 0)) {
			args = append(args, e.Value(v))
		}
		return e.Op("moe_experts_add", slices.Clone(m.Op("moe").Attrs), args...)
	},
	Says: "with the sum of its result and a bf16 value, as moe_experts_add",
}

// sameShape refuses a sum that repeats one operand.
func sameShape(_ *Context, m *Match) string {
	routed, shared := m.Op("moe").Results[0].Type, m.Arg("widen", 0).Type
	if !shared.As(routed.DType).Equal(routed) {
		return "the sum repeats " + shared.String()
	}
	return ""
}
