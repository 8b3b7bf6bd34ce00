package dsv4_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

var update = flag.Bool("update", false, "rewrite the expected graph texts")

// modelDirs are the folders whose configs every graph is built from.
var modelDirs = map[string]string{
	"tiny":  "../../testdata/tiny-dsv4",
	"flash": "../../testdata/configs/flash",
	"pro":   "../../testdata/configs/pro",
}

func config(t testing.TB, name string) *dsv4.Config {
	t.Helper()
	c, err := dsv4.LoadConfig(modelDirs[name])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func models() []string { return slices.Sorted(maps.Keys(modelDirs)) }

// options are all combinations of the graph parameters; of the large models, the
// two that differ most, unless the tests are exhaustive.
func options(model string) []dsv4.Options {
	if model != "tiny" && !exhaustive {
		return []dsv4.Options{dsv4.DefaultOptions(), {Numerics: dsv4.Unrounded, MaxDraft: 0, Taps: true}}
	}
	out := []dsv4.Options{{Numerics: dsv4.Production, MaxDraft: 3, Head: dsv4.HeadGreedy}, {Numerics: dsv4.Production, MaxDraft: 3, Head: dsv4.HeadSample}}
	for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		for _, draft := range []int{0, 3} {
			for _, taps := range []bool{false, true} {
				out = append(out, dsv4.Options{Numerics: n, MaxDraft: draft, Taps: taps})
			}
		}
	}
	return out
}

func build(t testing.TB, c *dsv4.Config, e dsv4.Entry, o dsv4.Options) *ir.Graph {
	t.Helper()
	g, err := dsv4.Build(c, e, o)
	if err != nil {
		t.Fatalf("%s %+v: %v", e, o, err)
	}
	return g
}

// bound are small extents for every symbol; a graph takes those it declares.
var bound = map[string]int{"T": 5, "B": 2, "O": 3, "K": 2, "P": 2, "R": 3, "N": 4}

func bind(t testing.TB, g *ir.Graph) *ir.Graph {
	t.Helper()
	values := map[string]int{}
	for _, s := range g.Syms {
		values[s] = bound[s]
	}
	b, err := ir.Bind(g, values)
	if err != nil {
		t.Fatalf("bind @%s: %v", g.Name, err)
	}
	return b
}

// checkGraph is what must hold for every graph of the model.
func checkGraph(t *testing.T, g *ir.Graph) {
	t.Helper()
	if err := ir.Verify(g); err != nil {
		t.Errorf("@%s: %v", g.Name, err)
	}
	back, err := ir.ParseOne(g.Name+".kir", ir.Text(g))
	if err != nil {
		t.Errorf("@%s: %v", g.Name, err)
		return
	}
	if diff := graphDiff(g, back); diff != "" {
		t.Errorf("@%s read back from its text: %s", g.Name, diff)
	}
	for _, op := range g.Ops {
		if op.Loc == "" {
			t.Errorf("@%s: a %s has no location", g.Name, op.Def.Name)
		}
	}
}

// graphDiff names the first difference between two graphs. It compares values,
// not texts: a text that loses something prints the same twice.
func graphDiff(a, b *ir.Graph) string {
	a.Number()
	b.Number()
	shape := func(g *ir.Graph) string {
		return fmt.Sprint(g.Name, g.Meta, g.Syms, len(g.Lets), len(g.Inputs), len(g.Weights), len(g.States), len(g.Ops), len(g.Outputs), len(g.Updates))
	}
	if x, y := shape(a), shape(b); x != y {
		return fmt.Sprintf("%s and %s", x, y)
	}
	for i, l := range a.Lets {
		if m := b.Lets[i]; l.Name != m.Name || !l.Dim.Equal(m.Dim) {
			return fmt.Sprintf("let %s and %s", l.Name, m.Name)
		}
	}
	same := func(v, w *ir.Value) bool {
		return v.Kind == w.Kind && v.String() == w.String() && v.Index == w.Index && v.Type.Equal(w.Type)
	}
	lists := func(g *ir.Graph) []*ir.Value { return slices.Concat(g.Inputs, g.Weights, g.States) }
	for i, v := range lists(a) {
		if w := lists(b)[i]; !same(v, w) {
			return fmt.Sprintf("%s : %s and %s : %s", v, v.Type, w, w.Type)
		}
	}
	for i, op := range a.Ops {
		other := b.Ops[i]
		ok := op.Def == other.Def && op.Loc == other.Loc &&
			slices.EqualFunc(op.Args, other.Args, same) && slices.EqualFunc(op.Results, other.Results, same) &&
			slices.EqualFunc(op.Attrs, other.Attrs, func(x, y ir.Attr) bool { return x.Key == y.Key && attrEqual(x.Val, y.Val) })
		if !ok {
			return fmt.Sprintf("op %d: %s %v (%s) and %s %v (%s)", i, op.Def.Name, op.Attrs, op.Loc, other.Def.Name, other.Attrs, other.Loc)
		}
	}
	for i, o := range a.Outputs {
		if p := b.Outputs[i]; o.Name != p.Name || !same(o.Value, p.Value) {
			return fmt.Sprintf("output %s = %s and %s = %s", o.Name, o.Value, p.Name, p.Value)
		}
	}
	for i, u := range a.Updates {
		if w := b.Updates[i]; !same(u.State, w.State) || !same(u.Value, w.Value) {
			return fmt.Sprintf("update %s = %s and %s = %s", u.State, u.Value, w.State, w.Value)
		}
	}
	return ""
}

func attrEqual(x, y any) bool {
	switch x := x.(type) {
	case float64:
		f, ok := y.(float64)
		return ok && math.Float64bits(x) == math.Float64bits(f)
	case ir.Dim:
		d, ok := y.(ir.Dim)
		return ok && x.Equal(d)
	case []ir.Dim:
		d, ok := y.([]ir.Dim)
		return ok && ir.SameDims(x, d)
	}
	return reflect.DeepEqual(x, y)
}

// Every entry of every model under every option verifies and comes back from its
// text as it was.
func TestEntries(t *testing.T) {
	for _, name := range models() {
		c := config(t, name)
		for _, e := range dsv4.Entries {
			for _, o := range options(name) {
				t.Run(fmt.Sprintf("%s/%s/%+v", name, e, o), func(t *testing.T) {
					g := build(t, c, e, o)
					checkGraph(t, g)
					if g.Name != string(e) || g.Get("numerics") != string(o.Numerics) || g.Get("max_draft") != fmt.Sprint(o.MaxDraft) {
						t.Errorf("graph @%s has attributes %v", g.Name, g.Meta)
					}
					checkOutputs(t, c, e, o, g)
				})
			}
		}
	}
}

func checkOutputs(t *testing.T, c *dsv4.Config, e dsv4.Entry, o dsv4.Options, g *ir.Graph) {
	t.Helper()
	var want, got []string
	switch {
	case e == dsv4.Draft:
		want = []string{"hidden"}
	case o.Taps:
		for l := range c.Layers {
			want = append(want, fmt.Sprintf("hidden.%d", l))
		}
	default:
		want = []string{fmt.Sprintf("hidden.%d", c.Layers-1)}
	}
	switch o.Head {
	case dsv4.HeadLogits:
		want = append(want, "logits")
	case dsv4.HeadSample:
		want = append(want, "sample_ids", "sample_flags")
	case dsv4.HeadGreedy:
		want = append(want, "greedy_ids", "greedy_flags")
	}
	for _, out := range g.Outputs {
		got = append(got, out.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs, -want +got:\n%s", diff)
	}
	if len(g.Updates) != len(g.States) {
		t.Errorf("%d of %d pools are updated", len(g.Updates), len(g.States))
	}
}

// partLayers are the layers whose parts differ: one of each ratio, hash-routed
// and not, and the MTP block.
func partLayers(c *dsv4.Config) []int {
	var out []int
	seen := map[string]bool{}
	for l, r := range c.Ratios {
		kind := fmt.Sprint(r, l < c.HashLayers, l == c.Layers)
		if !seen[kind] {
			out = append(out, l)
		}
		seen[kind] = true
	}
	return out
}

func TestParts(t *testing.T) {
	for _, name := range models() {
		c := config(t, name)
		for _, p := range dsv4.Parts {
			for _, l := range partLayers(c) {
				for _, o := range options(name) {
					t.Run(fmt.Sprintf("%s/%s/%d/%+v", name, p, l, o), func(t *testing.T) {
						g, err := dsv4.BuildPart(c, p, l, o)
						if err != nil {
							t.Fatal(err)
						}
						checkGraph(t, g)
						if len(g.Outputs) != 1 {
							t.Errorf("%d outputs, want 1", len(g.Outputs))
						}
					})
				}
			}
		}
	}
}

// Every graph of the tiny model expands to primitives with the same interface.
func TestExpand(t *testing.T) {
	c := config(t, "tiny")
	for _, o := range options("tiny") {
		var graphs []*ir.Graph
		for _, e := range dsv4.Entries {
			graphs = append(graphs, build(t, c, e, o))
		}
		for _, p := range dsv4.Parts {
			for _, l := range partLayers(c) {
				g, err := dsv4.BuildPart(c, p, l, o)
				if err != nil {
					t.Fatal(err)
				}
				graphs = append(graphs, g)
			}
		}
		for _, g := range graphs {
			b := bind(t, g)
			e, err := ir.Expand(b)
			if err != nil {
				t.Errorf("@%s %+v: %v", g.Name, o, err)
				continue
			}
			for _, op := range e.Ops {
				if !op.Def.Primitive() {
					t.Errorf("@%s: %s is left", g.Name, op.Def.Name)
				}
			}
			for i, out := range b.Outputs {
				if x := e.Outputs[i]; x.Name != out.Name || !x.Value.Type.Equal(out.Value.Type) {
					t.Errorf("@%s: output %s : %s became %s : %s", g.Name, out.Name, out.Value.Type, x.Name, x.Value.Type)
				}
			}
		}
	}
}

// storedDType is how a checkpoint spells the formats that the graphs read.
var storedDType = map[ir.DType]string{ir.F32: "F32", ir.BF16: "BF16", ir.I64: "I64", ir.F8E4M3: "F8_E4M3", ir.F4E2M1: "I8"}

// tensorsOf lists the checkpoint tensors that a graph's weights stand for. isFull
// says whether a name is that of a tensor; else ".weight" is appended.
func tensorsOf(t *testing.T, g *ir.Graph, isFull map[string]bool) map[string]dsv4.TensorSpec {
	t.Helper()
	out := map[string]dsv4.TensorSpec{}
	add := func(name string, typ ir.Type, shape []int) {
		scale := name + ".scale"
		if !isFull[name] {
			name += ".weight"
		}
		dtype, ok := storedDType[typ.DType]
		if !ok {
			t.Errorf("weight %s is %s, which no checkpoint stores", name, typ)
		}
		stored := slices.Clone(shape)
		if typ.DType == ir.F4E2M1 {
			stored[len(stored)-1] /= 2
		}
		out[name] = dsv4.TensorSpec{Name: name, DType: dtype, Shape: stored}
		if q := typ.Quant; q != nil {
			blocks := []int{(shape[0] + q.Block[0] - 1) / q.Block[0], (shape[1] + q.Block[1] - 1) / q.Block[1]}
			out[scale] = dsv4.TensorSpec{Name: scale, DType: "F8_E8M0", Shape: blocks}
		}
	}
	for _, w := range g.Weights {
		shape := make([]int, w.Type.Rank())
		for i, d := range w.Type.Dims {
			n, ok := d.Const()
			if !ok {
				t.Fatalf("weight %s : %s has a symbolic extent", w, w.Type)
			}
			shape[i] = n
		}
		if !strings.Contains(w.Name, "*") {
			add(w.Name, w.Type, shape)
			continue
		}
		for i := range shape[0] {
			add(strings.Replace(w.Name, "*", fmt.Sprint(i), 1), w.Type, shape[1:])
		}
	}
	return out
}

// The weights of the main step and the draft step are the checkpoint: every
// tensor is read, with its dtype and shape, and none besides.
func TestWeightsAreTheCheckpoint(t *testing.T) {
	for _, name := range models() {
		c := config(t, name)
		want := map[string]dsv4.TensorSpec{}
		isFull := map[string]bool{}
		for _, s := range dsv4.Tensors(c) {
			want[s.Name] = s
			isFull[s.Name] = true
		}
		got := tensorsOf(t, build(t, c, dsv4.Prefill, dsv4.DefaultOptions()), isFull)
		maps.Copy(got, tensorsOf(t, build(t, c, dsv4.Draft, dsv4.DefaultOptions()), isFull))
		var bad []string
		for n, s := range want {
			if g := got[n]; g.Name != s.Name || g.DType != s.DType || !slices.Equal(g.Shape, s.Shape) {
				bad = append(bad, fmt.Sprintf("%v, the graphs read %v", s, g))
			}
		}
		for n, g := range got {
			if !isFull[n] {
				bad = append(bad, fmt.Sprintf("%v is in no checkpoint", g))
			}
		}
		slices.Sort(bad)
		if len(bad) > 0 {
			t.Errorf("%s: %d tensors differ, among them\n%s", name, len(bad), strings.Join(bad[:min(5, len(bad))], "\n"))
		}
	}
}

// One name has one type in all entries: weights and pools are shared. Weights are
// the same under all options.
func TestEntriesShareWeightsAndPools(t *testing.T) {
	for _, name := range models() {
		c := config(t, name)
		weights := map[string]string{}
		for k, o := range options(name) {
			pools := map[string]string{}
			names := map[dsv4.Entry][]string{}
			for _, e := range dsv4.Entries {
				g := build(t, c, e, o)
				for _, v := range slices.Concat(g.Weights, g.States) {
					types := weights
					if v.Kind == ir.StateValue {
						types = pools
					}
					old, ok := types[v.String()]
					if ok && old != v.Type.String() || !ok && v.Kind == ir.WeightValue && k > 0 {
						t.Errorf("%s %+v: %s is %q and %s", name, o, v, old, v.Type)
					}
					types[v.String()] = v.Type.String()
					names[e] = append(names[e], v.String())
				}
			}
			for _, e := range []dsv4.Entry{dsv4.Decode, dsv4.Verify} {
				if diff := cmp.Diff(names[dsv4.Prefill], names[e]); diff != "" {
					t.Errorf("%s: -prefill +%s:\n%s", name, e, diff)
				}
			}
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	c := config(t, "tiny")
	noMTP := *c
	noMTP.NextN, noMTP.Ratios = 0, c.Ratios[:c.Layers]
	o := dsv4.DefaultOptions()
	entry := func(c *dsv4.Config, e dsv4.Entry, o dsv4.Options) func() error {
		return func() error { _, err := dsv4.Build(c, e, o); return err }
	}
	part := func(c *dsv4.Config, p dsv4.Part, l int, o dsv4.Options) func() error {
		return func() error { _, err := dsv4.BuildPart(c, p, l, o); return err }
	}
	for _, tc := range []struct {
		do   func() error
		want string
	}{
		{entry(c, "prefil", o), `unknown entry "prefil": want one of [prefill decode verify draft]`},
		{entry(c, "", o), `unknown entry "": want one of [prefill decode verify draft]`},
		{entry(&noMTP, dsv4.Draft, o), "entry draft: the model has no MTP block (num_nextn_predict_layers is 0)"},
		{entry(c, dsv4.Decode, dsv4.Options{Numerics: dsv4.Production, MaxDraft: -1}), "MaxDraft is -1, want at least 0"},
		{entry(c, dsv4.Decode, dsv4.Options{Numerics: dsv4.Production, Head: 3}), `unknown head "Head(3)": want logits, sample, greedy`},
		{entry(c, dsv4.Decode, dsv4.Options{}), `unknown numerics "": want production or unrounded`},
		{entry(c, dsv4.Decode, dsv4.Options{Numerics: "Production"}), `unknown numerics "Production": want production or unrounded`},
		{part(c, "mlp", 0, o), `unknown part "mlp": want one of [attention moe block head draft_head]`},
		{part(c, dsv4.BlockPart, -1, o), "part block: layer -1 is outside 0..6"},
		{part(c, dsv4.BlockPart, 7, o), "part block: layer 7 is outside 0..6"},
		{part(&noMTP, dsv4.BlockPart, 6, o), "part block: layer 6 is outside 0..5"},
		{part(&noMTP, dsv4.DraftHeadPart, 0, o), "part draft_head: the model has no MTP block (num_nextn_predict_layers is 0)"},
		{part(c, dsv4.HeadPart, 0, dsv4.Options{Numerics: dsv4.Production, MaxDraft: -2}), "MaxDraft is -2, want at least 0"},
	} {
		if err := tc.do(); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
	serves := map[dsv4.Head]string{dsv4.HeadLogits: "logits sample greedy ", dsv4.HeadSample: "sample greedy ", dsv4.HeadGreedy: "greedy "}
	for h, want := range serves {
		if got, err := dsv4.ParseHead(h.String()); err != nil || got != h {
			t.Errorf("ParseHead(%q) is %v, %v", h, got, err)
		}
		got := ""
		for _, x := range []dsv4.Head{dsv4.HeadLogits, dsv4.HeadSample, dsv4.HeadGreedy} {
			if h.Serves(x) {
				got += x.String() + " "
			}
		}
		if got != want {
			t.Errorf("head %v serves %q, want %q", h, got, want)
		}
	}
	for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		if got, err := dsv4.ParseNumerics(string(n)); err != nil || got != n {
			t.Errorf("numerics %q is read as %q with error %v", n, got, err)
		}
	}
}

func TestRingSizes(t *testing.T) {
	c := config(t, "tiny")
	for draft, want := range map[int]dsv4.Rings{0: {64, 8, 128}, 1: {65, 9, 129}, 3: {67, 11, 131}} {
		if got := (dsv4.Options{MaxDraft: draft}).RingSizes(c); got != want {
			t.Errorf("rings for %d drafts are %+v, want %+v", draft, got, want)
		}
	}
}

// Building the same graph twice gives the same bytes.
func TestBuildIsDeterministic(t *testing.T) {
	c := config(t, "flash")
	for _, e := range dsv4.Entries {
		if a, b := ir.Text(build(t, c, e, dsv4.DefaultOptions())), ir.Text(build(t, c, e, dsv4.DefaultOptions())); a != b {
			t.Errorf("entry %s prints differently when built again", e)
		}
	}
}

// Some graphs as text, so that a change of the model is a visible change of a
// file.
func TestGraphText(t *testing.T) {
	c := config(t, "tiny")
	unrounded := dsv4.DefaultOptions()
	unrounded.Numerics = dsv4.Unrounded
	for _, tc := range []struct {
		file  string
		part  dsv4.Part
		layer int
		o     dsv4.Options
	}{
		{"head", dsv4.HeadPart, 0, dsv4.DefaultOptions()},
		{"moe.hash", dsv4.MoEPart, 0, dsv4.DefaultOptions()},
		{"moe.scored", dsv4.MoEPart, 1, dsv4.DefaultOptions()},
		{"attention.0", dsv4.AttentionPart, 0, unrounded},
		{"attention.4", dsv4.AttentionPart, 2, dsv4.DefaultOptions()},
		{"attention.128", dsv4.AttentionPart, 3, dsv4.DefaultOptions()},
	} {
		g, err := dsv4.BuildPart(c, tc.part, tc.layer, tc.o)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", tc.file+".kir")
		if *update {
			if err := os.WriteFile(file, []byte(ir.Text(g)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), ir.Text(g)); diff != "" {
			t.Errorf("%s (rewrite with -update): -file +built:\n%s", file, diff)
		}
	}
}
