package ir

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Bind replaces symbols by integers and returns the new graph, verified. A
// symbol the graph does not declare, and a value below 1, are errors; symbols
// that are not given stay.
func Bind(g *Graph, values map[string]int) (*Graph, error) {
	out, err := Substitute(g, values)
	if err == nil {
		err = Verify(out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Substitute is Bind without the verification, for what is verified later on.
func Substitute(g *Graph, values map[string]int) (*Graph, error) {
	env := map[string]Dim{}
	names := make([]string, 0, len(values))
	for s := range values {
		names = append(names, s)
	}
	sort.Strings(names)
	for _, s := range names {
		if values[s] < 1 {
			return nil, fmt.Errorf("graph @%s: bind %s=%d: extents are at least 1", g.Name, s, values[s])
		}
		env[s] = Int(values[s])
	}
	syms := []string{}
	for _, s := range g.Syms {
		if _, ok := env[s]; !ok {
			syms = append(syms, s)
		}
	}
	for _, s := range names {
		if !contains(g.Syms, s) {
			return nil, fmt.Errorf("graph @%s: bind %s: no such symbol; the graph declares %s", g.Name, s, strings.Join(g.Syms, ", "))
		}
	}
	c := &cloner{dim: func(d Dim) Dim { return d.Subst(env) }}
	out := c.shell(g)
	out.Syms = syms
	for _, l := range g.Lets {
		if d := c.dim(l.Dim); d.x != nil {
			out.Lets = append(out.Lets, Let{l.Name, d, l.Pos})
		}
	}
	out.Ops = make([]*Op, 0, len(g.Ops))
	for _, op := range g.Ops {
		out.Ops = append(out.Ops, c.op(op))
	}
	c.finish(g, out)
	return out, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// cloner copies a graph value by value.
type cloner struct {
	dim func(Dim) Dim // nil: extents stay, and copies share the lists of them
	m   map[*Value]*Value
	// What lists of extents have become, by where they lie: values share them.
	lists map[*Dim][]Dim
}

// shell copies everything but symbols, ops, outputs and updates.
func (c *cloner) shell(g *Graph) *Graph {
	c.m = make(map[*Value]*Value, len(g.Weights)+2*len(g.Ops))
	out := &Graph{Name: g.Name, Meta: append([]Meta{}, g.Meta...), Pos: g.Pos}
	copyAll := func(vs []*Value) []*Value {
		list := make([]*Value, len(vs))
		for i, v := range vs {
			list[i] = c.value(v)
		}
		return list
	}
	out.Inputs, out.Weights, out.States = copyAll(g.Inputs), copyAll(g.Weights), copyAll(g.States)
	return out
}

func (c *cloner) value(v *Value) *Value {
	n := &Value{Kind: v.Kind, Name: v.Name, Type: c.typ(v.Type), Index: v.Index, Pos: v.Pos}
	c.m[v] = n
	return n
}

func (c *cloner) typ(t Type) Type {
	return t.With(c.dims(t.Dims)...)
}

func (c *cloner) dims(ds []Dim) []Dim {
	if c.dim == nil || !slices.ContainsFunc(ds, func(d Dim) bool { return d.x != nil }) {
		return ds
	}
	if out := c.lists[&ds[0]]; len(out) == len(ds) {
		return out
	}
	out := make([]Dim, len(ds))
	for i, d := range ds {
		out[i] = c.dim(d)
	}
	if c.lists == nil {
		c.lists = map[*Dim][]Dim{}
	}
	c.lists[&ds[0]] = out
	return out
}

func (c *cloner) op(o *Op) *Op {
	n := &Op{Def: o.Def, Loc: o.Loc, Pos: o.Pos, Attrs: c.attrs(o.Attrs), Args: make([]*Value, len(o.Args)), Results: make([]*Value, 0, len(o.Results))}
	for i, a := range o.Args {
		n.Args[i] = c.get(a)
	}
	for _, r := range o.Results {
		nr := c.value(r)
		nr.Op = n
		n.Results = append(n.Results, nr)
	}
	return n
}

// attrs are the attributes of an op in the copy.
func (c *cloner) attrs(list Attrs) Attrs {
	if c.dim == nil || !slices.ContainsFunc(list, func(a Attr) bool { k, _ := kindOf(a.Val); return k == AttrDim || k == AttrDims }) {
		return list
	}
	out := make(Attrs, len(list))
	for i, a := range list {
		switch d := a.Val.(type) {
		case Dim:
			a.Val = c.dim(d)
		case []Dim:
			a.Val = c.dims(d)
		}
		out[i] = a
	}
	return out
}

// get maps an operand; one that was never defined maps to itself, so that
// Verify reports it.
func (c *cloner) get(v *Value) *Value {
	if n, ok := c.m[v]; ok {
		return n
	}
	return v
}

func (c *cloner) finish(g, out *Graph) {
	for _, o := range g.Outputs {
		out.Outputs = append(out.Outputs, Output{o.Name, c.get(o.Value), o.Pos})
	}
	for _, u := range g.Updates {
		out.Updates = append(out.Updates, Update{c.get(u.State), c.get(u.Value), u.Pos})
	}
}
