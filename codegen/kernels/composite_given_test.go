package kernels_test

import (
	"fmt"
	"maps"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// rest is an op whose later results are compared given its first (ir.OpDef.Rest).
type rest struct {
	def   *ir.OpDef
	attrs ir.Attrs
	args  []*eval.Tensor
	first int // output that is the first result
}

// wantRest evaluates the later results from the first ones that code gave, in
// place of what the code should have given.
func (c *batch) wantRest(want, got map[string]*eval.Tensor) map[string]*eval.Tensor {
	c.t.Helper()
	if len(c.rest) == 0 {
		return want
	}
	sub := newBatch(c.t)
	var names []string
	for _, r := range c.rest {
		var in []*ir.Value
		for _, a := range r.args {
			in = append(in, sub.input(a))
		}
		whole := sub.b.Op(r.def.Name, r.attrs, in...)
		for i, v := range r.def.Rest(sub.b, whole[0].Op, sub.input(got[fmt.Sprintf("y%d", r.first)])) {
			names = append(names, fmt.Sprintf("y%d", r.first+1+i))
			sub.output(r.def.Name, exact, v)
		}
	}
	given, _ := sub.want(sub.graph())
	want = maps.Clone(want)
	for i, name := range names {
		want[name] = given[fmt.Sprintf("y%d", i)]
	}
	return want
}
