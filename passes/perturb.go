package passes

import "github.com/kiln-project/kiln/ir"

// perturbation is eight units in the last place of an f32.
const perturbation = 1 + 1.0/(1<<20)

// perturb multiplies the f32 results of every op that computes: what differs much
// without it hangs on the last bits of its inputs. Results of ops that only move
// data, pools among them, stay: their elements were multiplied where they were
// made. It declares no Limit: how far a result moves is what it is there to show.
func perturb(_ *Context, g *ir.Graph) (*ir.Graph, error) {
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		e.Copy(op)
		if op.Def.Primitive() && op.Def.Flops == nil {
			continue
		}
		e.At(op.Loc)
		for _, r := range op.Results {
			if r.Type.DType == ir.F32 {
				e.Replace(r, e.Bin("mul", e.Value(r), e.F(perturbation)))
			}
		}
	}
	return e.Finish()
}
