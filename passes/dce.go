package passes

import "github.com/kiln-project/kiln/ir"

// dce drops ops whose results nothing uses, and then those that only they used.
func dce(_ *Context, g *ir.Graph) (*ir.Graph, error) {
	used := map[*ir.Value]bool{}
	for _, o := range g.Outputs {
		used[o.Value] = true
	}
	for _, u := range g.Updates {
		used[u.Value] = true
	}
	dead := 0
	for i := len(g.Ops) - 1; i >= 0; i-- {
		if !anyUsed(g.Ops[i], used) {
			dead++
			continue
		}
		for _, a := range g.Ops[i].Args {
			used[a] = true
		}
	}
	if dead == 0 {
		return g, nil
	}
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		if anyUsed(op, used) {
			e.Copy(op)
		}
	}
	return e.Finish()
}

func anyUsed(op *ir.Op, used map[*ir.Value]bool) bool {
	for _, r := range op.Results {
		if used[r] {
			return true
		}
	}
	return false
}
