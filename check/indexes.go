package check

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Indexes makes the integer inputs of a bound graph: numbers that its ops may be given,
// of which none is missing. below is the end of the integers of each weight.
func Indexes(g *ir.Graph, seed uint64) (inputs map[string]*eval.Tensor, below map[string]int, err error) {
	inputs, below = map[string]*eval.Tensor{}, map[string]int{}
	spans := spansOf(g)
	for _, v := range g.Inputs {
		if !v.Type.DType.IsInt() {
			continue
		}
		x, err := eval.New(v.Type)
		if err != nil {
			return nil, nil, err
		}
		s := spans[v]
		s.index = false
		s.fill(x, source(seed, "indexes", v.Name))
		inputs[v.Name] = x
	}
	for _, v := range g.Weights {
		if v.Type.DType.IsInt() {
			below[v.Name] = spans[v].end
		}
	}
	return inputs, below, nil
}
