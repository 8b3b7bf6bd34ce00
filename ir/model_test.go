package ir_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// modelGraphs builds the tiny model's graphs, the largest texts at hand.
func modelGraphs(t testing.TB) []*ir.Graph {
	t.Helper()
	c, err := dsv4.LoadConfig("../testdata/tiny-dsv4")
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

// reread parses what g prints and returns the graph.
func reread(t *testing.T, g *ir.Graph) *ir.Graph {
	t.Helper()
	text := ir.Text(g)
	back, err := ir.ParseOne("g.kir", text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, ir.Text(back)); diff != "" {
		t.Fatalf("graph @%s reads back as something else, -printed +again:\n%s", g.Name, diff)
	}
	return back
}

// A real model's graphs go through everything: text, expansion, binding, in any
// order.
func TestModelGraphs(t *testing.T) {
	again := modelGraphs(t)
	for i, g := range modelGraphs(t) {
		t.Run(g.Name, func(t *testing.T) {
			if diff := cmp.Diff(ir.Text(g), ir.Text(again[i])); diff != "" {
				t.Fatalf("building twice gives two graphs:\n%s", diff)
			}
			values := map[string]int{}
			for j, s := range g.Syms {
				values[s] = 2 + j
			}
			g = reread(t, g)
			e, err := ir.Expand(g)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range e.Ops {
				if !op.Def.Primitive() {
					t.Fatalf("%s is left", op.Def.Name)
				}
			}
			b, err := ir.Bind(g, values)
			if err != nil {
				t.Fatal(err)
			}
			eb, err := ir.Expand(reread(t, b))
			if err != nil {
				t.Fatal(err)
			}
			be, err := ir.Bind(reread(t, e), values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ir.Text(eb), ir.Text(be)); diff != "" {
				t.Errorf("-expanded after bind +bound after expand:\n%s", diff)
			}
			if len(b.Syms) != 0 || len(b.Lets) != 0 {
				t.Errorf("symbols %v and %v are left", b.Syms, b.Lets)
			}
		})
	}
}
