package passes

import (
	"math/rand/v2"

	"github.com/kiln-project/kiln/ir"
)

// shuffle puts a graph's ops into another valid order: operands come before their
// uses, and the op that writes a pool after those that read its old value.
func shuffle(g *ir.Graph, r *rand.Rand) (*ir.Graph, error) {
	index := map[*ir.Op]int{}
	for i, op := range g.Ops {
		index[op] = i
	}
	after := make([][]int, len(g.Ops)) // ops that wait for this one
	waits := make([]int, len(g.Ops))
	edge := func(from, to int) {
		after[from] = append(after[from], to)
		waits[to]++
	}
	readers := map[*ir.Value][]int{}
	for i, op := range g.Ops {
		for _, a := range op.Args {
			if a.Kind == ir.OpResult {
				edge(index[a.Op], i)
			}
			readers[a] = append(readers[a], i)
		}
	}
	for i, op := range g.Ops {
		if op.Def.Name != "scatter_rows" || !isPool(op.Args[0]) {
			continue
		}
		for _, reader := range readers[op.Args[0]] {
			if reader != i {
				edge(reader, i)
			}
		}
	}
	var ready []int
	for i := range g.Ops {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	e := ir.NewEdit(g)
	for len(ready) > 0 {
		k := r.IntN(len(ready))
		i := ready[k]
		ready[k] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		e.Copy(g.Ops[i])
		for _, j := range after[i] {
			if waits[j]--; waits[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	return e.Finish()
}

// isPool reports whether v is a state pool, or one that was written.
func isPool(v *ir.Value) bool {
	for v.Kind == ir.OpResult && v.Op.Def.Name == "scatter_rows" {
		v = v.Op.Args[0]
	}
	return v.Kind == ir.StateValue
}
