package passes

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// What depends on weights and constants alone.

// expr describes a weight-only value.
type expr struct {
	key    string
	weight string // the weights in it, joined; "" for none
	table  string // without weights: the table op in it; "" for none
	value  *ir.Value
}

// packs reports whether a use outside of the pack graph makes a packed weight of
// the value: cheap constants stay.
func (e expr) packs() bool { return e.weight != "" || e.table != "" }

// weightExprs describes a graph's weights.
func weightExprs(g *ir.Graph) map[*ir.Value]expr {
	exprs := map[*ir.Value]expr{}
	for _, w := range g.Weights {
		exprs[w] = expr{key: w.String() + ":" + w.Type.String(), weight: w.Name, value: w}
	}
	return exprs
}

// weightOnly reports whether op's operands are weight-only and its extents
// integers; its results then join exprs.
func weightOnly(op *ir.Op, exprs map[*ir.Value]expr) bool {
	var key strings.Builder
	key.WriteString(op.Def.Name)
	for _, a := range op.Attrs {
		fmt.Fprintf(&key, " %s=%v", a.Key, a.Val)
	}
	weight, table := "", ""
	if op.Def.Table {
		table = op.Def.Name
	}
	for _, a := range op.Args {
		e, ok := exprs[a]
		if !ok {
			return false
		}
		key.WriteString(" (" + e.key + ")")
		if table == "" {
			table = e.table
		}
		switch {
		case e.weight == "" || e.weight == weight:
		case weight == "":
			weight = e.weight
		default:
			weight += "+" + e.weight
		}
	}
	if dependsOnSymbols(op) {
		return false
	}
	for i, r := range op.Results {
		exprs[r] = expr{key: fmt.Sprintf("%s#%d", key.String(), i), weight: weight, table: table, value: r}
	}
	return true
}

// dependsOnSymbols reports whether an extent is unbound: the value is not the
// same for every step then.
func dependsOnSymbols(op *ir.Op) bool {
	for _, r := range op.Results {
		if _, ok := r.Type.Size(); !ok {
			return true
		}
	}
	return false
}
