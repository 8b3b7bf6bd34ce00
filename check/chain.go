package check

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// needed are the ops of g that the sites depend on, and the sites, in order.
func needed(g *ir.Graph, sites map[*ir.Op]*site) []*ir.Op {
	need := map[*ir.Value]bool{}
	var back []*ir.Op
	for i := len(g.Ops) - 1; i >= 0; i-- {
		op := g.Ops[i]
		_, want := sites[op]
		for _, r := range op.Results {
			want = want || need[r]
		}
		if !want {
			continue
		}
		back = append(back, op)
		for _, a := range op.Args {
			need[a] = true
		}
	}
	ops := make([]*ir.Op, len(back))
	for i, op := range back {
		ops[len(back)-1-i] = op
	}
	return ops
}

// values are what is alive while a graph is evaluated op by op.
type values struct {
	tensors map[*ir.Value]*eval.Tensor
	weights eval.WeightSource
	last    map[*ir.Value]int // op that reads it last
}

func newValues(g *ir.Graph, ops []*ir.Op, in Values, weights eval.WeightSource) *values {
	v := &values{map[*ir.Value]*eval.Tensor{}, weights, map[*ir.Value]int{}}
	for _, x := range g.Inputs {
		v.tensors[x] = in.Inputs[x.Name]
	}
	for _, x := range g.States {
		v.tensors[x] = in.States[x.Name]
	}
	for i, op := range ops {
		for _, a := range op.Args {
			v.last[a] = i
		}
	}
	return v
}

// args are an op's operands; constants are none.
func (v *values) args(op *ir.Op) ([]*eval.Tensor, error) {
	list := make([]*eval.Tensor, len(op.Args))
	for i, a := range op.Args {
		switch {
		case a.Constant() != nil:
		case a.Kind == ir.WeightValue:
			t, err := v.weights.Weight(a.Name, a.Type)
			if err != nil {
				return nil, fmt.Errorf("weight %s: %w", a, err)
			}
			list[i] = t
		default:
			list[i] = v.tensors[a]
		}
	}
	return list, nil
}

// set keeps an op's results, and drops what was read for the last time.
func (v *values) set(op *ir.Op, results []*eval.Tensor, at int) {
	for _, a := range op.Args {
		if v.last[a] == at {
			delete(v.tensors, a)
		}
	}
	for i, r := range op.Results {
		if _, read := v.last[r]; read {
			v.tensors[r] = results[i]
		}
	}
}
