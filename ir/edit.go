package ir

import "fmt"

// Edit makes a new version of a graph and leaves the old one as it is. Ops are
// repeated in order (Copy), made anew by the Builder's methods, or left out; a
// value may be replaced by another of the same type only.
type Edit struct {
	*Builder
	from *Graph
	to   map[*Value]*Value
}

// NewEdit starts a new version of g, with its symbols, inputs, weights and states.
func NewEdit(g *Graph) *Edit {
	c := &cloner{}
	e := &Edit{Builder: &Builder{g: &Graph{Name: g.Name, Meta: g.Meta}}, from: g}
	shell := c.shell(g)
	e.to = c.m
	e.g.Pos = g.Pos
	e.g.Syms, e.g.Lets = append([]string{}, g.Syms...), append([]Let{}, g.Lets...)
	e.g.Inputs, e.g.Weights, e.g.States = shell.Inputs, shell.Weights, shell.States
	e.g.Ops = make([]*Op, 0, len(g.Ops))
	return e
}

// Value is where a value of the old graph went. It must have been copied or
// replaced.
func (e *Edit) Value(old *Value) *Value {
	if v, ok := e.to[old]; ok {
		return v
	}
	e.fail("value %s is used and was neither copied nor replaced", old)
	return &Value{Type: old.Type}
}

// Copy repeats an op of the old graph on what its operands have become.
func (e *Edit) Copy(op *Op) {
	n := &Op{Def: op.Def, Attrs: op.Attrs, Loc: op.Loc, Pos: op.Pos, Args: make([]*Value, len(op.Args)), Results: make([]*Value, len(op.Results))}
	for i, a := range op.Args {
		n.Args[i] = e.Value(a)
	}
	for i, r := range op.Results {
		n.Results[i] = &Value{Kind: OpResult, Type: r.Type, Op: n, Index: i, Pos: r.Pos}
		e.to[r] = n.Results[i]
	}
	e.g.Ops = append(e.g.Ops, n)
}

// Replace has every later use of an old value read a value of the new graph
// instead. Another type is an error: what a graph computes keeps its type.
func (e *Edit) Replace(old, by *Value) {
	if !old.Type.Equal(by.Type) {
		e.fail("a value of type %s is replaced by one of type %s", old.Type, by.Type)
	}
	e.to[old] = by
}

// Finish ends the graph: outputs and updates are those of the old one, weights
// that nothing reads any more are gone. It does not verify.
func (e *Edit) Finish() (*Graph, error) {
	for _, o := range e.from.Outputs {
		e.g.Outputs = append(e.g.Outputs, Output{o.Name, e.Value(o.Value), o.Pos})
	}
	for _, u := range e.from.Updates {
		e.g.Updates = append(e.g.Updates, Update{e.Value(u.State), e.Value(u.Value), u.Pos})
	}
	used := make(map[*Value]bool, len(e.g.Weights)+len(e.g.Ops))
	for _, op := range e.g.Ops {
		for _, a := range op.Args {
			used[a] = true
		}
	}
	for _, o := range e.g.Outputs {
		used[o.Value] = true
	}
	var weights []*Value
	for _, w := range e.g.Weights {
		if used[w] {
			weights = append(weights, w)
		}
	}
	e.g.Weights = weights
	if e.err != nil {
		return nil, fmt.Errorf("graph @%s: %w", e.g.Name, e.err)
	}
	return e.g, nil
}
