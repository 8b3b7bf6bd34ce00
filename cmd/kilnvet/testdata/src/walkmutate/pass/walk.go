// Package pass holds passes, right and wrong ones.
package pass

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
)

func made() *ir.Graph { return &ir.Graph{} }

// The graphs of walks are the function's own, so that only the walk is at fault.
func walks(op *ir.Op, v *ir.Value) {
	g, other := made(), made()
	for i, o := range g.Ops {
		g.Ops = append(g.Ops, o)              // want `g.Ops changes while it is walked: build a new graph`
		g.Ops = slices.Delete(g.Ops, i, i+1)  // want `g.Ops changes while it is walked`
		g.Ops = slices.Insert(g.Ops, i, o)    // want `g.Ops changes while it is walked`
		g.Ops[i] = o                          // want `g.Ops changes while it is walked`
		g.Ops = nil                           // want `g.Ops changes while it is walked`
		slices.Reverse(g.Ops)                 // want `g.Ops changes while it is walked`
		copy(g.Ops[1:], g.Ops)                // want `g.Ops changes while it is walked`
		_ = append(g.Ops[:i], g.Ops[i+1:]...) // want `g.Ops changes while it is walked`
		*g = ir.Graph{}                       // want `g.Ops changes while it is walked`

		other.Ops = append(other.Ops, o)
		g.Outputs = append(g.Outputs, ir.Output{})
		g.Name = "x"
		_ = append(g.Ops[:i:i], o)
	}
	for range g.Inputs {
		g.Inputs = append(g.Inputs, v) // want `g.Inputs changes while it is walked`
	}
	for i := range g.Weights {
		g.Weights = slices.Delete(g.Weights, i, i+1) // want `g.Weights changes`
	}
	for i := range len(g.States) {
		g.States = slices.Delete(g.States, i, i+1) // want `g.States changes`
	}
	for i := range slices.Backward(g.Outputs) {
		g.Outputs[i] = ir.Output{} // want `g.Outputs changes`
		g.Outputs[i].Name = "x"
	}
	for range g.Updates[1:] {
		g.Updates = g.Updates[1:] // want `g.Updates changes`
	}
	own := &ir.Op{Args: slices.Clone(op.Args)}
	for i := range own.Args {
		own.Args[i] = nil // want `own.Args changes while it is walked`
	}
	func() {
		for range g.Ops {
			func() { g.Ops = nil }() // want `g.Ops changes`
		}
	}()
}

func aliases() {
	g := made()
	ops := g.Ops
	for i := range ops {
		g.Ops = append(g.Ops, nil)       // want `g.Ops changes while it is walked`
		ops[i] = nil                     // want `g.Ops changes while it is walked`
		ops = slices.Delete(ops, i, i+1) // want `g.Ops changes while it is walked`
	}
	kept := g.Inputs[:0]
	for _, v := range g.Inputs {
		kept = append(kept, v) // want `g.Inputs changes while it is walked`
	}
	g.Inputs = kept
}

func notAliases() {
	g := made()
	ops := g.Ops
	g.Ops = nil
	for _, op := range ops {
		g.Ops = append(g.Ops, op)
	}
	for i, op := range slices.Clone(g.Ops) {
		g.Ops[i] = op
	}
	copied := slices.Clone(g.Inputs)
	for i := range g.Inputs {
		copied[i] = nil
		copied = append(copied, nil)
	}
	rest := g.Weights
	for len(rest) > 0 {
		rest = rest[1:]
	}
	var live []*ir.Op
	for _, op := range g.Ops {
		if len(op.Results) > 0 {
			live = append(live, op)
		}
	}
	g.Ops = live
	for i := 0; i < len(g.Ops); i++ { // a worklist reads the length anew
		g.Ops = append(g.Ops, nil)
	}
}

func ending() {
	g := made()
	for i := range g.Ops {
		if i == 3 {
			g.Ops = slices.Delete(g.Ops, i, i+1)
			break
		}
	}
	for i := range g.Ops {
		if i == 3 {
			g.Ops = slices.Delete(g.Ops, i, i+1)
			return
		}
		switch i {
		case 4:
			g.Ops = slices.Delete(g.Ops, i, i+1) // want `g.Ops changes while it is walked`
			break
		}
		for {
			g.Ops = nil // want `g.Ops changes while it is walked`
			break
		}
	}
}

func others() {
	type list struct{ Ops []int }
	l := &list{}
	for range l.Ops {
		l.Ops = append(l.Ops, 1)
	}
	type kept struct{ m map[*ir.Value]*ir.Value }
	k := kept{}
	for _, v := range made().Inputs {
		k.m[v] = v
	}
}
