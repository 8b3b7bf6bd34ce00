package passes

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// cse computes equal values once: ops with one name, equal attributes and the
// same operands. The first stays. Ops are pure, and a state's old value is another
// value than its new one, so that equal operands are equal contents.
func cse(c *Context, g *ir.Graph) (*ir.Graph, error) {
	same := map[*ir.Value]*ir.Value{} // a repeated value -> the first
	number := map[*ir.Value]int{}
	first := map[string]*ir.Op{}
	again := map[*ir.Op]*ir.Op{}
	for _, op := range g.Ops {
		key := opKey(op, same, number)
		f, ok := first[key]
		if !ok {
			first[key] = op
			continue
		}
		again[op] = f
		for i, r := range op.Results {
			same[r] = f.Results[i]
		}
		c.Remark(Applied, op, "is computed at %s already", f.Where())
	}
	if len(again) == 0 {
		return g, nil
	}
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		f, ok := again[op]
		if !ok {
			e.Copy(op)
			continue
		}
		for i, r := range op.Results {
			e.Replace(r, e.Value(f.Results[i]))
		}
	}
	return e.Finish()
}

// opKey tells whether two ops compute the same: values have numbers by first use,
// a repeated value that of the first.
func opKey(op *ir.Op, same map[*ir.Value]*ir.Value, number map[*ir.Value]int) string {
	var b strings.Builder
	b.WriteString(op.Def.Name)
	for _, a := range op.Attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Val)
	}
	for _, a := range op.Args {
		if f, ok := same[a]; ok {
			a = f
		}
		n, ok := number[a]
		if !ok {
			n = len(number)
			number[a] = n
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}
