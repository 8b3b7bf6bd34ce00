package emu_test

import (
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/emu"
)

// counted are the shapes of another compiler's kernels as graphs. Its product has b as
// [K,N], ours takes a weight, [N,K]; its norm has f32 weights, ours bf16.
var counted = map[string]string{
	"add":         "input %x : f32[5000]\ninput %y : f32[5000]\n%0 = add %x, %y : f32[5000]\n",
	"rmsnorm":     "input %x : bf16[5,1500]\ninput %w : bf16[1500]\n%0 = rms_norm %x, %w {eps = 1e-6} : bf16[5,1500]\n",
	"matmul_bf16": "input %x : bf16[70,96]\ninput %w : bf16[80,96]\n%0 = linear %x, %w {to = f32} : f32[70,80]\n",
}

// TestFewerInstructionsThanForeign: our kernels for the same shapes execute fewer
// instructions of waves than another compiler's (Triton's), on both chips.
func TestFewerInstructionsThanForeign(t *testing.T) {
	c := devicetest.Compiler(t)
	for _, theirs := range emu.CountForeign(t) {
		t.Run(theirs.Name+"/"+theirs.Chip, func(t *testing.T) {
			ours := instructions(t, c, theirs.Chip, "graph @g\n"+counted[theirs.Name]+"output y = %0\n")
			t.Logf("%d instructions, the other compiler's %d", ours.Instructions, theirs.Instructions)
			if ours.Instructions >= theirs.Instructions {
				t.Errorf("ours: %+v, the other compiler's: %+v", ours, theirs.KernelCounters)
			}
		})
	}
}

// instructions are the counters of all launches of a graph on an emulated chip, added up.
func instructions(t *testing.T, c *codegen.Compiler, chip, text string) emu.KernelCounters {
	t.Helper()
	g, err := ir.ParseOne("g", text)
	if err != nil {
		t.Fatal(err)
	}
	counters := &emu.Counters{}
	x, err := devicetest.NewLazy(t, c, opener(chip, emu.Options{Counters: counters}), []*ir.Graph{g}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]*eval.Tensor{}
	for _, v := range g.Inputs {
		a, err := eval.New(v.Type)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.F {
			a.F[i] = float32(i%7) - 3
		}
		in[v.Name] = a
	}
	if _, err := x.Run("g", nil, in, nil); err != nil {
		t.Fatal(err)
	}
	list := counters.Kernels()
	if len(list) != 1 {
		t.Fatalf("%d kernels, want one: %+v", len(list), list)
	}
	return list[0]
}
