package reported

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

func remarks(c *passes.Context, op *ir.Op, uses map[string]*ir.Op) {
	for k, v := range uses {
		c.Remark(0, v, "%s", k) // want `c.Remark adds to the remarks in the order of map uses: iterate over slices.Sorted\(maps.Keys\(uses\)\)`
	}
	for range uses {
		c.Remark(0, op, "the same each time")
	}
}
