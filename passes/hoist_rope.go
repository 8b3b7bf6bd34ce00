package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// ropeLoc is where gathers of rope tables stand after hoist-rope.
const ropeLoc = "rope"

// hoistRope gathers the rows of rope tables once per step instead of in every
// layer: one gather of each distinct table and position vector, at the top of the
// graph, with the ops that make the vector. Tables are told apart by the plan
// that they are made of, vectors by how they are computed from inputs.
func hoistRope(c *Context, g *ir.Graph) (*ir.Graph, error) {
	h := &ropeHoister{
		tables: ropeTables(c.Module.Pack), same: map[*ir.Value]*ir.Value{},
		class: map[*ir.Op]*ir.Op{}, depends: map[*ir.Value]string{}, hoist: map[*ir.Op]bool{},
	}
	h.sameTables(g)
	gathers := h.classify(c, g)
	if len(gathers) == 0 {
		return g, nil
	}
	count := map[*ir.Op]int{}
	for _, op := range gathers {
		count[h.class[op]]++
		h.mark(h.class[op])
	}
	if h.done(g, count, len(gathers)) {
		return g, nil
	}
	e := ir.NewEdit(g)
	top := map[*ir.Value]*ir.Value{} // a result of a hoisted op -> the one at the top
	for _, op := range g.Ops {
		if !h.hoist[op] {
			continue
		}
		args := make([]*ir.Value, len(op.Args))
		for i, a := range op.Args {
			if f, ok := h.same[a]; ok {
				a = f
			}
			if args[i] = top[a]; args[i] == nil {
				args[i] = e.Value(a)
			}
		}
		e.At(ropeLoc)
		for i, r := range e.Op(op.Def.Name, op.Attrs, args...) {
			top[op.Results[i]] = r
		}
		if n := count[op]; n > 0 {
			c.Remark(Applied, op, "moved to the top of the step; gathers replaced: %d", n)
		}
	}
	drop := h.unused(g)
	for _, op := range g.Ops {
		if !drop[op] {
			e.Copy(op)
			continue
		}
		for i, r := range op.Results {
			e.Replace(r, top[h.class[op].Results[i]])
		}
	}
	return e.Finish()
}

type ropeHoister struct {
	tables map[string]string // packed weight -> what is in it
	same   map[*ir.Value]*ir.Value
	// class is the first op that computes the same, of ops that need inputs and rope
	// tables only; depends says what else a value needs.
	class   map[*ir.Op]*ir.Op
	depends map[*ir.Value]string
	hoist   map[*ir.Op]bool // first ops that go to the top
}

// ropeTables are the packed weights that freqs_cis makes, each with its plan.
func ropeTables(pack *ir.Graph) map[string]string {
	tables := map[string]string{}
	if pack == nil {
		return tables
	}
	for _, o := range pack.Outputs {
		if op := o.Value.Op; op != nil && op.Def.Name == "freqs_cis" {
			tables[o.Name] = fmt.Sprint(o.Value.Index, op.Attrs)
		}
	}
	return tables
}

// sameTables has equal tables count as the first of them.
func (h *ropeHoister) sameTables(g *ir.Graph) {
	first := map[string]*ir.Value{}
	for _, w := range g.Weights {
		plan, ok := h.tables[w.Name]
		if !ok {
			continue
		}
		if f := first[plan]; f != nil {
			h.same[w] = f
		} else {
			first[plan] = w
		}
	}
}

// isTable reports whether v is a rope table.
func (h *ropeHoister) isTable(v *ir.Value) bool {
	return v.Kind == ir.WeightValue && h.tables[v.Name] != ""
}

// untraced reports whether v is a packed weight that the pack graph does not make,
// as in a graph that was printed without its pack graph.
func untraced(pack *ir.Graph, v *ir.Value) bool {
	if v.Kind != ir.WeightValue || !strings.HasPrefix(v.Name, PackedPrefix) {
		return false
	}
	return pack == nil || !slices.ContainsFunc(pack.Outputs, func(o ir.Output) bool { return o.Name == v.Name })
}

// classify finds equal ops, and the gathers that can go to the top.
func (h *ropeHoister) classify(c *Context, g *ir.Graph) (gathers []*ir.Op) {
	number, first := map[*ir.Value]int{}, map[string]*ir.Op{}
	for _, op := range g.Ops {
		gather := op.Def.Name == "gather_rows" && h.isTable(op.Args[0])
		if op.Def.Name == "gather_rows" && untraced(c.Module.Pack, op.Args[0]) {
			c.Remark(Missed, op, "no pack graph says what %s is made of: it may be a rope table", op.Args[0])
		}
		args := op.Args
		if gather {
			args = args[1:]
		}
		why := ""
		for _, a := range args {
			if why == "" {
				why = h.needs(a)
			}
		}
		if why == "" {
			key := opKey(op, h.same, number)
			if first[key] == nil {
				first[key] = op
			}
			h.class[op] = first[key]
		}
		for i, r := range op.Results {
			h.depends[r] = why
			if f := h.class[op]; f != nil && f != op {
				h.same[r] = f.Results[i]
			}
		}
		switch {
		case gather && why == "":
			gathers = append(gathers, op)
		case gather:
			c.Remark(Missed, op, "its positions depend on %s, not on inputs alone", why)
		}
	}
	return gathers
}

// needs says what a value needs besides inputs, or "".
func (h *ropeHoister) needs(v *ir.Value) string {
	switch v.Kind {
	case ir.OpResult:
		return h.depends[v]
	case ir.InputValue:
		return ""
	}
	return v.String()
}

// mark sends an op to the top, with those that make its operands.
func (h *ropeHoister) mark(op *ir.Op) {
	if h.hoist[op] {
		return
	}
	h.hoist[op] = true
	for _, a := range op.Args {
		if a.Kind == ir.OpResult {
			h.mark(h.class[a.Op])
		}
	}
}

// done reports whether the top is as this pass would leave it.
func (h *ropeHoister) done(g *ir.Graph, count map[*ir.Op]int, gathers int) bool {
	for _, op := range g.Ops[:len(h.hoist)] {
		if !h.hoist[op] || op.Loc != ropeLoc {
			return false
		}
	}
	return len(count) == gathers
}

// unused are the ops in whose place the top is read: all that are equal to one
// there, but constants that others read too.
func (h *ropeHoister) unused(g *ir.Graph) map[*ir.Op]bool {
	u, drop := usesOf(g), map[*ir.Op]bool{}
	for i := len(g.Ops) - 1; i >= 0; i-- {
		op := g.Ops[i]
		if f := h.class[op]; f == nil || !h.hoist[f] {
			continue
		}
		drop[op] = true
		if len(op.Args) > 0 {
			continue
		}
		for _, by := range u.of[op.Results[0]] {
			drop[op] = drop[op] && by.op != nil && drop[by.op]
		}
	}
	return drop
}
