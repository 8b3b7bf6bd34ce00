package passes

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// fuseCompress makes one op of compress and of the row op that norms, rotates and rounds
// the entry. It stands where compress does, before the states that it reads are written.
func fuseCompress(c *Context, g *ir.Graph) (*ir.Graph, error) { return Rewrite(c, g, compressRow) }

var compressRow = Rule{
	Pattern: Pattern{Op: "compress", As: "compress", User: map[int]Pattern{0: {Op: "rms_norm_rope", As: "row"}}},
	Anchor:  true,
	Results: []Result{{"row", 0}},
	Build: func(e *ir.Edit, m *Match) []*ir.Value {
		var args []*ir.Value
		add := func(as string, list ...int) {
			for _, i := range list {
				args = append(args, e.Value(m.Arg(as, i)))
			}
		}
		add("compress", 0)
		add("row", 1, 2, 3)
		add("compress", 1, 2, 3, 4, 5)
		return e.Op("compress_row", slices.Concat(m.Op("compress").Attrs, m.Op("row").Attrs), args...)
	},
	Says: "with rms_norm_rope, as compress_row",
}
