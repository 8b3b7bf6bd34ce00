package mypasses

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// apply runs one pass of this package on a graph, as Kiln would.
func apply(t *testing.T, pass string, entries ...*ir.Graph) *passes.Module {
	t.Helper()
	m := &passes.Module{Entries: entries, Config: passes.Config{Only: []string{pass}}}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	return m
}

var textPlace = regexp.MustCompile(`g\.kir:\d+:\d+ \(([^)]*)\)`)

// said are the remarks, one a line, without places in the text.
func said(m *passes.Module) string {
	var b strings.Builder
	for _, r := range m.Remarks {
		r.Pos = "" // the loc tells the place
		b.WriteString(r.String() + "\n")
	}
	return textPlace.ReplaceAllString(b.String(), "$1")
}

func parse(t *testing.T, text string) *ir.Graph {
	t.Helper()
	g, err := ir.ParseOne("g.kir", text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tiny are the graphs of the tiny model, before any pass.
func tiny(t *testing.T) []*ir.Graph {
	t.Helper()
	c, err := dsv4.LoadConfig("../../../testdata/tiny-dsv4")
	if err != nil {
		t.Fatal(err)
	}
	var out []*ir.Graph
	for _, entry := range dsv4.Entries {
		g, err := dsv4.Build(c, entry, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

func TestFuse(t *testing.T) {
	const inputs = "graph @g\ninput %x : f32[2,4]\ninput %one : f32[1,4]\ninput %v : f32[2]\ninput %h : bf16[2,4]\n" +
		"input %table : f32[8,4]\ninput %small : bf16[8,4]\ninput %list : f32[8]\ninput %rows : i32[2]\n"
	for _, tc := range []struct{ name, before, after, remarks string }{
		{"fits",
			"%0 = gather_rows %table, %rows : f32[2,4] loc(\"e\")\n%1 = add %x, %0 : f32[2,4] loc(\"e\")\noutput z = %1\n",
			"%0 = my.add_row %x, %table, %rows : f32[2,4] loc(\"e\")\noutput z = %0\n",
			"applied: fuse-add-row @g e: add: as my.add_row\n"},
		{"a broadcast operand is not what the op takes",
			"%0 = gather_rows %table, %rows : f32[2,4] loc(\"e\")\n%1 = add %one, %0 : f32[2,4] loc(\"e\")\noutput z = %1\n",
			"",
			"missed: fuse-add-row @g e: add: an operand is broadcast\n"},
		{"nor are single numbers",
			"%0 = gather_rows %list, %rows : f32[2] loc(\"e\")\n%1 = add %v, %0 : f32[2] loc(\"e\")\noutput z = %1\n",
			"",
			"missed: fuse-add-row @g e: add: what is gathered is no matrix\n"},
		{"the row itself is used too",
			"%0 = gather_rows %table, %rows : f32[2,4] loc(\"e\")\n%1 = add %x, %0 : f32[2,4] loc(\"e\")\noutput row = %0\noutput z = %1\n",
			"",
			"missed: fuse-add-row @g e: add: result y of gather_rows at e has another use, an output or update of the graph\n"},
		{"another format",
			"%0 = gather_rows %small, %rows : bf16[2,4] loc(\"e\")\n%1 = add %h, %0 : bf16[2,4] loc(\"e\")\noutput z = %1\n",
			"", ""},
		{"nothing was gathered",
			"%0 = add %x, %x : f32[2,4] loc(\"e\")\noutput z = %0\n",
			"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := parse(t, inputs+tc.before)
			m := apply(t, "fuse-add-row", before)
			want := inputs + tc.after
			if tc.after == "" {
				want = ir.Text(before)
			}
			if got := ir.Text(m.Entries[0]); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			if got := said(m); got != tc.remarks {
				t.Errorf("remarks %q, want %q", got, tc.remarks)
			}
		})
	}
}

// The compressors of the model add their positions so, once in a layer, twice in one
// with an indexer; no other place looks like it.
func TestFuseModel(t *testing.T) {
	m := apply(t, "fuse-add-row", tiny(t)...)
	for _, g := range m.Entries {
		got := map[string]int{}
		for _, op := range g.Ops {
			if op.Def == addRow {
				got[op.Loc]++
			}
		}
		want := map[string]int{"layers.2.attn": 2, "layers.3.attn": 1, "layers.4.attn": 2, "layers.5.attn": 1}
		if g.Name == string(dsv4.Draft) {
			want = map[string]int{} // the MTP block has no compressor
		}
		if !maps.Equal(got, want) {
			t.Errorf("@%s: my.add_row at %v, want %v", g.Name, got, want)
		}
	}
	if text := said(m); strings.Contains(text, "missed") {
		t.Error(text)
	}
}

// Operands that the op does not take are refused where they are given.
func TestOpRefuses(t *testing.T) {
	for _, types := range [][3]string{
		{"bf16[2,4]", "f32[8,4]", "i32[2]"}, {"f32[2,4]", "bf16[8,4]", "i32[2]"}, {"f32[2,4]", "f32[8,3]", "i32[2]"},
		{"f32[2,4]", "f32[8,4]", "i32[3]"}, {"f32[2,4]", "f32[8,4]", "i64[2]"}, {"f32[4]", "f32[8,4]", "i32[2]"}, {"f32[2,4]", "f32[8]", "i32[2]"},
	} {
		_, err := ir.ParseOne("g.kir", fmt.Sprintf("graph @g\ninput %%x : %s\ninput %%t : %s\ninput %%r : %s\n%%0 = my.add_row %%x, %%t, %%r : f32[2,4]\noutput z = %%0\n", types[0], types[1], types[2]))
		if err == nil || !strings.Contains(err.Error(), "want f32[T,D], f32[N,D] and i32[T]") {
			t.Errorf("%v: error %v", types, err)
		}
	}
}
