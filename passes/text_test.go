package passes

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kiln-project/kiln/ir"
)

var update = flag.Bool("update", false, "rewrite the expected sections of the text cases")

// The text cases of a pass are testdata/NAME/*.txtar: what the case shows, then
// before.kir with one or more entries (a graph @pack is the pack graph), perhaps
// module with what else is set, one a line (FNUZ, chip gfx950, bucket decode B=4, or
// set KEY=VALUE), then what the pass makes of it: after.kir with the entries and the
// pack graph, for bind the steps, or error, and the remarks. A pass on steps gets the
// entries as steps. The cases of what a backend does are beside package codegen.
func TestTextCases(t *testing.T) {
	for i := range Table {
		p := &Table[i]
		if p.On == Steps && p.Graph == nil && p.Name != "bind" { // of launches: codegen has their cases
			continue
		}
		files, err := filepath.Glob(filepath.Join("testdata", p.Name, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Errorf("pass %s has no text case", p.Name)
		}
		for _, file := range files {
			t.Run(p.Name+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { textCase(t, p, file) })
		}
	}
}

func textCase(t *testing.T, p *Pass, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	arc := txtar.Parse(text)
	if len(arc.Files) == 0 || arc.Files[0].Name != "before.kir" || len(arc.Comment) == 0 {
		t.Fatalf("%s: want a comment, then the section before.kir", file)
	}
	m := module(t, file, string(arc.Files[0].Data))
	given := arc.Files[:1]
	if len(arc.Files) > 1 && arc.Files[1].Name == "module" {
		given = arc.Files[:2]
		for field := range strings.Lines(string(arc.Files[1].Data)) {
			if bucket, ok := strings.CutPrefix(field, "bucket "); ok {
				m.Buckets = append(m.Buckets, parseBucket(t, bucket))
			} else if chip, ok := strings.CutPrefix(field, "chip "); ok {
				m.Target.Chip = strings.TrimSpace(chip)
			} else if set, ok := strings.CutPrefix(field, "set "); ok {
				m.Config.Set = parseBucket(t, "set "+set).Bind
			} else if field == "FNUZ\n" {
				m.Target.FNUZ = true
			} else {
				t.Fatalf("%s: module: no field %q", file, field)
			}
		}
	}
	if p.On == Steps && p.Graph != nil {
		for _, g := range m.Entries {
			m.Steps = append(m.Steps, &Step{Graph: g})
		}
	}
	got := txtar.File{Name: "after.kir"}
	if err := runOne(p, m); err != nil {
		got = txtar.File{Name: "error", Data: []byte(err.Error() + "\n")}
	} else {
		if p.On == Steps {
			m.Entries = nil
			for _, s := range m.Steps {
				m.Entries = append(m.Entries, s.Graph)
			}
		}
		got.Data = []byte(moduleText(m))
		// What a pass prints can be read again.
		for _, g := range append(slices.Clone(m.Entries), m.Pack) {
			if g == nil {
				continue
			}
			back := moduleText(module(t, file, ir.Text(g)))
			if diff := cmp.Diff(ir.Text(g), back); diff != "" {
				t.Errorf("after.kir does not round-trip, -printed +read:\n%s", diff)
			}
		}
	}
	files := append(slices.Clone(given), got)
	if len(m.Remarks) > 0 {
		var b strings.Builder
		for _, r := range m.Remarks {
			r.Pos = "" // moves with the text of the case
			fmt.Fprintln(&b, r)
		}
		files = append(files, txtar.File{Name: "remarks", Data: []byte(b.String())})
	}
	want := txtar.Format(&txtar.Archive{Comment: arc.Comment, Files: files})
	if bytes.Equal(want, text) {
		return
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: -file +pass (rewrite with -update):\n%s", file, cmp.Diff(string(text), string(want)))
}

// parseBucket reads "decode B=4 R=1".
func parseBucket(t *testing.T, text string) Bucket {
	t.Helper()
	fields := strings.Fields(text)
	b := Bucket{Entry: fields[0], Bind: map[string]int{}}
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("bucket %q: %v", text, err)
		}
		b.Bind[name] = n
	}
	return b
}

// module reads entries and, if there is one, the pack graph.
func module(t *testing.T, file, text string) *Module {
	t.Helper()
	graphs, err := ir.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	m := &Module{}
	for _, g := range graphs {
		if g.Name == PackGraph {
			m.Pack = g
		} else {
			m.Entries = append(m.Entries, g)
		}
	}
	return m
}

// moduleText prints all graphs, the pack graph last.
func moduleText(m *Module) string {
	var b strings.Builder
	for _, g := range m.Entries {
		b.WriteString(ir.Text(g))
	}
	if m.Pack != nil {
		b.WriteString(ir.Text(m.Pack))
	}
	return b.String()
}
