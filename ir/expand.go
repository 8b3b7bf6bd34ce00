package ir

// Expand replaces every composite op by its decomposition, recursively, until
// only primitives are left. It does not change the graph's meaning: the
// decomposition is the meaning.
func Expand(g *Graph) (*Graph, error) {
	if err := Verify(g); err != nil {
		return nil, err
	}
	b := NewBuilder(g.Name, g.Meta...)
	b.g.Pos = g.Pos
	b.g.Syms = append([]string{}, g.Syms...)
	b.g.Lets = append([]Let{}, g.Lets...)
	c := &cloner{}
	shell := c.shell(g)
	b.g.Inputs, b.g.Weights, b.g.States = shell.Inputs, shell.Weights, shell.States
	for _, op := range g.Ops {
		args := make([]*Value, len(op.Args))
		for i, a := range op.Args {
			args[i] = c.get(a)
		}
		b.At(op.Loc)
		results := b.expandOp(op.Def, op.Attrs, args, 0)
		for i, r := range op.Results {
			c.m[r] = results[i]
		}
	}
	c.finish(g, b.g)
	return b.Finish()
}

// maxExpandDepth bounds composites within composites: an op whose decomposition
// holds itself is an error, not an endless recursion.
const maxExpandDepth = 32

// expandOp appends the primitives that mean one op.
func (b *Builder) expandOp(d *OpDef, attrs Attrs, args []*Value, depth int) []*Value {
	if depth > maxExpandDepth {
		b.fail("%s: decompositions are nested deeper than %d", d.Name, maxExpandDepth)
	}
	if b.err != nil {
		return placeholders(len(d.Results))
	}
	o, err := newOp(d, args, attrs, b.loc, Pos{})
	if err != nil {
		b.fail("%s: %w", d.Name, err)
		return placeholders(len(d.Results))
	}
	if d.Primitive() {
		b.g.Ops = append(b.g.Ops, o)
		return o.Results
	}
	ops, results, err := Decompose(o)
	if err != nil {
		b.fail("%w", err)
		return placeholders(len(d.Results))
	}
	m := map[*Value]*Value{}
	get := func(v *Value) *Value {
		if n, ok := m[v]; ok {
			return n
		}
		return v // an operand of the composite
	}
	for _, op := range ops {
		in := make([]*Value, len(op.Args))
		for i, a := range op.Args {
			in[i] = get(a)
		}
		for i, r := range b.expandOp(op.Def, op.Attrs, in, depth+1) {
			m[op.Results[i]] = r
		}
	}
	out := make([]*Value, len(results))
	for i, r := range results {
		out[i] = get(r)
	}
	return out
}
