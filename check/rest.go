package check

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// rest evaluates an op's later results from the first that a device gave, for ops
// whose limits are meant so (ir.OpDef.Rest). It returns what want becomes.
func (o *oneOp) rest(args []*eval.Tensor, want, got []*eval.Tensor) ([]*eval.Tensor, error) {
	b := ir.NewBuilder(o.def.Name)
	inputs := map[string]*eval.Tensor{}
	in := func(name string, t *eval.Tensor) *ir.Value {
		inputs[name] = t
		return b.Input(name, t.Type())
	}
	operands := make([]*ir.Value, len(args))
	for i, a := range args {
		operands[i] = in(fmt.Sprintf("x%d", i), a)
	}
	i := slices.IndexFunc(o.graph.Ops, func(op *ir.Op) bool { return op.Def == o.def })
	whole := b.Op(o.def.Name, o.graph.Ops[i].Attrs, operands...)
	for i, v := range o.def.Rest(b, whole[0].Op, in("first", got[0])) {
		b.Output(resultName(i+1), v)
	}
	g, err := b.Finish()
	if err != nil {
		return nil, err
	}
	given, err := runGraph(g, Values{Inputs: inputs})
	if err != nil {
		return nil, err
	}
	out := []*eval.Tensor{want[0]}
	for i := 1; i < len(want); i++ {
		out = append(out, given[resultName(i)])
	}
	return out, nil
}
