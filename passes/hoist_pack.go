package passes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// PackGraph is the name of the pack graph; packed weights are named
// PackedPrefix + the weight they come from.
const (
	PackGraph    = "pack"
	PackedPrefix = "packed."
)

// hoistPack moves weight-only values into the pack graph. A value is hoisted
// where something that is not weight-only uses it, if its expression contains a
// weight or an op that the op table marks as a table. Cheap constants stay.
// Equal expressions, in any entry, are packed once.
func hoistPack(c *Context) error {
	m := c.Module
	h := &hoister{
		pack:  ir.NewBuilder(PackGraph),
		names: map[string]string{}, taken: map[string]bool{},
	}
	// A weight of the model keeps its name, in whichever entry it is read.
	for _, g := range m.Entries {
		for _, w := range g.Weights {
			h.taken[w.Name] = true
		}
	}
	hoisted := false
	for i, g := range m.Entries {
		if i == 0 {
			h.pack = ir.NewBuilder(PackGraph, g.Meta...)
		}
		out, any, err := h.entry(g)
		if err != nil {
			return err
		}
		// With nothing hoisted or dropped, only the order of the weights would change.
		if any || len(out.Ops) != len(g.Ops) || len(out.Weights) != len(g.Weights) {
			m.Entries[i] = out
		}
		hoisted = hoisted || any
	}
	if !hoisted {
		return nil
	}
	if m.Pack != nil {
		return fmt.Errorf("%w: @%s", ErrPacked, m.Pack.Name)
	}
	pack, err := h.pack.Finish()
	m.Pack = pack
	return err
}

// ErrPacked: there is something to hoist, and another pack graph.
var ErrPacked = errors.New("there is a pack graph already")

type hoister struct {
	pack  *ir.Builder
	names map[string]string // expression -> packed weight
	taken map[string]bool   // names of weights, the model's and packed ones
}

func (h *hoister) entry(g *ir.Graph) (*ir.Graph, bool, error) {
	b, moved := restart(g)
	exprs := weightExprs(g)

	any := false
	// get is v in the new graph; a weight-only value is packed or rebuilt there.
	var get func(v *ir.Value) *ir.Value
	get = func(v *ir.Value) *ir.Value {
		if n, ok := moved[v]; ok {
			return n
		}
		e := exprs[v]
		var n *ir.Value
		switch {
		case v.Kind == ir.WeightValue:
			n = b.Weight(v.Name, v.Type)
		case e.packs():
			any = true
			n = b.Weight(h.packed(e), v.Type)
		default:
			rebuild(b, v, get, moved)
			n = moved[v]
		}
		moved[v] = n
		return n
	}
	for _, op := range g.Ops {
		if weightOnly(op, exprs) {
			continue
		}
		args := make([]*ir.Value, len(op.Args))
		for i, a := range op.Args {
			args[i] = get(a)
		}
		for i, r := range repeat(b, op, args) {
			moved[op.Results[i]] = r
		}
		if err := b.Err(); err != nil {
			return nil, false, err
		}
	}
	for _, o := range g.Outputs {
		b.Output(o.Name, get(o.Value))
	}
	for _, u := range g.Updates {
		b.Update(get(u.State), get(u.Value))
	}
	out, err := b.Finish()
	return out, any, err
}

// packed returns the packed weight that holds e, building it on first use.
func (h *hoister) packed(e expr) string {
	if name, ok := h.names[e.key]; ok {
		return name
	}
	base := PackedPrefix + strings.NewReplacer("*", "all", "+", ".and.").Replace(e.weight)
	if e.weight == "" {
		op := e.value.Op
		base = PackedPrefix + e.table + "." + op.Def.Results[e.value.Index]
	}
	name := base
	for i := 1; h.taken[name]; i++ {
		name = fmt.Sprintf("%s.%d", base, i)
	}
	h.names[e.key], h.taken[name] = name, true
	local := map[*ir.Value]*ir.Value{}
	var get func(v *ir.Value) *ir.Value
	get = func(v *ir.Value) *ir.Value {
		if n, ok := local[v]; ok {
			return n
		}
		if v.Kind == ir.WeightValue {
			local[v] = h.pack.Weight(v.Name, v.Type)
		} else {
			rebuild(h.pack, v, get, local)
		}
		return local[v]
	}
	h.pack.Output(name, get(e.value))
	return name
}
