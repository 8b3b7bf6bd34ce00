package ir

import (
	"fmt"
	"sort"
	"strings"
)

// Bind replaces symbols by integers and returns the new graph, verified. A
// symbol the graph does not declare, and a value below 1, are errors; symbols
// that are not given stay.
func Bind(g *Graph, values map[string]int) (*Graph, error) {
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
	for _, op := range g.Ops {
		out.Ops = append(out.Ops, c.op(op))
	}
	c.finish(g, out)
	if err := Verify(out); err != nil {
		return nil, err
	}
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
	dim func(Dim) Dim
	m   map[*Value]*Value
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
	out := make([]Dim, len(ds))
	for i, d := range ds {
		out[i] = c.dim(d)
	}
	return out
}

func (c *cloner) op(o *Op) *Op {
	n := &Op{Def: o.Def, Loc: o.Loc, Pos: o.Pos, Attrs: make(Attrs, len(o.Attrs)), Args: make([]*Value, len(o.Args))}
	for i, a := range o.Attrs {
		switch d := a.Val.(type) {
		case Dim:
			a.Val = c.dim(d)
		case []Dim:
			a.Val = c.dims(d)
		}
		n.Attrs[i] = a
	}
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
