package passes

import "github.com/kiln-project/kiln/ir"

// restart begins a new version of g: its symbols, inputs and states, and where
// the old ones went.
func restart(g *ir.Graph) (*ir.Builder, map[*ir.Value]*ir.Value) {
	b := ir.NewBuilder(g.Name, g.Meta...)
	for _, s := range g.Syms {
		b.Sym(s)
	}
	for _, l := range g.Lets {
		b.Let(l.Name, l.Dim)
	}
	moved := map[*ir.Value]*ir.Value{}
	for _, v := range g.Inputs {
		moved[v] = b.Input(v.Name, v.Type)
	}
	for _, v := range g.States {
		moved[v] = b.State(v.Name, v.Type)
	}
	return b, moved
}

// rebuild repeats the op that defines v in another graph.
func rebuild(b *ir.Builder, v *ir.Value, get func(*ir.Value) *ir.Value, into map[*ir.Value]*ir.Value) {
	args := make([]*ir.Value, len(v.Op.Args))
	for i, a := range v.Op.Args {
		args[i] = get(a)
	}
	for i, r := range repeat(b, v.Op, args) {
		into[v.Op.Results[i]] = r
	}
}

// repeat makes an op again, on other operands, with its place in the model and in
// the text.
func repeat(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value {
	b.AtOp(op)
	return b.Op(op.Def.Name, op.Attrs, args...)
}
