package devicetest

import (
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/models/dsv4/golden"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Variant is one way to compile the graphs of the goldens.
type Variant struct {
	Numerics dsv4.Numerics
	Passes   passes.Config
	Disable  []string                // kernel forms
	Lowered  func(*plan.Module)      // hears of every unit; may be nil
	Only     func(check string) bool // nil: all checks
	Compile  Compile                 // nil: the compiler's own
}

// Suite opens the golden suite of the tiny checkpoint over a device.
func Suite(t testing.TB, c *codegen.Compiler, open Opener, v Variant) *golden.Suite {
	t.Helper()
	const testdata = "../../testdata/"
	dir := map[dsv4.Numerics]string{dsv4.Production: "expected-production", dsv4.Unrounded: "expected"}[v.Numerics]
	disable := map[string]bool{}
	for _, form := range v.Disable {
		disable[form] = true
	}
	s, err := golden.Open(golden.Config{
		Model: testdata + "tiny-dsv4", Golden: testdata + "golden/" + dir, Numerics: v.Numerics, Passes: v.Passes, Target: Target(t, c, open).ForPasses(),
		Executor: func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
			x, err := NewLazy(t, c, open, entries, pack, w)
			if err != nil {
				return nil, err
			}
			x.Config, x.Disable, x.Lowered, x.Compile = v.Passes, disable, v.Lowered, v.Compile
			return x, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// RunGolden runs the golden suite on a device: the ops, one layer at a time, and end
// to end, with the limits of docs/dsv4.md.
func RunGolden(t *testing.T, c *codegen.Compiler, open Opener, v Variant) {
	t.Helper()
	for _, check := range Suite(t, c, open, v).Checks() {
		if v.Only != nil && !v.Only(check.Name) {
			continue
		}
		t.Run(check.Name, func(t *testing.T) {
			if err := check.Run(); err != nil {
				t.Error(err)
			}
		})
	}
}
