package mypasses

import (
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

// said are the remarks, one a line.
func said(m *passes.Module) string {
	var b strings.Builder
	for _, r := range m.Remarks {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
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
	const inputs = "graph @g\ninput %x : f32[2,4]\ninput %y : bf16[2,4]\ninput %row : bf16[1,4]\n"
	for _, tc := range []struct{ name, before, after, remarks string }{
		{"fits",
			"%0 = cast %y {to = f32} : f32[2,4] loc(\"ffn\")\n%1 = add %x, %0 : f32[2,4] loc(\"ffn\")\n%2 = cast %1 {to = bf16} : bf16[2,4] loc(\"ffn\")\noutput z = %2\n",
			"%0 = my.add_round %x, %y : bf16[2,4] loc(\"ffn\")\noutput z = %0\n",
			"applied: fuse-add-round @g ffn: cast: as my.add_round\n"},
		{"a broadcast operand is not what the op takes",
			"%0 = cast %row {to = f32} : f32[1,4] loc(\"ffn\")\n%1 = add %x, %0 : f32[2,4] loc(\"ffn\")\n%2 = cast %1 {to = bf16} : bf16[2,4] loc(\"ffn\")\noutput z = %2\n",
			"",
			"missed: fuse-add-round @g ffn: cast: an operand is broadcast\n"},
		{"the sum itself is used too",
			"%0 = cast %y {to = f32} : f32[2,4] loc(\"ffn\")\n%1 = add %x, %0 : f32[2,4] loc(\"ffn\")\n%2 = cast %1 {to = bf16} : bf16[2,4] loc(\"ffn\")\noutput s = %1\noutput z = %2\n",
			"",
			"missed: fuse-add-round @g ffn: cast: result z of add at ffn has another use, an output or update of the graph\n"},
		{"rounded to another format",
			"%0 = cast %y {to = f32} : f32[2,4] loc(\"ffn\")\n%1 = add %x, %0 : f32[2,4] loc(\"ffn\")\n%2 = cast %1 {to = f16} : f16[2,4] loc(\"ffn\")\noutput z = %2\n",
			"", ""},
		{"nothing was widened",
			"%0 = add %x, %x : f32[2,4] loc(\"ffn\")\n%1 = cast %0 {to = bf16} : bf16[2,4] loc(\"ffn\")\noutput z = %1\n",
			"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := parse(t, inputs+tc.before)
			m := apply(t, "fuse-add-round", before)
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

// Every layer of the model has the sum once, and no other place looks like it.
func TestFuseModel(t *testing.T) {
	m := apply(t, "fuse-add-round", tiny(t)...)
	for _, g := range m.Entries {
		n := 0
		for _, op := range g.Ops {
			if op.Def == addRound {
				n++
			}
		}
		want := 6
		if g.Name == string(dsv4.Draft) {
			want = 1 // the MTP block
		}
		if n != want {
			t.Errorf("@%s: %d of my.add_round, want %d", g.Name, n, want)
		}
	}
	if text := said(m); strings.Contains(text, "missed") {
		t.Error(text)
	}
}

// Operands that the op does not take are refused where they are given.
func TestOpRefuses(t *testing.T) {
	for _, types := range []string{"f32[2], f32[2]", "bf16[2], bf16[2]", "f32[2], bf16[3]", "f32[2], bf16[2,1]"} {
		x, y, _ := strings.Cut(types, ", ")
		_, err := ir.ParseOne("g.kir", "graph @g\ninput %x : "+x+"\ninput %y : "+y+"\n%0 = my.add_round %x, %y : bf16[2]\noutput z = %0\n")
		if err == nil || !strings.Contains(err.Error(), "want f32 and bf16 of one shape") {
			t.Errorf("%s: error %v", types, err)
		}
	}
}
