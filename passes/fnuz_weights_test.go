package passes

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/weights"
)

func fnuzModule(t *testing.T) *Module {
	t.Helper()
	m := tinyModule(t)
	m.Target.FNUZ = true
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// No entry of the model reads f8e4m3 weights, and every weight that was one is
// packed, recoded, once, alone or joined with another; wo_a is packed as bf16 and is
// not recoded. A second run changes nothing.
func TestFNUZWeightsOfTheModel(t *testing.T) {
	want := map[string]bool{}
	for _, g := range tinyModule(t).Entries {
		for _, w := range g.Weights {
			if w.Type.DType == ir.F8E4M3 && !strings.HasSuffix(w.Name, ".wo_a") {
				want[w.Name] = true
			}
		}
	}
	if len(want) == 0 {
		t.Fatal("the model has no f8e4m3 weight")
	}
	m := fnuzModule(t)
	var got []string
	for _, o := range m.Pack.Outputs {
		if o.Value.Type.DType == ir.F8E4M3FNUZ {
			got = append(got, strings.Split(strings.TrimPrefix(o.Name, PackedPrefix), ".and.")...)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Errorf("recoded weights, -want +got:\n%s", diff)
	}
	for _, g := range m.Entries {
		for _, w := range g.Weights {
			if w.Type.DType == ir.F8E4M3 {
				t.Errorf("@%s reads %s : %s", g.Name, w, w.Type)
			}
		}
		for _, op := range g.Ops {
			if op.Def.Name == "recode_fnuz" {
				t.Errorf("@%s: %s recodes in every step", g.Name, op.Loc)
			}
		}
	}
	wantSettled(t, m)
}

// Recoded weights change no bit of the model.
func TestFNUZWeightsKeepEveryBit(t *testing.T) {
	file, err := weights.Open(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want, got := runEntries(t, tinyModule(t), file), runEntries(t, fnuzModule(t), file)
	if len(want) == 0 || len(want) != len(got) {
		t.Fatalf("%d values before and %d after", len(want), len(got))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !slices.EqualFunc(want[name], got[name], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			t.Errorf("%s differs", name)
		}
	}
}
