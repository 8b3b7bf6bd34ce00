package kernels_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
)

// bothChips are the machines whose code is emulated here, with every sanitizer: any
// report fails the test.
var bothChips = []string{"emu:gfx942", "emu:gfx950"}

// redZone is how many bytes lie between two values of an emulated run.
const redZone = 256

// groupOrder is the seed of the order in which emulated work-groups run.
const groupOrder = 5

// formOn is a kernel form on a chip.
type formOn struct{ form, chip string }

// emulatedForms are those of all code that was loaded on emulated chips.
var emulatedForms = map[formOn]bool{}

// buildEmulated compiles a unit for a GPU and loads it on an emulated one; the caller
// closes the model.
func buildEmulated(t testing.TB, u *codegen.Unit) *device.Model {
	t.Helper()
	tools, _ := compiler(t)
	objs, _ := compileMerged(t, u.Kernels, u.Target, llvm.Object)
	linked, err := tools.Link(t.Context(), "kernels", objs)
	if err != nil {
		t.Fatal(err)
	}
	code, err := object.MergeNotes(linked)
	if err != nil {
		t.Fatal(err)
	}
	l := emu.Loader{ObjDump: tools.ObjDump, Version: tools.Version}
	dev, err := emu.Open(context.Background(), u.Target.CPU, l, emu.Options{Sanitize: emu.CheckAll, Shuffle: groupOrder})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	for _, k := range u.Module.Kernels {
		emulatedForms[formOn{k.Form, u.Target.CPU}] = true
		emulatedKinds[kindOf(u.Target.CPU, k)] = true
	}
	m, err := device.NewModel(dev, code, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// spread lays plans out with red zones.
func spread(t testing.TB, plans ...*plan.Plan) []*plan.Plan {
	t.Helper()
	var out []*plan.Plan
	for _, p := range plans {
		s, err := plan.Spread(p, redZone)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// emulate compiles a graph for an emulated chip without a form, if it names one, and
// runs it.
func emulate(t testing.TB, name, disable string, c *batch, g *ir.Graph) map[string]*eval.Tensor {
	t.Helper()
	u := codegen.NewUnit(mustTarget(t, strings.TrimPrefix(name, "emu:")))
	u.Disable[disable] = disable != ""
	pl, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	d := buildEmulated(t, u)
	defer d.Close()
	out, _ := execute(t, d, spread(t, pl)[0], c.in, c.states)
	return out
}
