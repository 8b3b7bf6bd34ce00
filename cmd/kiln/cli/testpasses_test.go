package cli

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Passes that only the test binary has, off unless they are named: bugs, a wrong
// result, and a gate.
func init() {
	for _, p := range []passes.Pass{
		{Name: "test-panic", Doc: "Panics.", Graph: func(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			return nil, fmt.Errorf("op %v", g.Ops[len(g.Ops)].Def.Name)
		}},
		{Name: "test-break", Doc: "Loses the ops.", Graph: func(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			b := *g
			b.Ops = nil
			return &b, nil
		}},
		{Name: "test-nil", Doc: "Leaves no graph.", Graph: func(*passes.Context, *ir.Graph) (*ir.Graph, error) { return nil, nil }},
		{Name: "test-error", Doc: "Fails.", Graph: func(*passes.Context, *ir.Graph) (*ir.Graph, error) {
			return nil, fmt.Errorf("not today")
		}},
		{Name: "test-in-place", Doc: "Changes what it was given.", Graph: func(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			g.Outputs[0].Name += "_"
			return g, nil
		}},
		{Name: "test-pack-panic", Doc: "Panics if there is a pack graph.", Graph: func(c *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			if c.Module.Pack != nil {
				panic("a pack graph")
			}
			return g, nil
		}},
		{Name: "test-module-panic", Doc: "Panics on the module.", Module: func(*passes.Context) error { panic("no module") }},
		{Name: "test-miscompile", Doc: "Makes each constant 1 larger.", Graph: func(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			return withConstants(g, func(x float64) float64 { return x + 1 })
		}},
		{Name: "test-random", Doc: "Makes other constants each time.", Graph: func(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
			calls++
			return withConstants(g, func(x float64) float64 { return x + calls })
		}},
	} {
		register(p, "")
	}
	register(passes.Pass{Name: "test-step-panic", Doc: "Panics on a step.", On: passes.Steps, Graph: func(*passes.Context, *ir.Graph) (*ir.Graph, error) {
		panic("no step")
	}}, "select-kernels")
	register(passes.Pass{Name: "test-gate", Doc: "Wants T.", On: passes.Steps, Graph: func(c *passes.Context, g *ir.Graph) (*ir.Graph, error) {
		if len(g.Syms) > 0 {
			c.Remark(passes.Missed, g.Ops[0], "%s unbound", g.Syms[0])
		} else {
			c.Remark(passes.Applied, g.Ops[0], "on %s", g.Inputs[0].Type)
		}
		return g, nil
	}}, "select-kernels")
}

func register(p passes.Pass, next string) {
	p.Off = true
	if err := passes.Register(p, next); err != nil {
		panic(err)
	}
}

// calls counts those of test-random.
var calls float64

// withConstants has other numbers for a graph's constants.
func withConstants(g *ir.Graph, other func(float64) float64) (*ir.Graph, error) {
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		if op.Def.Name != "const" {
			e.Copy(op)
			continue
		}
		e.At(op.Loc)
		e.Replace(op.Results[0], e.Scalar(op.DType("dtype"), other(op.Float("value"))))
	}
	return e.Finish()
}
