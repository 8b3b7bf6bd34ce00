package ir

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Texts do not depend on map order, on how often something was done, or on what
// was done to the graph before.
func TestDeterminism(t *testing.T) {
	texts := inputs(t, "roundtrip")
	for _, c := range inferCases(t) {
		if c.legal() {
			texts = append(texts, c.text())
		}
	}
	for _, text := range texts {
		graphs, err := Parse("t.kir", text)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range graphs {
			first := Text(g)
			values := map[string]int{}
			for i, s := range g.Syms {
				values[s] = 4 * (i + 1)
			}
			bound, expanded := "", ""
			for range 3 {
				// A fresh map has its own order.
				fresh := map[string]int{}
				for _, s := range slices.Sorted(maps.Keys(values)) {
					fresh[s] = values[s]
				}
				b := ""
				if bg, err := Bind(g, fresh); err != nil {
					b = err.Error() // some extent becomes 0
				} else {
					b = Text(bg)
				}
				e, err := Expand(g)
				if err != nil {
					t.Fatal(err)
				}
				if bound == "" {
					bound, expanded = b, Text(e)
				}
				for what, pair := range map[string][2]string{
					"printed":  {first, Text(g)},
					"bound":    {bound, b},
					"expanded": {expanded, Text(e)},
				} {
					if pair[0] != pair[1] {
						t.Fatalf("%s twice it differs:\n%s", what, cmp.Diff(pair[0], pair[1]))
					}
				}
			}
		}
	}
}

// Errors, too: of several unknown symbols the first by name is reported, of
// several breaches the first in the graph.
func TestErrorDeterminism(t *testing.T) {
	g := brokenGraph(t)
	for range 20 {
		_, err := Bind(g, map[string]int{"Z": 1, "U": 1, "X": 1, "T": 2})
		if want := "graph @g: bind U: no such symbol; the graph declares T"; err == nil || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
	g.Inputs[0].Name, g.Weights[0].Name, g.Ops[1].Args = "a b", "c d", nil
	first := Verify(g).Error()
	for range 20 {
		if diff := cmp.Diff(first, Verify(g).Error()); diff != "" {
			t.Fatal(diff)
		}
	}
}
