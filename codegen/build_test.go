package codegen

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// scaled is a module of one entry, x*k + w.
func scaled(t *testing.T, tg *target.Target, k float64) *passes.Module {
	t.Helper()
	b := ir.NewBuilder("scale")
	rows := b.Sym("T")
	x := b.Input("x", ir.T(ir.F32, rows, ir.Int(8)))
	w := b.Weight("w", ir.T(ir.F32, ir.Int(1), ir.Int(8)))
	b.Output("y", b.Bin("add", b.Bin("mul", x, b.F(k)), w))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses()}
}

// TestBuildFromCache: what was built from a key is found without making a graph; another
// key, or a listener, makes it and runs the passes.
func TestBuildFromCache(t *testing.T) {
	c := newCompiler(t)
	c.Cache = OpenCache(t.TempDir())
	tg, err := target.Lookup("gfx950")
	if err != nil {
		t.Fatal(err)
	}
	buckets := []passes.Bucket{{Entry: "scale", Bind: map[string]int{"T": 4}}}
	build := func(k float64, config passes.Config) (bundle.Files, bool, *passes.Module) {
		t.Helper()
		var m *passes.Module
		files, st, err := c.BuildFrom(t.Context(), tg, Origin{
			Key: []string{strconv.FormatFloat(k, 'g', -1, 64), config.Key()}, Listens: config.Trace != nil,
			Make: func() (*passes.Module, []passes.Bucket, error) {
				m = scaled(t, tg, k)
				m.Config = config
				return m, buckets, nil
			},
		}, Emit{})
		if err != nil {
			t.Fatal(err)
		}
		return load(t, files), st.WholeHit, m
	}
	first, hit, m := build(2, passes.Config{})
	if hit || m == nil {
		t.Error("an empty cache had it")
	}
	again, hit, none := build(2, passes.Config{})
	if d := cmp.Diff(first, again); d != "" || !hit || none != nil {
		t.Errorf("again: from the cache %v, graphs made %v, other files:\n%s", hit, none != nil, d)
	}
	// What Build makes of the graphs that the passes left is the same.
	built, st, err := c.Build(t.Context(), tg, m, buckets, Emit{})
	if d := cmp.Diff(first, built); err != nil || d != "" || !st.WholeHit {
		t.Errorf("Build after the passes: %v, from the cache %v, other files:\n%s", err, st.WholeHit, d)
	}
	if _, hit, _ := build(3, passes.Config{}); hit {
		t.Error("another graph was taken for it")
	}
	if _, hit, _ := build(2, passes.Config{Disable: []string{"fold"}}); hit {
		t.Error("other passes were taken for it")
	}
	heard := 0
	if _, hit, _ := build(2, passes.Config{Trace: func(passes.Event) { heard++ }}); hit || heard == 0 {
		t.Errorf("somebody listens: from the cache %v, %d events", hit, heard)
	}
}

// load has all content in memory.
func load(t *testing.T, files bundle.Files) bundle.Files {
	t.Helper()
	files, err := files.Load()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBuildFromDamaged: with any single file of the cache removed, cut, or with one bit
// flipped, the same bytes are built; damage is reported, by the file's name.
func TestBuildFromDamaged(t *testing.T) {
	tg, err := target.Lookup("gfx950")
	if err != nil {
		t.Fatal(err)
	}
	c, dir := newCompiler(t), t.TempDir()
	c.Sides = Sides{Unfused: true, Probes: true}
	build := func() bundle.Files {
		t.Helper()
		c.Cache = OpenCache(dir)
		files, _, err := c.BuildFrom(t.Context(), tg, Origin{Make: func() (*passes.Module, []passes.Bucket, error) {
			return scaled(t, tg, 2), []passes.Bucket{{Entry: "scale", Bind: map[string]int{"T": 4}}}, nil
		}}, Emit{})
		if err != nil {
			t.Fatal(err)
		}
		return load(t, files)
	}
	first := build()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	damages := []struct {
		name   string
		change func(data []byte) []byte // nil: no file
	}{
		{"removed", nil},
		{"cut", func(data []byte) []byte { return data[:len(data)/2] }},
		{"flipped", func(data []byte) []byte { data[len(data)/3] ^= 4; return data }},
	}
	noted := map[string]int{}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		sound, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range damages {
			if d.change == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, d.change(slices.Clone(sound)), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, build()); diff != "" {
				t.Errorf("%s %s: other files:\n%s", e.Name(), d.name, diff)
			}
			switch found := c.Cache.Damaged(); {
			case len(found) > 1 || len(found) == 1 && (d.change == nil || found[0] != e.Name()):
				t.Errorf("%s %s: reported as damaged: %v", e.Name(), d.name, found)
			case len(found) == 1:
				noted[e.Name()]++
				if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, sound) {
					t.Errorf("%s %s: was not made again: %v", e.Name(), d.name, err)
				}
			}
			if err := os.WriteFile(path, sound, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Objects of kernels are not looked at while what was linked from them is sound.
	contents := map[string]bool{}
	for _, f := range first {
		contents[f.Stored.Sum] = true
	}
	if len(noted) < len(contents)+2 {
		t.Errorf("of %d files %d were found damaged: want source, build and %d contents", len(list), len(noted), len(contents))
	}
	for _, name := range slices.Sorted(maps.Keys(noted)) {
		if n := noted[name]; n != len(damages)-1 {
			t.Errorf("%s was found damaged %d times of %d", name, n, len(damages)-1)
		}
	}
}

// TestBuildCache: what was built is not built again, bytes and all; another graph,
// bucket or target is another entry, a damaged entry is made anew, and what is to
// be emitted is always made.
func TestBuildCache(t *testing.T) {
	dir := t.TempDir()
	c := newCompiler(t)
	c.Cache = OpenCache(dir)
	build := func(k float64, rows int, name string, emit Emit) (bundle.Files, Stats) {
		t.Helper()
		tg, err := target.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		files, st, err := c.Build(t.Context(), tg, scaled(t, tg, k), []passes.Bucket{{Entry: "scale", Bind: map[string]int{"T": rows}}}, emit)
		if err != nil {
			t.Fatal(err)
		}
		return files, st
	}
	first, st := build(2, 4, "gfx950", Emit{})
	if st.WholeHit || st.Plans != 1 || st.Kernels == 0 || st.LLVM == 0 {
		t.Errorf("a cold build: %+v", st)
	}
	again, st := build(2, 4, "gfx950", Emit{})
	if !st.WholeHit || st.Plans != 1 || st.Cached != st.Kernels || st.Kernels == 0 {
		t.Errorf("a warm build: %+v", st)
	}
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("the cache has other files:\n%s", d)
	}
	for _, other := range []struct {
		k    float64
		rows int
		name string
	}{{3, 4, "gfx950"}, {2, 5, "gfx950"}, {2, 4, "gfx942"}} {
		if _, st := build(other.k, other.rows, other.name, Emit{}); st.WholeHit {
			t.Errorf("%+v hit the entry of another build", other)
		}
	}
	tg, err := target.Lookup("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	m := scaled(t, tg, 2)
	m.Target = passes.Target{}
	if _, _, err := c.Build(t.Context(), tg, m, nil, Emit{}); err == nil || !strings.Contains(err.Error(), `ran for target "", not gfx942`) {
		t.Errorf("passes of another target: %v", err)
	}
	from := Origin{Make: func() (*passes.Module, []passes.Bucket, error) { return m, nil, nil }}
	if _, _, err := c.BuildFrom(t.Context(), tg, from, Emit{}); err == nil || !strings.Contains(err.Error(), `ran for target "", not gfx942`) {
		t.Errorf("passes for another target: %v", err)
	}
	emitted, st := build(2, 4, "gfx950", Emit{KIR: true, LL: true, Asm: true})
	if st.WholeHit {
		t.Error("a build that emits came from the cache")
	}
	var names []string
	for _, f := range emitted[len(first):] {
		names = append(names, f.Name)
		want := map[string]string{".kir": "graph @scale", ".ll": "define amdgpu_kernel", ".s": "s_endpgm"}[filepath.Ext(f.Name)]
		if !strings.Contains(string(f.Data), want) {
			t.Errorf("%s lacks %q", f.Name, want)
		}
	}
	if len(names) != 1+2*st.Kernels || names[0] != "ir/kir/scale.kir" {
		t.Errorf("emitted %v", names)
	}
	if d := cmp.Diff(first, emitted[:len(first)]); d != "" {
		t.Errorf("emitting changes the code:\n%s", d)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := os.Truncate(filepath.Join(dir, e.Name()), 100); err != nil {
			t.Fatal(err)
		}
	}
	repaired, st := build(2, 4, "gfx950", Emit{})
	if st.WholeHit || st.Cached != 0 {
		t.Errorf("damaged entries were served: %+v", st)
	}
	if d := cmp.Diff(first, repaired); d != "" {
		t.Errorf("the second build has other files:\n%s", d)
	}
}

// TestBuildDisable: a disabled form is not chosen, and neither it nor another
// config of the passes is served what was built without; who listens to the passes
// hears them although the cache has everything.
func TestBuildDisable(t *testing.T) {
	tg, err := target.Lookup("gfx950")
	if err != nil {
		t.Fatal(err)
	}
	build := func(c *Compiler, config passes.Config) (bundle.Files, Stats) {
		t.Helper()
		b := ir.NewBuilder("norm")
		x := b.Input("x", ir.T(ir.BF16, ir.Int(4), ir.Int(8)))
		w := b.Weight("w", ir.T(ir.BF16, ir.Int(8)))
		b.Output("y", b.Op1("rms_norm", ir.Attrs{{Key: "eps", Val: 1e-6}}, x, w))
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		m := &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses(), Config: config}
		files, st, err := c.Build(t.Context(), tg, m, []passes.Bucket{{Entry: "norm"}}, Emit{})
		if err != nil {
			t.Fatal(err)
		}
		return files, st
	}
	c := newCompiler(t)
	c.Cache = OpenCache(t.TempDir())
	whole, _ := build(c, passes.Config{})
	without := *c
	without.Disable = []string{"rms_norm"}
	files, st := build(&without, passes.Config{})
	if m, err := files.DecodeModule(tg.Name); err != nil || st.WholeHit || len(m.Decomposed) != 1 || m.Decomposed[0].Rejected[0].Reason != "disabled" {
		t.Errorf("without rms_norm: %+v, error %v, module %+v", st, err, m)
	}
	if _, st := build(c, passes.Config{Disable: []string{"cse"}}); st.WholeHit {
		t.Error("another config hit the entry of the default")
	}
	heard := 0
	again, st := build(c, passes.Config{Trace: func(passes.Event) { heard++ }})
	if st.WholeHit || heard == 0 {
		t.Errorf("with a trace: %+v, %d events", st, heard)
	}
	if d := cmp.Diff(whole, again); d != "" {
		t.Errorf("the trace changes the files:\n%s", d)
	}
	if _, st := build(c, passes.Config{}); !st.WholeHit {
		t.Error("the default is not in the cache")
	}
}
