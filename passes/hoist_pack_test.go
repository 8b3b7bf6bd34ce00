package passes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

const tinyDir = "../testdata/tiny-dsv4"

func tinyModule(t *testing.T) *Module {
	t.Helper()
	return moduleOf(t, tinyDir)
}

// moduleOf has all entries of a model.
func moduleOf(t *testing.T, dir string) *Module {
	t.Helper()
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &Module{}
	for _, e := range dsv4.Entries {
		g, err := dsv4.Build(cfg, e, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	return m
}

// In the model, what there is to pack is wo_a of every block, the joined weights of
// products with one operand, and the tables of the two rope plans; nothing is
// packed twice, and a second run changes nothing.
func TestHoistPackOfTheModel(t *testing.T) {
	m := tinyModule(t)
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	want := []string{"freqs_cis.cos", "freqs_cis.cos.1", "freqs_cis.sin", "freqs_cis.sin.1"}
	for _, block := range []string{"layers.0", "layers.1", "layers.2", "layers.3", "layers.4", "layers.5", "mtp.0"} {
		want = append(want, block+".attn.wkv.and."+block+".attn.wq_a", block+".attn.wo_a")
	}
	for _, block := range []string{"layers.2", "layers.4"} { // those with an indexer
		want = append(want, block+".attn.indexer.wq_b.and."+block+".attn.wq_b",
			block+".attn.compressor.wgate.and."+block+".attn.compressor.wkv.and."+block+".attn.indexer.compressor.wgate.and."+block+".attn.indexer.compressor.wkv")
	}
	for _, block := range []string{"layers.3", "layers.5"} { // those with a compressor alone
		want = append(want, block+".attn.compressor.wgate.and."+block+".attn.compressor.wkv")
	}
	slices.Sort(want)
	var got []string
	for _, o := range m.Pack.Outputs {
		got = append(got, strings.TrimPrefix(o.Name, PackedPrefix))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packed weights, -want +got:\n%s", diff)
	}
	for _, g := range m.Entries {
		for _, op := range g.Ops {
			if op.Def.Name == "dequantize" || op.Def.Table {
				t.Errorf("@%s: %s runs %s in every step", g.Name, op.Loc, op.Def.Name)
			}
		}
	}
	wantSettled(t, m)
}

// wantSettled runs the passes again, which must change nothing.
func wantSettled(t *testing.T, m *Module) {
	t.Helper()
	once := moduleText(m)
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, moduleText(m)); diff != "" {
		t.Errorf("a second run changes the module, -once +twice:\n%s", diff)
	}
}

// Packing changes no bit: outputs and pools of every entry are those of the
// graphs as built.
func TestHoistPackKeepsEveryBit(t *testing.T) {
	file, err := weights.Open(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, packed := tinyModule(t), tinyModule(t)
	if err := Run(packed); err != nil {
		t.Fatal(err)
	}
	want, got := runEntries(t, plain, file), runEntries(t, packed, file)
	if len(want) == 0 || len(want) != len(got) {
		t.Fatalf("%d values before and %d after", len(want), len(got))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !slices.EqualFunc(want[name], got[name], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			t.Errorf("%s differs", name)
		}
		if slices.ContainsFunc(want[name], func(x float32) bool { return x != x }) {
			t.Errorf("%s holds NaN", name)
		}
	}
}

// runEntries runs every entry once, in the order of use, and returns all outputs
// and the pools at the end.
func runEntries(t *testing.T, m *Module, file *weights.Checkpoint) map[string][]float32 {
	t.Helper()
	ref, err := engine.NewRef(m.Entries, m.Pack, engine.CheckpointSource{File: file})
	if err != nil {
		t.Fatal(err)
	}
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	newState := func(entry string, bind map[string]int) engine.Tensors {
		s, err := ref.NewState(entry, bind)
		if err != nil {
			t.Fatal(err)
		}
		return s.(engine.Tensors) // the oracle's pools
	}
	state, draft := newState("decode", map[string]int{"R": 1, "N": 1}), newState("draft", map[string]int{"R": 1})
	all := map[string][]float32{}
	keep := func(prefix string, values engine.Tensors) {
		for name, v := range values {
			all[prefix+name] = v.F
		}
	}
	seq := &engine.Seq{Pages: []int{0}}
	for _, step := range []struct {
		entry string
		n     int
		bind  map[string]int
	}{
		{"prefill", 9, map[string]int{"T": 9, "B": 1, "O": 9}},
		{"decode", 1, map[string]int{"B": 1}},
		{"verify", 3, map[string]int{"B": 1, "K": 2}},
	} {
		f := engine.Feed{Seq: seq}
		for i := range step.n {
			f.IDs, f.Out = append(f.IDs, int32(100*i+7*seq.Len)), append(f.Out, i)
		}
		feeds := []engine.Feed{f}
		in, err := engine.Metadata(l, feeds, engine.ShapeOf(feeds))
		if err != nil {
			t.Fatal(err)
		}
		step.bind["R"], step.bind["N"], step.bind["P"] = 1, 1, 1
		out, err := ref.Run(step.entry, step.bind, in, state)
		if err != nil {
			t.Fatal(err)
		}
		keep(step.entry+" ", out)
		if in, err = engine.Metadata(l.Draft(), feeds, engine.ShapeOf(feeds)); err != nil {
			t.Fatal(err)
		}
		in["h"] = out[lastHidden(out)]
		if out, err = ref.Run("draft", map[string]int{"T": step.n, "B": 1, "O": step.n, "R": 1}, in, draft); err != nil {
			t.Fatal(err)
		}
		keep(fmt.Sprintf("draft after %s ", step.entry), out)
		engine.Commit(feeds)
	}
	keep("!", state)
	keep("!", draft)
	return all
}

// lastHidden is the one hidden output of a model without taps.
func lastHidden(out engine.Tensors) string {
	for name := range out {
		if strings.HasPrefix(name, "hidden.") {
			return name //kilnvet:ignore maporder there is one
		}
	}
	return ""
}

// Two entries that declare one weight with two types cannot share a pack graph.
func TestHoistPackRefusesTwoTypes(t *testing.T) {
	m := module(t, "types.kir", `graph @a
input %x : f32[2]
weight @w : bf16[2]
%0 = cast @w {to = f32} : f32[2]
%1 = add %x, %0 : f32[2]
output y = %1
graph @b
input %x : f32[3]
weight @w : bf16[3]
%0 = cast @w {to = f32} : f32[3]
%1 = add %x, %0 : f32[3]
output y = %1
`)
	const want = "pass hoist-pack: graph @pack: pack: @w is declared as bf16[2] and as bf16[3]"
	if err := Run(m); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Equal modules give equal bytes: no map decides an order.
func TestHoistPackIsDeterministic(t *testing.T) {
	var first string
	for range 3 {
		m := tinyModule(t)
		if err := Run(m); err != nil {
			t.Fatal(err)
		}
		text := moduleText(m)
		if first == "" {
			first = text
		}
		if text != first {
			t.Fatal("two runs print differently")
		}
	}
	if !strings.Contains(first, "graph @"+PackGraph) || ir.Text(tinyModule(t).Entries[0]) == first {
		t.Error("the pass did nothing")
	}
}
