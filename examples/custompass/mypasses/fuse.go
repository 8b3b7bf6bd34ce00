package mypasses

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

var fuseAddRow = passes.Pass{
	Name:  "fuse-add-row",
	Doc:   "Makes one op of a row of a table and its addition.",
	Graph: fuse,
}

func fuse(c *passes.Context, g *ir.Graph) (*ir.Graph, error) {
	return passes.Rewrite(c, g, addOfRow)
}

// addOfRow is x + table[rows], from its end to its start.
var addOfRow = passes.Rule{
	Pattern: passes.Pattern{
		Op: "add", As: "add", DType: map[int]ir.DType{0: ir.F32},
		Args: map[int]passes.Pattern{1: {Op: "gather_rows", As: "row"}},
	},
	Gate: func(_ *passes.Context, m *passes.Match) string {
		x, row := m.Arg("add", 0), m.Op("row").Results[0]
		switch {
		case row.Type.Rank() != 2:
			return "what is gathered is no matrix"
		case !ir.SameDims(x.Type.Dims, row.Type.Dims):
			return "an operand is broadcast"
		}
		return ""
	},
	Results: []passes.Result{{As: "add"}},
	Build: func(e *ir.Edit, m *passes.Match) []*ir.Value {
		x, table, rows := e.Value(m.Arg("add", 0)), e.Value(m.Arg("row", 0)), e.Value(m.Arg("row", 1))
		return []*ir.Value{e.Op1("my.add_row", nil, x, table, rows)}
	},
	Says: "as my.add_row",
}
