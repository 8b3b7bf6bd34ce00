package check

import (
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// packsOf are the values of a graph that are packed rows which some op reads, and the
// pools that they are written to.
func packsOf(g *ir.Graph) map[*ir.Value]ir.RowFormat {
	packs := map[*ir.Value]ir.RowFormat{}
	for i := len(g.Ops) - 1; i >= 0; i-- {
		op := g.Ops[i]
		for j, a := range op.Args {
			if f, ok := ir.PackedOperand(op, j); ok {
				packs[a] = f
			}
		}
		if f, ok := packs[op.Results[0]]; ok && op.Def.Name == "scatter_rows" {
			packs[op.Args[0]], packs[op.Args[2]] = f, f
		}
	}
	return packs
}

// packFloor is the floor of made-up rows: below all their numbers.
const packFloor = 1e-30

// packed makes packed rows of a type.
func (c *Case) packed(r *rand.Rand, t ir.Type, f ir.RowFormat) (*eval.Tensor, error) {
	wide := ir.RowFormat{D: f.D}.Row(t.Dims[:t.Rank()-1]...)
	x, err := c.fill(r, wide, span{})
	if err != nil {
		return nil, err
	}
	return one(x, func(b *ir.Builder, x *ir.Value) *ir.Value {
		return b.Op1("pack_rows", append(f.Attrs(), ir.A("floor", packFloor)...), x)
	})
}

// numbers are results of an op as they are compared: packed rows as the numbers that
// they stand for, as a rounding that went another way is a step of a code.
func numbers(op *ir.Op, results []*eval.Tensor) ([]*eval.Tensor, error) {
	f, ok := ir.PackedResult(op)
	if !ok || results[0] == nil {
		return results, nil
	}
	x, err := one(results[0], func(b *ir.Builder, x *ir.Value) *ir.Value { return b.Unpack(f, x) })
	return []*eval.Tensor{x}, err
}

// one evaluates a graph of one input.
func one(x *eval.Tensor, build func(b *ir.Builder, x *ir.Value) *ir.Value) (*eval.Tensor, error) {
	b := ir.NewBuilder("rows")
	b.Output("y", build(b, b.Input("x", x.Type())))
	g, err := b.Finish()
	if err != nil {
		return nil, err
	}
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		return nil, err
	}
	out, err := p.Run(map[string]*eval.Tensor{"x": x}, nil)
	return out["y"], err
}
