package engine

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// A packed weight is made some rows of its first axis at a time where every op on the
// way to it computes rows from rows. The oracle evaluates the same ops on those rows
// alone, so that the meaning of an op stays with it.

const (
	// cutElements is about how many elements are made at a time: enough that a
	// graph for each costs nothing, few enough that their f32 forms are small.
	cutElements = 1 << 20
	// cutOperand is the most elements of an operand that is evaluated whole for each
	// cut, as a vector of frequencies is.
	cutOperand = 1 << 16
)

// cut is a weight-only value that can be evaluated by rows.
type cut struct {
	value  *ir.Value
	grain  int // rows come in multiples of this
	grains map[*ir.Value]int

	elements int // that are made at a time, about
}

// newCut finds out how a value is cut; the error says why it cannot be.
func newCut(v *ir.Value) (*cut, error) {
	c := &cut{value: v, grains: map[*ir.Value]int{}, elements: cutElements}
	var err error
	c.grain, err = c.visit(v)
	return c, err
}

// grainOf is how many rows of a type have to stay together: those of a block.
func grainOf(t ir.Type) int {
	if t.Quant != nil && t.Rank() == 2 {
		return t.Quant.Block[0]
	}
	if t.DType == ir.F4E2M1 && t.Rank() == 1 {
		return 2
	}
	return 1
}

// byElement tells whether an op computes each row of its result from the same rows of
// its operands.
func byElement(op *ir.Op) bool {
	switch op.Def.Name {
	case "broadcast", "quantize", "dequantize", "recode_fnuz":
		return true
	case "concat", "slice":
		return op.Int("axis") != 0
	case "transpose":
		return op.Ints("perm")[0] == 0
	}
	return op.Def.Group == "elementwise"
}

// visit is the grain of a value: rows from a multiple of it to another one, or to the
// end, are computed from rows of the operands.
func (c *cut) visit(v *ir.Value) (int, error) {
	if g, ok := c.grains[v]; ok {
		return g, nil
	}
	g, err := c.grainOfValue(v)
	c.grains[v] = g
	return g, err
}

func (c *cut) grainOfValue(v *ir.Value) (int, error) {
	if v.Type.Rank() == 0 {
		return 0, fmt.Errorf("a number has no rows")
	}
	own := grainOf(v.Type)
	if v.Kind != ir.OpResult {
		return own, nil
	}
	op := v.Op
	switch name := op.Def.Name; {
	case byElement(op):
		return c.operands(op, own)
	case name == "iota":
		return own, nil
	case name == "concat":
		at := 0
		for i, a := range op.Args {
			g, err := c.visit(a)
			if err != nil {
				return 0, err
			}
			if at%g != 0 {
				return 0, fmt.Errorf("operand %d of concat begins at row %d, which is not a multiple of %d", i, at, g)
			}
			own = lcm(own, g)
			at += rowsOf(a.Type)
		}
		return own, nil
	case name == "reshape" && op.Args[0].Type.Rank() > 0:
		g, err := c.visit(op.Args[0])
		if err != nil {
			return 0, err
		}
		per := rowElements(v.Type)
		return lcm(per*own, rowElements(op.Args[0].Type)*g) / per, nil
	}
	return 0, fmt.Errorf("op %s does not compute rows from rows", op.Def.Name)
}

// operands is the common grain of an op's operands, each of which has the result's
// rows or is small.
func (c *cut) operands(op *ir.Op, own int) (int, error) {
	for _, a := range op.Args {
		if !ownRows(op, a) {
			if n, _ := a.Type.Size(); n > cutOperand {
				return 0, fmt.Errorf("op %s needs all %d elements of an operand", op.Def.Name, n)
			}
			continue
		}
		g, err := c.visit(a)
		if err != nil {
			return 0, err
		}
		own = lcm(own, g)
	}
	return own, nil
}

// ownRows tells whether an operand has the rows of the result.
func ownRows(op *ir.Op, a *ir.Value) bool {
	t := op.Results[0].Type
	return a.Type.Rank() == t.Rank() && a.Type.Dims[0].Equal(t.Dims[0])
}

// rowElements is the number of elements of a row.
func rowElements(t ir.Type) int {
	n, _ := withRows(t, 1).Size()
	return n
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// step is how many rows are made at a time.
func (c *cut) step() int {
	n := max(1, c.elements/rowElements(c.value.Type)/c.grain) * c.grain
	return min(n, rowsOf(c.value.Type))
}

// feed is rows of a weight that a graph of rows takes as an input.
type feed struct {
	name   string
	weight *ir.Value
	lo, n  int
}

// rows makes a graph for the rows lo..lo+n-1.
type rows struct {
	b     *ir.Builder
	feeds []feed
	made  map[rowRange]*ir.Value
	whole map[*ir.Value]*ir.Value
}

type rowRange struct {
	v     *ir.Value
	lo, n int
}

// graph computes rows of the value from rows of the weights.
func (c *cut) graph(lo, n int) (*ir.Graph, []feed, error) {
	r := &rows{b: ir.NewBuilder("pack"), made: map[rowRange]*ir.Value{}, whole: map[*ir.Value]*ir.Value{}}
	r.b.Output(packedOutput, r.get(c.value, lo, n))
	g, err := r.b.Finish()
	return g, r.feeds, err
}

func (r *rows) get(v *ir.Value, lo, n int) *ir.Value {
	key := rowRange{v, lo, n}
	if r.made[key] == nil {
		r.made[key] = r.cut(v, lo, n)
	}
	return r.made[key]
}

// feed is rows of a weight as an input.
func (r *rows) feed(v *ir.Value, lo, n int) *ir.Value {
	f := feed{fmt.Sprintf("w%d", len(r.feeds)), v, lo, n}
	r.feeds = append(r.feeds, f)
	return r.b.Input(f.name, withRows(v.Type, n))
}

// cut repeats the op of a value on rows of its operands.
func (r *rows) cut(v *ir.Value, lo, n int) *ir.Value {
	if v.Kind != ir.OpResult {
		return r.feed(v, lo, n)
	}
	op := v.Op
	r.b.AtOp(op)
	attrs := slices.Clone(op.Attrs)
	for i, a := range attrs {
		if a.Key == "shape" {
			dims := slices.Clone(a.Val.([]ir.Dim))
			dims[0] = ir.Int(n)
			attrs[i].Val = dims
		}
	}
	switch {
	case op.Def.Name == "iota" && op.Int("axis") == 0 && lo > 0:
		return r.b.Bin("add", r.b.Op1("iota", attrs), r.b.I(lo))
	case op.Def.Name == "concat" && op.Int("axis") == 0:
		var parts []*ir.Value
		at := 0
		for _, a := range op.Args {
			from, to := max(lo-at, 0), min(lo+n-at, rowsOf(a.Type))
			if from < to {
				parts = append(parts, r.get(a, from, to-from))
			}
			at += rowsOf(a.Type)
		}
		if len(parts) == 1 {
			return parts[0]
		}
		return r.b.Concat(0, parts...)
	case op.Def.Name == "reshape":
		from, per := op.Args[0], rowElements(v.Type)
		of := rowElements(from.Type)
		return r.b.Op1("reshape", attrs, r.get(from, lo*per/of, n*per/of))
	}
	args := make([]*ir.Value, len(op.Args))
	for i, a := range op.Args {
		if ownRows(op, a) {
			args[i] = r.get(a, lo, n)
		} else {
			args[i] = r.all(a)
		}
	}
	r.b.AtOp(op)
	return r.b.Op(op.Def.Name, attrs, args...)[v.Index]
}

// all is a small value, whole.
func (r *rows) all(v *ir.Value) *ir.Value {
	if r.whole[v] != nil {
		return r.whole[v]
	}
	if v.Kind != ir.OpResult {
		r.whole[v] = r.feed(v, 0, rowsOf(v.Type))
		return r.whole[v]
	}
	args := make([]*ir.Value, len(v.Op.Args))
	for i, a := range v.Op.Args {
		args[i] = r.all(a)
	}
	r.b.AtOp(v.Op)
	r.whole[v] = r.b.Op(v.Op.Def.Name, v.Op.Attrs, args...)[v.Index]
	return r.whole[v]
}

// evaluate computes rows; stored gives the weights.
func (c *cut) evaluate(lo, n int, stored map[*ir.Value]*Stored) (*eval.Tensor, error) {
	g, feeds, err := c.graph(lo, n)
	if err != nil {
		return nil, err
	}
	in := map[string]*eval.Tensor{}
	for _, f := range feeds {
		if in[f.name], err = stored[f.weight].Rows(f.lo, f.n); err != nil {
			return nil, fmt.Errorf("weight %s: %w", f.weight, err)
		}
	}
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		return nil, err
	}
	out, err := p.Run(in, nil)
	if err != nil {
		return nil, err
	}
	return out[packedOutput], nil
}
