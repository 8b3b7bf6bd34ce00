package passes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// mostJoined is how many products one op gives at most: the table has linear2 to
// linear4.
const mostJoined = 4

// fuseLinears makes one product of those that multiply one value with bf16
// weights: wkv and wgate of a compressor, and those of the indexer's beside them.
// It looks at all entries first, as fuse-qkv does: the pack graph gets the joined
// weight instead of its parts.
func fuseLinears(c *Context) error {
	readers := readersOf(c.Module.Entries)
	found, has := make([][]joint, len(c.Module.Entries)), make([]map[string]bool, len(c.Module.Entries))
	for i, g := range c.Module.Entries {
		c.graph = g.Name
		found[i], has[i] = jointsOf(c, g, readers[i].uses), map[string]bool{}
		for _, j := range found[i] {
			has[i][j.String()] = true
		}
	}
	for i, g := range c.Module.Entries {
		c.graph = g.Name
		out, err := joinLinears(c, g, slices.DeleteFunc(slices.Clone(found[i]), func(j joint) bool {
			for k, r := range readers {
				if why := j.disagrees(r, has[k]); why != "" {
					c.Remark(Missed, j.first, "%s", why)
					return true
				}
			}
			return false
		}))
		if err != nil {
			return err
		}
		c.Module.Entries[i] = out
	}
	return nil
}

// joint is the products of one value that can be one, in the order of their
// weights' names: entries whose ops stand in another order pack the same tensor.
type joint struct {
	first *ir.Op // of them in the graph
	ops   []*ir.Op
}

func (j joint) String() string {
	var names []string
	for _, op := range j.ops {
		names = append(names, op.Args[1].String())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// jointsOf finds what can be one product as far as g goes.
func jointsOf(c *Context, g *ir.Graph, u *uses) (list []joint) {
	type operand struct {
		x  *ir.Value
		to ir.DType
	}
	products := map[operand][]*ir.Op{}
	var order []operand
	for _, op := range g.Ops {
		if op.Def.Name != "linear" {
			continue
		}
		if why := plainWeight(op, u); why != "" {
			c.Remark(Missed, op, "%s", why)
			continue
		}
		by := operand{op.Args[0], op.DType("to")}
		if products[by] == nil {
			order = append(order, by)
		}
		products[by] = append(products[by], op)
	}
	for _, by := range order {
		ops := products[by]
		slices.SortFunc(ops, func(a, b *ir.Op) int { return strings.Compare(a.Args[1].Name, b.Args[1].Name) })
		for part := range slices.Chunk(ops, mostJoined) {
			if len(part) == 1 {
				c.Remark(Missed, part[0], "there is no product to %s left to join %s with", by.to, part[0].Args[1])
				continue
			}
			first := slices.MinFunc(part, func(a, b *ir.Op) int { return cmp.Compare(u.index[a], u.index[b]) })
			list = append(list, joint{first, part})
		}
	}
	return list
}

// plainWeight says what keeps the weight of a product from being joined, or "".
func plainWeight(op *ir.Op, u *uses) string {
	w := op.Args[1]
	if w.Kind != ir.WeightValue {
		return "operand w is no weight of the model"
	}
	if w.Type.DType != ir.BF16 {
		return fmt.Sprintf("%s is %s, want bf16", w, w.Type)
	}
	if _, ok := w.Type.Size(); !ok {
		return fmt.Sprintf("%s is %s, want integer extents", w, w.Type)
	}
	if n := len(u.of[w]); n != 1 {
		return fmt.Sprintf("%s has %d uses, want one", w, n)
	}
	return ""
}

// disagrees says why an entry, which has joints with these names, would go on to
// read one of the weights by itself, or "". An entry that reads none of them has no
// say.
func (j joint) disagrees(r weightReaders, has map[string]bool) string {
	reads := func(op *ir.Op) bool { return len(r.uses.of[r.named[op.Args[1].Name]]) > 0 }
	if !slices.ContainsFunc(j.ops, reads) {
		return ""
	}
	if has[j.String()] {
		return ""
	}
	return fmt.Sprintf("%s are not products of one value in @%s, or not all that can be one", j, r.entry)
}

// joinLinears puts one product in the place of each joint's first.
func joinLinears(c *Context, g *ir.Graph, joints []joint) (*ir.Graph, error) {
	if len(joints) == 0 {
		return g, nil
	}
	of := map[*ir.Op]joint{}
	for _, j := range joints {
		for _, op := range j.ops {
			of[op] = j
		}
	}
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		j, ok := of[op]
		if !ok {
			e.Copy(op)
			continue
		}
		if op != j.first {
			continue
		}
		c.Remark(Applied, op, "one product with %s", j)
		e.At(op.Loc)
		var sizes []int
		var weights []*ir.Value
		for _, o := range j.ops {
			n, _ := o.Args[1].Type.Dims[0].Const()
			sizes, weights = append(sizes, n), append(weights, e.Value(o.Args[1]))
		}
		y := e.Op(fmt.Sprintf("linear%d", len(j.ops)), ir.A("sizes", sizes, "to", op.DType("to")), e.Value(op.Args[0]), e.Concat(0, weights...))
		for i, o := range j.ops {
			e.Replace(o.Results[0], y[i])
		}
	}
	return e.Finish()
}
