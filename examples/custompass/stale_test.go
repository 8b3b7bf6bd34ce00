package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
)

// module is a copy of this module that may be edited.
type module struct {
	t     *testing.T
	dir   string
	cache string // one for all builds
}

func copyModule(t *testing.T) *module {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := &module{t: t, dir: t.TempDir(), cache: t.TempDir()}
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "mypasses/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			m.write(name, strings.Replace(string(text), "kiln => ../..", "kiln => "+root, 1))
		}
	}
	return m
}

func (m *module) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// edit replaces a piece of text that a file has once, and returns what undoes it.
func (m *module) edit(name, old, by string) (undo func()) {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	if strings.Count(string(text), old) != 1 {
		m.t.Fatalf("%s: %q is not there once", name, old)
	}
	m.write(name, strings.Replace(string(text), old, by, 1))
	return func() { m.write(name, string(text)) }
}

// result is what a build of the module made of the model's first three layers, of
// which the third has the fusion twice.
type result struct {
	code            *bundle.Code
	kernels, cached int
	whole           bool // all of it was there
}

// compile builds the module and has it compile the model.
func (m *module) compile() result {
	t := m.t
	t.Helper()
	program, dir := filepath.Join(m.dir, "program"), filepath.Join(t.TempDir(), "m.kiln")
	command(t, os.Environ(), "go", "build", "-C", m.dir, "-trimpath", "-ldflags=-s -w", "-o", program, ".") // a program that links fast
	out := command(t, plain(), program, withLLVM(t, "compile", "--model", tinyModel, "--layers", "3", "--batch", "1", "--prefill", "16", "--speculate", "0",
		"--target", "x86-64-v3", "--cache-dir", m.cache, "--json", "--timings", "-o", dir)...)
	var said struct {
		Targets []struct{ Kernels, Cached int }
		Timings struct {
			Codegen float64 `json:"codegen_s"`
		}
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	b, err := bundle.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := result{kernels: said.Targets[0].Kernels, cached: said.Targets[0].Cached, whole: said.Timings.Codegen == 0}
	if r.code, err = b.ReadCode(dir, "x86-64-v3"); err != nil {
		t.Fatal(err)
	}
	return r
}

// launches counts the launches of a plan's ops.
func (r result) launches(entry string, ops ...string) int {
	n := 0
	for _, p := range r.code.Module.Plans {
		for _, l := range p.Launches {
			if p.Entry == entry && (len(ops) == 0 || slices.Contains(ops, l.Op)) {
				n++
			}
		}
	}
	return n
}

// An edit of a pass or of a kernel is in the next compilation, whatever the cache
// holds of the program before; and a program that was not edited finds all it made.
func TestEditIsNeverStale(t *testing.T) {
	m := copyModule(t)
	first := m.compile()
	if first.whole || first.cached != 0 || first.launches("decode", "my.add_row") != 2 {
		t.Fatalf("the first build: whole %v, %d kernels from the cache, my.add_row in %d launches", first.whole, first.cached, first.launches("decode", "my.add_row"))
	}
	again := m.compile()
	if !again.whole || again.cached != again.kernels || !bytes.Equal(again.code.Object, first.code.Object) {
		t.Errorf("the same again: whole %v, %d of %d kernels from the cache", again.whole, again.cached, again.kernels)
	}

	// The pass: without the fusion there is a launch more for each.
	undo := m.edit("mypasses/fuse.go", "return passes.Rewrite(c, g, addOfRow)", "return g, nil")
	unfused := m.compile()
	if n, all, before := unfused.launches("decode", "my.add_row"), unfused.launches("decode"), first.launches("decode"); unfused.whole || n != 0 || all != before+2 {
		t.Errorf("an edited pass: whole %v, my.add_row in %d launches, %d launches in all, want 0 and %d", unfused.whole, n, all, before+2)
	}
	undo()

	// The kernel: the same graphs and the same plans, so that nothing but the program
	// tells; one kernel is compiled again.
	m.edit("mypasses/kernel.go", "k.Add(", "k.Sub(")
	wrong := m.compile()
	if wrong.whole || wrong.cached != wrong.kernels-1 || bytes.Equal(wrong.code.Object, first.code.Object) {
		t.Errorf("an edited kernel: whole %v, %d of %d kernels from the cache", wrong.whole, wrong.cached, wrong.kernels)
	}
	if a, b := planText(first.code.Module), planText(wrong.code.Module); a != b {
		t.Errorf("an edited kernel has other plans:\n%s\nwant\n%s", b, a)
	}
}

// planText are the plans of a module.
func planText(m *plan.Module) string {
	var b strings.Builder
	for _, p := range m.Plans {
		b.WriteString(m.Text(p))
	}
	return b.String()
}
