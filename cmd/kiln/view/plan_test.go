package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
)

// launches reads a plan's launches as their arguments, one launch a line.
func launches(t *testing.T, text string) []plan.Launch {
	t.Helper()
	var out []plan.Launch
	for i, l := range strings.Split(text, "\n") {
		x := plan.Launch{Op: fmt.Sprintf("op%d", i), Loc: "layers.0.a", Grid: 1}
		for _, s := range strings.Split(l, ", ") {
			var a plan.Arg
			if err := a.UnmarshalText([]byte(s)); err != nil {
				t.Fatal(err)
			}
			x.Args = append(x.Args, a)
		}
		out = append(out, x)
	}
	return out
}

func TestPlan(t *testing.T) {
	m := &plan.Module{
		Target:  "gfx950",
		States:  []plan.Storage{{Name: "pool", Bytes: [2]int64{100, 0}}, {Name: "other", Bytes: [2]int64{7, 0}}},
		Weights: []plan.Storage{{Name: "w", Bytes: [2]int64{1000, 10}}, {Name: "unused", Bytes: [2]int64{5, 0}}},
		Kernels: []plan.Kernel{{Symbol: "unused"}, {Symbol: "k", Form: "f"}},
		Decomposed: []plan.Decomposed{{Op: "moe", Loc: "layers.1.ffn", Rejected: []plan.Rejected{
			{Form: "a", Reason: "too wide"}, {Form: "b", Reason: "disabled"},
		}}},
	}
	ls := launches(t, "r w0+0:64, r w0.1+0:8, rw s0+0:64, w a+0:64, i 9\nr a+0:64, w a+64:64")
	for i := range ls {
		ls[i].Kernel = 1
	}
	ls[0].Bytes, ls[0].Flops, ls[0].Rate = 8e6, 1, string(target.RateBF16)
	ls[1].Bytes, ls[1].Flops, ls[1].Rate, ls[1].Loc = 1, 25166e5, string(target.RateBF16), "head"
	p := &Plan{Module: m, Plan: &plan.Plan{Arena: 128, States: []int{0}, Launches: ls, Values: []plan.Value{
		{Name: "x", Offset: 64, Bytes: 32, First: -1}, {Name: "op0 layers.0.a", Bytes: 64, Last: 1}, {Name: "y", Offset: 64, Bytes: 64, First: 1, Last: 2},
	}}, Chip: target.ChipOf("gfx950")}
	table := &table{index: map[string]int{}}
	d := table.plan(p)
	var args []string
	for _, l := range d.Launches {
		for _, a := range l.Args {
			args = append(args, table.strings[a])
		}
		args = append(args, fmt.Sprintf("%v us by %s in %s", l.Floor, l.Bound, table.strings[d.Groups[l.Group]]))
	}
	want := []string{
		"r @w", "r @w scales", "rw !pool", "w a+0:64", "i 9", "1 us by bytes in layers.0",
		"r a+0:64", "w a+64:64", "1 us by flops in head",
	}
	if diff := cmp.Diff(want, args); diff != "" {
		t.Errorf("launches, -want +got:\n%s", diff)
	}
	if d.Weights != 1010 || d.Pools != 100 || d.Card != "MI355X" || len(d.Kernels) != 1 || d.Kernels[0].Symbol != "k" {
		t.Errorf("weights %d, pools %d, card %q, kernels %+v", d.Weights, d.Pools, d.Card, d.Kernels)
	}
	if want := []string{"moe, first at layers.1.ffn: a: too wide; b: disabled"}; !cmp.Equal(d.Decomposed, want) {
		t.Errorf("decomposed %q, want %q", d.Decomposed, want)
	}
	var buffers []string
	for _, b := range d.Buffers {
		buffers = append(buffers, fmt.Sprintf("%s %d+%d: %d to %d, %s", b.Kind, b.Offset, b.Bytes, b.First, b.Last, table.strings[b.Name]))
	}
	want = []string{"input 64+32: -1 to 0, x", "scratch 0+64: 0 to 1, op0 layers.0.a", "output 64+64: 1 to 2, y"}
	if diff := cmp.Diff(want, buffers); diff != "" {
		t.Errorf("buffers, -want +got:\n%s", diff)
	}
	p.Chip = nil
	if l := table.plan(p).Launches[0]; l.Floor != -1 || l.Bound != "-" {
		t.Errorf("without rates the floor is %v by %s", l.Floor, l.Bound)
	}
}
