package check

import (
	"maps"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

// built compiles buckets of a subject's model, and packs its weights.
func built(t *testing.T, c OpsConfig, s *Subject, buckets ...passes.Bucket) (*bundle.Code, eval.WeightSource) {
	t.Helper()
	s.Module.Target = c.Target.ForPasses()
	if err := passes.Run(s.Module); err != nil {
		t.Fatal(err)
	}
	files, _, err := c.Compiler.Build(t.Context(), c.Target, s.Module, buckets, codegen.Emit{})
	if err != nil {
		t.Fatal(err)
	}
	code, err := files.Decode(c.Target.Name)
	if err != nil {
		t.Fatal(err)
	}
	pack, err := code.PackGraph()
	if err != nil {
		t.Fatal(err)
	}
	weights, err := engine.BindPack(pack, s.Weights)
	if err != nil {
		t.Fatal(err)
	}
	return code, weights
}

// withSides is the tiny model for the host, with what start-up checks need, bound.
func withSides(t *testing.T) (*bundle.Code, *device.Executor, *Subject) {
	t.Helper()
	c := onHost(t)
	s := subject(t, "decode", nil)
	c.Compiler.Sides = codegen.Sides{Unfused: true, Probes: true}
	pools := map[string]int{"R": 1, "N": 2, "P": 2, "B": 1}
	prefill := maps.Clone(pools)
	prefill["T"], prefill["O"] = 16, 1
	code, bound := built(t, c, s, passes.Bucket{Entry: "prefill", Bind: prefill}, passes.Bucket{Entry: "decode", Bind: pools})
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	x, err := device.NewExecutor(t.Context(), dev, code.Object, code.Module, bound, nil)
	if err != nil {
		t.Fatal(err)
	}
	return code, x, s
}

// fusedKernels are the kernels of a module that make fused ops, by symbol.
func fusedKernels(m *bundle.Side) map[string]bool {
	out := map[string]bool{}
	for _, p := range m.Module.Plans {
		for _, l := range p.Launches {
			if d, err := ir.Lookup(l.Op); err == nil && d.FusedBy != "" {
				out[m.Module.Kernels[l.Kernel].Symbol] = true
			}
		}
	}
	return out
}

// swapOperands is a module whose plan i takes two operands of one type for each other, or
// nil.
func swapOperands(m *plan.Module, i int) *plan.Module {
	out, p := *m, *m.Plans[i]
	p.Inputs = slices.Clone(p.Inputs)
	for a := range p.Inputs {
		for b := range p.Inputs[:a] {
			if x, y := &p.Inputs[a], &p.Inputs[b]; x.Type == y.Type {
				x.Data, y.Data = y.Data, x.Data
				out.Plans = slices.Clone(m.Plans)
				out.Plans[i] = &p
				return &out
			}
		}
	}
	return nil
}

// mustLayout is the layout of the subject's entry.
func mustLayout(t *testing.T, s *Subject) engine.Layout {
	t.Helper()
	l, err := engine.LayoutOf(s.Module.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The probes of the tiny model hold, and run every kernel that makes a fused op. A
// kernel that gets its operands in the wrong order is found. Plans without fused kernels
// give the same logits, within the limit of a decode step.
func TestProbes(t *testing.T) {
	code, x, s := withSides(t)
	faults, err := Probes(t.Context(), x, code.Probes.Object, code.Probes.Module, code.Probes.Graphs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Error(f)
	}
	probed := fusedKernels(code.Probes)
	for _, k := range slices.Sorted(maps.Keys(fusedKernels(&bundle.Side{Module: code.Module}))) {
		if !probed[k] {
			t.Errorf("kernel %s has no probe", k)
		}
	}
	if left := fusedKernels(code.Unfused); len(left) > 0 {
		t.Errorf("the plans without fused ops have the kernels %v", left)
	}

	found := 0
	for i := 0; i < len(code.Probes.Module.Plans); i += 2 {
		swapped := swapOperands(code.Probes.Module, i)
		if swapped == nil {
			continue
		}
		found++
		faults, err := Probes(t.Context(), x, code.Probes.Object, swapped, code.Probes.Graphs)
		if err != nil {
			t.Fatal(err)
		}
		if len(faults) != 1 || faults[0].Op != swapped.Plans[i].Launches[0].Op || faults[0].Why == "" || len(faults[0].Forms) == 0 {
			t.Errorf("%s with other operands: %v", swapped.Plans[i].Launches[0].Op, faults)
		}
	}
	if found == 0 {
		t.Error("no probe has two operands of one type")
	}

	in, err := engine.Metadata(mustLayout(t, s), []engine.Feed{{Seq: &engine.Seq{Pages: []int{0, 1}}, IDs: []int32{7}, Out: []int{0}}}, engine.Shape{T: 1, B: 1, O: 1, P: 2})
	if err != nil {
		t.Fatal(err)
	}
	step := func() []float32 {
		bind := map[string]int{"R": 1, "N": 2, "P": 2, "B": 1}
		st, err := x.NewState("decode", bind)
		if err != nil {
			t.Fatal(err)
		}
		out, err := x.Run("decode", bind, in, st)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.(*device.State).Close(); err != nil {
			t.Fatal(err)
		}
		return out["logits"].F
	}
	before := step()
	if err := x.Replace(code.Unfused.Object, code.Unfused.Module); err != nil {
		t.Fatal(err)
	}
	after := step()
	if m := metric.Measure(after, before); m.OneMinusCos > 1e-4 {
		t.Errorf("logits without fused kernels: %+v", m)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
