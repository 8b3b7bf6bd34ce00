package kiln_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// TestCompileCases: what the code of a kernel form has in it, and what it has not.
func TestCompileCases(t *testing.T) {
	cases(t, "compile", nil, func(t *testing.T, c *textCase) {
		if len(c.archive.Files) < 2 {
			t.Fatalf("%s: no section FORM TARGET.ll or FORM TARGET.s", c.file)
		}
		made := map[string]map[string]string{} // by target, then "FORM.ll"
		for _, f := range c.archive.Files[1:] {
			form, rest, ok := strings.Cut(f.Name, " ")
			name, as, ok2 := strings.Cut(rest, ".")
			if !ok || !ok2 || as != "ll" && as != "s" {
				t.Fatalf("%s: section %q: want FORM TARGET.ll or FORM TARGET.s", c.file, f.Name)
			}
			if made[name] == nil {
				made[name] = compileCase(t, c.graph, name)
			}
			text, ok := made[name][form+"."+as]
			if !ok {
				t.Fatalf("%s: section %q: no such form is used", c.file, f.Name)
			}
			if why := check(string(f.Data), text); why != "" {
				t.Errorf("%s: section %q: %s, in\n%s", c.file, f.Name, why, text)
			}
		}
	})
}

// compileCase is the code of a graph for a target: by form, LLVM IR and assembly of
// its kernels in the order of their first use.
func compileCase(t *testing.T, g *ir.Graph, name string) map[string]string {
	t.Helper()
	cc := compiler(t)
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses()}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	files, _, err := cc.Build(t.Context(), tg, m, []passes.Bucket{{Entry: g.Name}}, codegen.Emit{LL: true, Asm: true})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := files.DecodeModule(name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, k := range mod.Kernels {
		for _, as := range []string{"ll", "s"} {
			text, err := files.Get("ir/" + as + "/" + k.Symbol + "." + as)
			if err != nil {
				t.Fatalf("%s: %s of kernel %s: %v", name, as, k.Symbol, err)
			}
			out[k.Form+"."+as] += string(text)
		}
	}
	return out
}

// check says which line of a section does not hold for a text, or "". A line is
// found in one of the lines that follow the last one found, as a part of it, spaces
// being equal; one that begins with "!" is in none of the lines up to the next that
// is found.
func check(section, text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = spaced(l)
	}
	var never []string
	gap := func(lines []string) string {
		for _, l := range lines {
			for _, n := range never {
				if strings.Contains(l, n) {
					return "!" + n + " does not hold: " + l
				}
			}
		}
		never = nil
		return ""
	}
	for want := range strings.Lines(section) {
		want = spaced(want)
		if n, ok := strings.CutPrefix(want, "!"); ok {
			never = append(never, n)
			continue
		}
		if want == "" {
			continue
		}
		at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, want) })
		if at < 0 {
			return "no line with " + want + " from there on"
		}
		if why := gap(lines[:at]); why != "" {
			return why
		}
		lines = lines[at+1:]
	}
	return gap(lines)
}

func spaced(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestCheck(t *testing.T) {
	const text = "a one\n  b\ttwo\nc three\nb four\n"
	for section, want := range map[string]string{
		"a one\nb two\nc": "",
		"b\nb":            "",
		"b two\na":        "no line with a from there on",
		"a\n!three\nb":    "",
		"a\n!three\nfour": "!three does not hold: c three",
		"a\n!four":        "!four does not hold: b four",
		"!five":           "",
		"b\nb\nb":         "no line with b from there on",
	} {
		if got := check(section, text); got != want {
			t.Errorf("%q: %q, want %q", section, got, want)
		}
	}
}
