package passes

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// fuseTopK makes one op of topk and the take_along of rows at what it chose: the
// kernel that has an index has the row at hand.
func fuseTopK(c *Context, g *ir.Graph) (*ir.Graph, error) { return Rewrite(c, g, topkRows) }

var topkRows = Rule{
	Pattern: Pattern{Op: "topk", As: "topk", User: map[int]Pattern{0: {
		Op: "take_along", As: "take", Arg: 1, Attrs: ir.A("fill", -1.0), DType: map[int]ir.DType{0: ir.I32}, Where: takesAllColumns,
	}}},
	Anchor:  true,
	Results: []Result{{"take", 0}},
	Build: func(e *ir.Edit, m *Match) []*ir.Value {
		return e.Op("topk_rows", ir.A("k", m.Op("topk").Int("k")), e.Value(m.Arg("topk", 0)), e.Value(m.Arg("take", 0)))
	},
	Says: "as topk_rows",
}

func takesAllColumns(m *Match, take *ir.Op) string {
	scores, x := m.Arg("topk", 0).Type, take.Args[0].Type
	if !ir.SameDims(scores.Dims, x.Dims) {
		return fmt.Sprintf("what is taken is %s, want the extents of the scores, which are %s", x, scores)
	}
	return ""
}
