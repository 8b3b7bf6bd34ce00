package ir

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expectations under testdata and docs/ops.md")

// A failed property prints how to repeat it; files in testdata would be taken
// for cases.
func init() {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
}

// The text cases: testdata/KIND/*.txtar holds inputs NAME.kir, each followed by
// NAME.want with what the kind expects of it. Comments in the archives say why.
var textKinds = []struct {
	kind string
	got  func(t *testing.T, name, text string) string
}{
	{"roundtrip", printed},
	{"parse-error", parseFailure},
	{"verify-error", verifyFailure},
}

func TestText(t *testing.T) {
	for _, k := range textKinds {
		for _, path := range glob(t, filepath.Join("testdata", k.kind, "*.txtar")) {
			runArchive(t, path, k.got)
		}
	}
}

func runArchive(t *testing.T, path string, got func(t *testing.T, name, text string) string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []txtar.File
	seen := map[string]bool{}
	for i, f := range a.Files {
		name, isInput := strings.CutSuffix(f.Name, ".kir")
		if !isInput {
			if i == 0 || a.Files[i-1].Name != strings.TrimSuffix(f.Name, ".want")+".kir" {
				t.Errorf("%s: %s does not follow its input", path, f.Name)
			}
			continue
		}
		if seen[name] {
			t.Errorf("%s: %s is there twice", path, f.Name)
		}
		seen[name] = true
		want := ""
		if i+1 < len(a.Files) && a.Files[i+1].Name == name+".want" {
			want = string(a.Files[i+1].Data)
		}
		out = append(out, f, txtar.File{Name: name + ".want", Data: []byte(want)})
		t.Run(filepath.Base(path)+"/"+name, func(t *testing.T) {
			g := got(t, f.Name, string(f.Data))
			if diff := cmp.Diff(want, g); diff != "" && !*update {
				t.Errorf("-want +got:\n%s", diff)
			}
			out[len(out)-1].Data = []byte(g)
		})
	}
	if *update {
		a.Files = out
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// printed is the canonical text of a legal file; it must be a fixpoint.
func printed(t *testing.T, name, text string) string {
	once := reprint(t, name, text)
	if diff := cmp.Diff(once, reprint(t, name, once)); diff != "" {
		t.Errorf("the printed text prints as something else, -once +twice:\n%s", diff)
	}
	return once
}

// failer is what testing.T and rapid.T have in common here.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func reprint(t failer, name, text string) string {
	t.Helper()
	graphs, err := Parse(name, text)
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	var b strings.Builder
	for _, g := range graphs {
		b.WriteString(Text(g))
	}
	return b.String()
}

func parseFailure(t *testing.T, name, text string) string {
	graphs, err := Parse(name, text)
	var pe *ParseError
	if !errors.As(err, &pe) {
		t.Fatalf("got %d graphs and %v, want a ParseError", len(graphs), err)
	}
	if pe.Pos.File != name || pe.Pos.Line < 1 || pe.Pos.Col < 1 {
		t.Errorf("the error has no place: %+v", pe.Pos)
	}
	return err.Error() + "\n"
}

func verifyFailure(t *testing.T, name, text string) string {
	graphs, err := ParseUnverified(name, text)
	if err != nil {
		t.Fatalf("%v, want a text that parses", err)
	}
	if _, err = Parse(name, text); err == nil {
		t.Fatal("no error")
	}
	for _, ve := range verifyErrors(err) {
		if ve.Pos.File != name || ve.Pos.Line < 1 || ve.Pos.Col < 1 {
			t.Errorf("%v: the error has no place", ve)
		}
	}
	for _, g := range graphs { // what is broken must still print
		Text(g)
	}
	return err.Error() + "\n"
}

// verifyErrors are the single breaches in an error of Verify.
func verifyErrors(err error) []*VerifyError {
	var out []*VerifyError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if ve, ok := e.(*VerifyError); ok {
				out = append(out, ve)
			}
		}
	}
	return out
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	return paths
}

// inputs are the texts of all cases of a kind.
func inputs(t testing.TB, kind string) []string {
	t.Helper()
	var out []string
	for _, path := range glob(t, filepath.Join("testdata", kind, "*.txtar")) {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if strings.HasSuffix(f.Name, ".kir") {
				out = append(out, string(f.Data))
			}
		}
	}
	return out
}

// AllInputs are the texts of all cases, legal and broken, and the graphs of
// testdata/infer: the seeds of the fuzz tests.
func AllInputs(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, k := range textKinds {
		out = append(out, inputs(t, k.kind)...)
	}
	for _, c := range inferCases(t) {
		out = append(out, c.text())
	}
	return out
}

// Texts whose very bytes matter, so that they cannot stand in an archive.
func TestTextBytes(t *testing.T) {
	const canonical = "graph @g\nsym T\nlet E = T/4+1\ninput %x : f8e4m3[E,4] block(1,2) scale e8m0\n" +
		"%0 = dequantize %x : f32[E,4] loc(\"a\\\\\\\"b\")\noutput y = %0\n"
	noEnd := strings.TrimSuffix(canonical, "\n")
	ok := map[string]string{
		"canonical":                canonical,
		"crlf":                     strings.ReplaceAll(canonical, "\n", "\r\n"),
		"no newline at the end":    noEnd,
		"comment at the very end":  noEnd + "// end",
		"tabs":                     strings.ReplaceAll(canonical, " ", "\t"),
		"blank lines and comments": "// a\n\n" + strings.ReplaceAll(canonical, "\n", " // c : %x\n\n//\n"),
		"a comment of any text":    "// \u00e4 \uFFFD \"\n" + canonical,
	}
	for name, text := range ok {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(canonical, printed(t, "t.kir", text)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	bad := []struct{ name, text, want string }{
		{"empty", "", "t.kir:1:1: no graph"},
		{"only a comment", "// x", "t.kir:1:1: no graph"},
		{"bom", "\ufeff" + canonical, `t.kir:1:1: unexpected character '\ufeff'`},
		{"nul", "graph @g\n\x00", `t.kir:2:1: unexpected character '\x00'`},
		{"bad utf-8", "// \uFFFD\ngraph @g {k = \"a\xffb\"}\n", "t.kir:2:17: byte 0xff is not UTF-8"},
		{"bad utf-8 at once", "\xff", "t.kir:1:1: byte 0xff is not UTF-8"},
		{"string over the line's end", "graph @g {k = \"a\\\nb\"}", "t.kir:1:15: string without an end"},
		{"string to the end", "graph @g {k = \"a\\", "t.kir:1:15: string without an end"},
		{"lone cr hides the text", "// x\rgraph @g\n", "t.kir:1:1: no graph"},
	}
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("t.kir", c.text)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestParseOne(t *testing.T) {
	const g = "graph @%s\ninput %%x : f32[]\noutput y = %%x\n"
	one := strings.NewReplacer("%s", "a", "%%", "%").Replace(g)
	two := one + strings.NewReplacer("%s", "b", "%%", "%").Replace(g)
	if got, err := ParseOne("t.kir", one); err != nil || got.Name != "a" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := ParseOne("t.kir", two); err == nil || err.Error() != "t.kir: has 2 graphs, want one" {
		t.Errorf("got %v", err)
	}
	if _, err := ParseOne("t.kir", "graph"); err == nil {
		t.Error("no error")
	}
}

// Long lines and many repeats must not cost more than their length.
func TestLongText(t *testing.T) {
	const n = 3000
	var b strings.Builder
	b.WriteString("graph @g input %x : f32[2] weight @w : f8e4m3[2,4] block(1,2) scale e8m0 ")
	for i := range n {
		b.WriteString("%" + itoa(i) + " = dequantize @w {to = f32} : f32[2,4] loc(\"x\") ")
	}
	for i := range n {
		b.WriteString("output o" + itoa(i) + " = %x ")
	}
	graphs, err := Parse("t.kir", b.String())
	if err != nil {
		t.Fatal(err)
	}
	if g := graphs[0]; len(g.Ops) != n || len(g.Outputs) != n {
		t.Errorf("got %d ops and %d outputs, want %d", len(g.Ops), len(g.Outputs), n)
	}
}
