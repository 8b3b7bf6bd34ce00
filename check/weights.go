package check

import (
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Random serves random weights for some graphs: each depends on its name, its
// type and the seed only. Integers stay in what they index.
type Random struct {
	seed  uint64
	spans map[string]span
}

// NewRandom makes a source for the weights of graphs.
func NewRandom(seed uint64, graphs ...*ir.Graph) *Random {
	s := &Random{seed: seed, spans: map[string]span{}}
	for _, g := range graphs {
		spans := spansOf(g)
		for _, w := range g.Weights {
			if sp, ok := spans[w]; ok {
				s.spans[w.Name] = s.spans[w.Name].meet(sp)
			}
		}
	}
	return s
}

// Weight implements eval.WeightSource.
func (s *Random) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	return Cases[0].weight(source(s.seed, "weight", name+" "+t.String()), t, s.spans[name])
}
