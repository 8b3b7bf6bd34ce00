package cli

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// The table says of every plan how the chosen device runs it, and why.
func TestGraphed(t *testing.T) {
	m := &plan.Module{Kernels: make([]plan.Kernel, 2), Step: &plan.Step{Epilogue: 1}, Plans: []*plan.Plan{
		{Entry: "decode", Binding: []plan.Binding{{Symbol: "B", Value: 3}, {Symbol: "P", Value: 4}}, Launches: make([]plan.Launch, 7)},
		{Entry: "draft"},
	}}
	const fault = "ROCm 7.2.? on gfx942: replays give corrupt output in one of five processes"
	for _, tc := range []struct {
		args    []string
		rocm    string
		nodes   int
		graphed bool
		why     string
	}{
		{[]string{"--device", "hip"}, "", 9, true, "built node by node"},
		{[]string{"--device", "hip", "--graph-build", "capture"}, "", 9, true, "recorded from a stream"},
		{[]string{"--device", "hip", "--graph", "off"}, "7.2.1", 9, false, "--graph off"},
		{[]string{"--device", "hip"}, "7.2.1", 9, false, fault},
		{[]string{"--device", "hip", "--graph", "on"}, "7.2.1", 9, true, "built node by node"},
		{[]string{"--device", "cuda"}, "", 9, true, "built node by node; kernels overlap"},
		{[]string{"--device", "cuda", "--graph-build", "capture", "--overlap", "off"}, "", 9, true, "recorded from a stream; kernels do not overlap: --overlap off"},
		{[]string{"--device", "host"}, "", 7, false, "device host has no graphs"},
		{[]string{"--device", "emu:gfx942"}, "", 7, false, "device emu:gfx942 has no graphs"},
	} {
		hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{HIP: []string{"gfx942:sramecc+:xnack-"}, CUDA: []string{"sm_90"}, ROCm: tc.rocm})
		f, err := parsed("run", append(tc.args, "--hip-lib", hip, "--cuda-lib", cuda)...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := chooseDevice(&env{}, f)
		if err != nil {
			t.Fatal(err)
		}
		rows := d.graphed(m)
		if r := rows[0]; r.Entry != "decode" || r.Bucket != "B=3 P=4" || r.Launches != 7 || r.Nodes != tc.nodes || r.Graphed != tc.graphed || !strings.HasPrefix(r.Why, tc.why) {
			t.Errorf("%v on ROCm %q: %+v, want %d nodes, graphed %v, %s", tc.args, tc.rocm, r, tc.nodes, tc.graphed, tc.why)
		}
		if r := rows[1]; d.gpu == nil && (r.Graphed || r.Nodes != 0 || r.Why != "there is nothing to launch") {
			t.Errorf("a plan without launches: %+v", r)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}
