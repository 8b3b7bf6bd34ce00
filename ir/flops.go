package ir

// Cost is the arithmetic of an op whose extents are integers: floating point
// operations, a multiply-add counting 2.
type Cost struct {
	Flops int64
	Dots  int64 // those of them that are in products of matrices
}

// CostOf counts an op by its row of the op table; a composite without a count of
// its own costs what its decomposition does.
func CostOf(o *Op) (Cost, error) {
	if o.Def.Flops != nil {
		c := Cost{Flops: o.Def.Flops(o)}
		if o.Def.Name == "dot" || !o.Def.Primitive() {
			c.Dots = c.Flops
		}
		return c, nil
	}
	if o.Def.Primitive() {
		return Cost{}, nil
	}
	ops, _, err := Decompose(o)
	var sum Cost
	for i := 0; i < len(ops) && err == nil; i++ {
		var c Cost
		c, err = CostOf(ops[i])
		sum.Flops += c.Flops
		sum.Dots += c.Dots
	}
	return sum, err
}
