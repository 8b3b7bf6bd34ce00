package engine

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Packed is weights with those that the pack graph computes from them, on the oracle
// for every device. Nothing is kept: what is asked for is evaluated.
type Packed struct {
	base   eval.WeightSource
	stored StoredSource         // base, if it is one
	values map[string]*ir.Value // outputs, in a graph of primitives
	names  []string             // in the order of the graph
}

// BindPack returns weights with the outputs of the pack graph (nil if there is none),
// the packed weights, before the checkpoint's own.
func BindPack(pack *ir.Graph, weights eval.WeightSource) (eval.WeightSource, error) {
	if pack == nil {
		return weights, nil
	}
	return newPacked(pack, weights)
}

func newPacked(pack *ir.Graph, weights eval.WeightSource) (*Packed, error) {
	g, err := ir.Expand(pack)
	if err != nil {
		return nil, err
	}
	s := &Packed{base: weights, values: map[string]*ir.Value{}}
	s.stored, _ = weights.(StoredSource)
	for _, o := range g.Outputs {
		s.values[o.Name] = o.Value
		s.names = append(s.names, o.Name)
	}
	return s, nil
}

// Weight implements eval.WeightSource.
func (s *Packed) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	if v, ok := s.values[name]; ok {
		return evaluate(v, s.base)
	}
	if s.base == nil {
		return nil, fmt.Errorf("weight %s: no weights are bound", name)
	}
	return s.base.Weight(name, t)
}

// evaluate computes a weight-only value whole.
func evaluate(v *ir.Value, weights eval.WeightSource) (*eval.Tensor, error) {
	g, err := graphOf(v)
	if err != nil {
		return nil, err
	}
	p, err := eval.Compile(g, eval.NewConsts(weights))
	if err != nil {
		return nil, err
	}
	out, err := p.Run(nil, nil)
	if err != nil {
		return nil, err
	}
	return out[packedOutput], nil
}

const packedOutput = "packed"

// graphOf is a graph of its own for a weight-only value.
func graphOf(v *ir.Value) (*ir.Graph, error) {
	b := ir.NewBuilder("pack")
	moved := map[*ir.Value]*ir.Value{}
	var get func(v *ir.Value) *ir.Value
	get = func(v *ir.Value) *ir.Value {
		if n, ok := moved[v]; ok {
			return n
		}
		if v.Kind != ir.OpResult {
			moved[v] = b.Weight(v.Name, v.Type)
			return moved[v]
		}
		args := make([]*ir.Value, len(v.Op.Args))
		for i, a := range v.Op.Args {
			args[i] = get(a)
		}
		b.AtOp(v.Op)
		for i, r := range b.Op(v.Op.Def.Name, v.Op.Attrs, args...) {
			if i < len(v.Op.Results) {
				moved[v.Op.Results[i]] = r
			}
		}
		return moved[v]
	}
	b.Output(packedOutput, get(v))
	return b.Finish()
}

// held is what the values of a graph of primitives take of this process's memory when none is
// dropped before the end: weights as decoded, and the outputs' copies.
func held(g *ir.Graph) (int64, error) {
	var total int64
	add := func(v *ir.Value) error {
		n, err := eval.Held(v.Type)
		total += n
		return err
	}
	for _, v := range slices.Concat(g.Inputs, g.Weights) {
		if err := add(v); err != nil {
			return 0, err
		}
	}
	for _, op := range g.Ops {
		for _, r := range op.Results {
			if err := add(r); err != nil {
				return 0, err
			}
		}
	}
	for _, o := range g.Outputs {
		if err := add(o.Value); err != nil {
			return 0, err
		}
	}
	return total, nil
}
