package passes

import (
	"errors"
	"slices"
	"sync"

	"github.com/kiln-project/kiln/ir"
)

// kept is a graph as a pass is given it: what the graph, its ops and its inputs hold, without
// the elements of shapes and of lists in attributes, and the types of results, which cost
// as much as all else. Comparing it is one walk over the ops. Its memory serves pass after
// pass.
type kept struct {
	graph  ir.Graph
	meta   []ir.Meta
	syms   []string
	lets   []ir.Let
	ops    []*ir.Op
	fields []ir.Op     // of ops
	values []*ir.Value // inputs, weights, states; then operands and results, op by op
	attrs  []ir.Attr   // op by op
	types  []ir.Value  // what inputs, weights and states hold
	out    []ir.Output
	update []ir.Update
}

var keeps = sync.Pool{New: func() any { return &kept{} }}

// keep notes what g is.
func keep(g *ir.Graph) *kept {
	k := keeps.Get().(*kept)
	k.graph = *g
	k.meta, k.syms, k.lets = append(k.meta[:0], g.Meta...), append(k.syms[:0], g.Syms...), append(k.lets[:0], g.Lets...)
	k.out, k.update = append(k.out[:0], g.Outputs...), append(k.update[:0], g.Updates...)
	k.ops, k.fields, k.values, k.attrs, k.types = append(k.ops[:0], g.Ops...), k.fields[:0], k.values[:0], k.attrs[:0], k.types[:0]
	k.fields = slices.Grow(k.fields, len(g.Ops))
	k.attrs, k.values = slices.Grow(k.attrs, 3*len(g.Ops)), slices.Grow(k.values, 4*len(g.Ops))
	for _, list := range [][]*ir.Value{g.Inputs, g.Weights, g.States} {
		k.note(list, true)
	}
	for _, op := range g.Ops {
		if op == nil { // of a graph that is not verified yet
			k.fields = append(k.fields, ir.Op{})
			continue
		}
		k.fields = append(k.fields, *op)
		k.attrs = append(k.attrs, op.Attrs...)
		k.note(op.Args, false)
		k.note(op.Results, false)
	}
	return k
}

func (k *kept) note(list []*ir.Value, own bool) {
	k.values = append(k.values, list...)
	if own {
		for _, v := range list {
			if v != nil {
				k.types = append(k.types, *v)
			}
		}
	}
}

// release gives the memory to the next pass.
func (k *kept) release() {
	k.graph = ir.Graph{}
	keeps.Put(k)
}

// restore makes g again what it was, and reports whether it was anything else.
func (k *kept) restore(g *ir.Graph) bool {
	same := g.Name == k.graph.Name && g.Pos == k.graph.Pos
	if !same {
		g.Name, g.Pos = k.graph.Name, k.graph.Pos //kilnvet:ignore walkmutate a pass changed it, and it becomes what it was
	}
	same = list(&g.Meta, k.graph.Meta, k.meta) && same
	same = list(&g.Syms, k.graph.Syms, k.syms) && same
	same = listBy(&g.Lets, k.graph.Lets, k.lets, func(a, b ir.Let) bool { return a.Name == b.Name && a.Dim.Equal(b.Dim) }) && same
	same = list(&g.Outputs, k.graph.Outputs, k.out) && same
	same = list(&g.Updates, k.graph.Updates, k.update) && same
	values, types, attrs := k.values, k.types, k.attrs
	of := func(now *[]*ir.Value, then []*ir.Value, own bool) {
		n := len(then)
		same = list(now, then, values[:n]) && same
		if own {
			for _, v := range values[:n] {
				if v != nil {
					same = value(v, &types[0]) && same
					types = types[1:]
				}
			}
		}
		values = values[n:]
	}
	of(&g.Inputs, k.graph.Inputs, true)
	of(&g.Weights, k.graph.Weights, true)
	of(&g.States, k.graph.States, true)
	same = list(&g.Ops, k.graph.Ops, k.ops) && same
	for i, op := range k.ops {
		if op == nil {
			continue
		}
		then := &k.fields[i]
		if op.Def != then.Def || op.Loc != then.Loc || op.Pos != then.Pos {
			//kilnvet:ignore walkmutate a pass changed it, and it becomes what it was
			op.Def, op.Loc, op.Pos, same = then.Def, then.Loc, then.Pos, false
		}
		n := len(then.Attrs)
		same = listBy((*[]ir.Attr)(&op.Attrs), then.Attrs, attrs[:n], sameAttr) && same
		attrs = attrs[n:]
		of(&op.Args, then.Args, false)
		of(&op.Results, then.Results, false)
	}
	return !same
}

// list makes a list what it was, then, whose elements are those; it reports whether it was
// that already.
func list[T comparable](now *[]T, then, elements []T) bool {
	return listBy(now, then, elements, func(a, b T) bool { return a == b })
}

func listBy[T any](now *[]T, then, elements []T, equal func(a, b T) bool) bool {
	if len(*now) == len(elements) && (len(elements) == 0 || &(*now)[0] == &then[0]) && slices.EqualFunc(*now, elements, equal) {
		return true
	}
	copy(then, elements)
	*now = then
	return false
}

// value makes a value what it was, but for its number, which printing gives.
func value(v, then *ir.Value) bool {
	t, u := &v.Type, &then.Type
	if v.Kind == then.Kind && v.Name == then.Name && v.Op == then.Op && v.Index == then.Index &&
		t.DType == u.DType && t.Quant == u.Quant && len(t.Dims) == len(u.Dims) && (len(t.Dims) == 0 || &t.Dims[0] == &u.Dims[0]) {
		return true
	}
	*v = *then //kilnvet:ignore walkmutate a pass changed it, and it becomes what it was
	return false
}

// sameAttr compares attributes, lists by where they are.
func sameAttr(a, b ir.Attr) bool {
	switch x := a.Val.(type) {
	case []int:
		y, ok := b.Val.([]int)
		return a.Key == b.Key && ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	case []ir.Dim:
		y, ok := b.Val.([]ir.Dim)
		return a.Key == b.Key && ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	}
	return a == b
}

// errInPlace: a graph that others may hold is never changed.
var errInPlace = errors.New("changed the graph that it was given")
