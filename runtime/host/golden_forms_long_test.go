//go:build long

package host_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// With the form of each op that has a decomposition disabled in turn, the goldens
// hold. Primitives are refused without theirs: codegen's TestDisabledForms.
func TestGoldenDisabledForms(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, op := range kernels.Ops() {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		if def.Primitive() || absent[op] != "" {
			continue
		}
		for _, f := range kernels.For(op) {
			// Those of AMD's matrix units have this test in runtime/emu; those of NVIDIA's run on a GPU.
			if strings.HasSuffix(f.Name, "_mfma") || strings.HasSuffix(f.Name, "_mma") {
				continue
			}
			t.Run(f.Name, func(t *testing.T) {
				decomposed := 0
				runGolden(t, c, devicetest.Variant{
					Numerics: dsv4.Production, Passes: withOp[op], Disable: []string{f.Name},
					Lowered: func(m *plan.Module) {
						for _, d := range m.Decomposed {
							if d.Op == op {
								decomposed += d.Count
							}
						}
					},
				})
				if decomposed == 0 {
					t.Errorf("no graph of the goldens decomposes %s", op)
				}
			})
		}
	}
}

// With every op that has a decomposition run by it, the generic forms are what is
// left: they sum in f64 as the oracle does, and no check is skipped.
func TestGoldenAllDecomposed(t *testing.T) {
	var names []string
	composites := map[string]bool{}
	for _, op := range kernels.Ops() {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		if def.Primitive() {
			continue
		}
		composites[op] = true
		for _, f := range kernels.For(op) {
			names = append(names, f.Name)
		}
	}
	runGolden(t, devicetest.Compiler(t), devicetest.Variant{
		Numerics: dsv4.Production, Disable: names,
		Lowered: func(m *plan.Module) {
			for _, p := range m.Plans {
				for _, l := range p.Launches {
					if composites[l.Op] {
						t.Errorf("%s: a launch of the composite %s", p.Entry, l.Op)
					}
				}
			}
		},
	})
}

// absent are ops that no graph of the goldens has, and why.
var absent = map[string]string{
	"linear3":       "no layer of the model has three products of one value",
	"linear_argmax": "the goldens are held to logits; greedy heads are held to those by TestGreedyHeadGenerates",
}

// withOp are the passes for ops that no graph has after the default ones.
var withOp = map[string]passes.Config{
	"hadamard":      {Disable: []string{"fuse-rope"}},
	"head_rms_norm": {Disable: []string{"fuse-rope"}},
	"hc_fused":      {Disable: []string{"fuse-norm-quant"}},
	"moe_experts":   {Disable: []string{"fuse-moe-add"}},
}
