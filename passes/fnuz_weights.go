package passes

import "github.com/kiln-project/kiln/ir"

// fnuzOperands lists the operands whose kernels decode block-scaled weights in
// every step. dequantize is not among them: of a weight it is packed as bf16 or
// f32, and what runs in every step has no codes left to decode.
var fnuzOperands = map[string][]int{
	"block_linear": {1},
	"split_linear": {1},
	"expert":       {1, 2, 3},
	"moe_experts":  {1, 2, 3},
}

// fnuzWeights puts recode_fnuz between an f8e4m3 weight, or what is made of
// weights alone, and the ops that decode it in every step. hoist-pack then moves
// the recoding into the pack graph.
func fnuzWeights(c *Context, g *ir.Graph) (*ir.Graph, error) {
	if !c.Target().FNUZ {
		return g, nil
	}
	b, moved := restart(g)
	for _, w := range g.Weights {
		moved[w] = b.Weight(w.Name, w.Type)
	}
	exprs := weightExprs(g)
	recoded := map[*ir.Value]*ir.Value{}
	for _, op := range g.Ops {
		args := make([]*ir.Value, len(op.Args))
		for i, a := range op.Args {
			args[i] = moved[a]
		}
		b.At(op.Loc)
		if !weightOnly(op, exprs) { // else the op itself is packed
			for _, i := range fnuzOperands[op.Def.Name] {
				if a := op.Args[i]; fromWeights(a, exprs) && a.Type.DType == ir.F8E4M3 {
					if recoded[a] == nil {
						recoded[a] = b.Op1("recode_fnuz", nil, args[i])
					}
					args[i] = recoded[a]
				}
			}
		}
		for i, r := range repeat(b, op, args) {
			moved[op.Results[i]] = r
		}
		if err := b.Err(); err != nil {
			return nil, err
		}
	}
	for _, o := range g.Outputs {
		b.Output(o.Name, moved[o.Value])
	}
	for _, u := range g.Updates {
		b.Update(moved[u.State], moved[u.Value])
	}
	return b.Finish()
}

// fromWeights reports whether v's recoding can be packed. That of a constant or of
// a weight with unbound extents would stay in the step.
func fromWeights(v *ir.Value, exprs map[*ir.Value]expr) bool {
	_, bound := v.Type.Size()
	return bound && exprs[v].packs()
}
