package codegen

import (
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// cost is an op's arithmetic.
type cost struct {
	flops int64
	rate  target.Rate
}

// cost counts an op of a bound graph, by the op table. Layers repeat the same
// ops with the same types: each is counted once.
func (u *Unit) cost(op *ir.Op) (cost, error) {
	u.key = op.AppendSignature(u.key[:0], nil)
	if c, ok := u.costs[string(u.key)]; ok {
		return c, nil
	}
	key := string(u.key)
	n, err := ir.CostOf(op)
	if err != nil {
		return cost{}, err
	}
	c := cost{flops: n.Flops, rate: rateOf(op, n)}
	u.costs[key] = c
	return c, nil
}

// rateOf says which arithmetic of a chip bounds an op: that of matrices if most
// of it is in products, by the narrowest operand, else that of vectors.
func rateOf(op *ir.Op, n ir.Cost) target.Rate {
	if 2*n.Dots < n.Flops || n.Dots == 0 {
		return target.RateVector
	}
	rate := target.RateVector
	for _, a := range op.Args {
		switch {
		case a.Type.Quant != nil:
			return target.RateF8
		case a.Type.DType == ir.BF16:
			rate = target.RateBF16
		}
	}
	return rate
}
