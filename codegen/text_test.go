package codegen

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

var update = flag.Bool("update", false, "rewrite the expected sections of the text cases")

// The text cases of select-kernels, join-launches and plan-memory are testdata/PASS/*.txtar:
// what the case shows, with lines "target: NAME" and "disable: FORM", then
// before.kir with a bound graph, then the plan, or the error. A plan shows what
// both passes did: forms and launches, and places.
func TestTextCases(t *testing.T) {
	for _, pass := range []string{"select-kernels", "join-launches", "plan-memory"} {
		files, err := filepath.Glob(filepath.Join("testdata", pass, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Errorf("pass %s has no text case", pass)
		}
		for _, file := range files {
			t.Run(pass+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { textCase(t, pass, file) })
		}
	}
}

func textCase(t *testing.T, pass, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	arc := txtar.Parse(text)
	if len(arc.Files) == 0 || arc.Files[0].Name != "before.kir" {
		t.Fatalf("%s: want a comment, then the section before.kir", file)
	}
	graphs, err := ir.Parse(file, string(arc.Files[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	name, disable := "x86-64-v3", map[string]bool{}
	for line := range strings.Lines(string(arc.Comment)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "target":
			name = value
		case "disable":
			disable[value] = true
		}
	}
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	u := NewUnit(tg)
	u.Disable = disable
	got := txtar.File{Name: "plan"}
	var out bytes.Buffer
	for _, g := range graphs {
		p, err := textPlan(u, pass, g)
		if err != nil {
			got.Name = "error"
			out.Reset()
			fmt.Fprintln(&out, err)
			break
		}
		out.WriteString(u.Module.Text(p))
	}
	if got.Name == "plan" {
		notes(&out, u.Module)
	}
	got.Data = out.Bytes()
	want := txtar.Format(&txtar.Archive{Comment: arc.Comment, Files: []txtar.File{arc.Files[0], got}})
	if bytes.Equal(want, text) {
		return
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: -file +passes (rewrite with -update):\n%s", file, cmp.Diff(string(text), string(want)))
}

// textPlan lowers a graph; launches are joined in the cases about that.
func textPlan(u *Unit, pass string, g *ir.Graph) (*plan.Plan, error) {
	if pass != "join-launches" {
		return u.Lower(g)
	}
	s := &passes.Step{Graph: g}
	for _, f := range []func(*passes.Step) error{u.SelectKernels, u.JoinLaunches, u.PlanMemory} {
		if err := f(s); err != nil {
			return nil, err
		}
	}
	return u.Module.Plans[len(u.Module.Plans)-1], nil
}

// notes prints what was decomposed and which forms were rejected.
func notes(out *bytes.Buffer, m *plan.Module) {
	for _, d := range m.Decomposed {
		fmt.Fprintf(out, "decomposed %d x %s: %s\n", d.Count, d.Op, whyNot(d.Rejected))
	}
	for _, k := range m.Kernels {
		if len(k.Rejected) > 0 {
			fmt.Fprintf(out, "%s was chosen: %s\n", k.Form, whyNot(k.Rejected))
		}
	}
}
