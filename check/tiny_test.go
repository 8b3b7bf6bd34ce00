package check

import (
	"strings"
	"testing"
)

// The tiny model's steps: with pages that are full and such that are not, and with
// more rows than requests.
var modelSteps = []struct {
	entry string
	bind  map[string]int
}{
	{"prefill", prefill},
	{"decode", decode},
	{"verify", map[string]int{"B": 2, "K": 2, "R": 2, "N": 3, "P": 2}},
	{"draft", map[string]int{"T": 5, "B": 2, "O": 3, "R": 2}},
}

// No pass changes a bit of the model's outputs and pools.
func TestPassesOfTheModel(t *testing.T) {
	for _, st := range modelSteps {
		results, breaches, err := Passes(t.Context(), subject(t, st.entry, st.bind))
		if err != nil {
			t.Fatalf("%s: %v", st.entry, err)
		}
		for _, b := range breaches {
			t.Errorf("%s: %s", st.entry, b)
		}
		changed := map[string]bool{}
		for _, r := range results {
			changed[r.Pass] = r.Changed
			if r.Changed && (r.Values == 0 || r.Identical != 1) {
				t.Errorf("%s: %s compared %d values, %g identical", st.entry, r.Pass, r.Values, r.Identical)
			}
		}
		if !changed["hoist-pack"] || !changed["bind"] || changed["fnuz-weights"] {
			t.Errorf("%s: passes that changed the graph: %v", st.entry, changed)
		}
	}
}

// Every op of the model is within its limit on the host.
func TestOpsOfTheModel(t *testing.T) {
	cfg := onHost(t)
	for _, st := range modelSteps[:2] {
		s := subject(t, st.entry, st.bind)
		s.Seeds = 2
		r, err := Ops(t.Context(), s, cfg)
		if err != nil {
			t.Fatalf("%s: %v", st.entry, err)
		}
		for _, b := range r.Breaches {
			t.Errorf("%s: %s", st.entry, b)
		}
		for _, o := range r.Ops {
			if !o.OK || o.Values == 0 || o.Refused > 0 || o.Sites < o.Shapes {
				t.Errorf("%s: %+v", st.entry, o)
			}
		}
		layers := []string{}
		for _, l := range r.Layers {
			layers = append(layers, l.Layer)
			if !(l.Cos < 1e-6) {
				t.Errorf("%s: %+v", st.entry, l)
			}
		}
		if got := strings.Join(layers, " "); got != "outside layers.0 layers.1 layers.2 layers.3 layers.4 layers.5" {
			t.Errorf("%s: layers %s", st.entry, got)
		}
		if r.Generated != "" || r.Decomposed != nil {
			t.Errorf("%s: note %q, decompositions %v", st.entry, r.Generated, r.Decomposed)
		}
	}
}
