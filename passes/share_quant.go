package passes

import "github.com/kiln-project/kiln/ir"

// quantises lists the ops that quantise their first operand as their attribute
// act_block says.
var quantises = map[string]bool{"block_linear": true, "split_linear": true, "expert": true, "moe_experts": true}

// shareQuant quantises activations once that several products read, instead of in
// each of them: the products get bf16 values that are exactly those of codes and
// scales. They are no codes, which kernels that do not multiply in 8 bits would
// have to decode again for every tile. The quantisation of a norm leaves its
// product too, so that fuse-norm-quant finds it.
func shareQuant(c *Context, g *ir.Graph) (*ir.Graph, error) {
	type operand struct {
		x     *ir.Value
		block int
	}
	products := map[operand][]*ir.Op{}
	of := func(op *ir.Op) (operand, bool) {
		if !quantises[op.Def.Name] || op.Int("act_block") == 0 {
			return operand{}, false
		}
		return operand{op.Args[0], op.Int("act_block")}, true
	}
	for _, op := range g.Ops {
		if x, ok := of(op); ok {
			products[x] = append(products[x], op)
		}
	}
	rounded := map[operand]*ir.Value{}
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		x, ok := of(op)
		n := len(products[x])
		switch {
		case !ok:
			e.Copy(op)
			continue
		case n == 1 && !isNorm(x.x):
			c.Remark(Missed, op, "nothing else quantises its operand, which is no result of rms_norm")
			e.Copy(op)
			continue
		}
		if rounded[x] == nil {
			e.At(op.Loc)
			rounded[x] = e.RoundActivations(e.Value(x.x), x.block)
			c.Remark(Applied, op, "the quantisation of its operand is an op of its own; products that read it: %d", n)
		}
		args := []*ir.Value{rounded[x]}
		for _, a := range op.Args[1:] {
			args = append(args, e.Value(a))
		}
		e.At(op.Loc)
		for i, r := range e.Op(op.Def.Name, with(op.Attrs, "act_block", 0), args...) {
			e.Replace(op.Results[i], r)
		}
	}
	if len(rounded) == 0 {
		return g, nil
	}
	return e.Finish()
}

func isNorm(v *ir.Value) bool { return v.Kind == ir.OpResult && v.Op.Def.Name == "rms_norm" }

// with is a copy of attributes with another value of one of them.
func with(attrs ir.Attrs, key string, val any) ir.Attrs {
	out := append(ir.Attrs{}, attrs...)
	for i := range out {
		if out[i].Key == key {
			out[i].Val = val
		}
	}
	return out
}
