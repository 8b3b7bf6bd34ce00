package passes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/weights"
)

// Whichever passes run, and in whatever order each graph's ops stand before them,
// outputs and pools of every entry have the bits of the graphs as built, and the
// entries agree about the weights that are joined.
func TestConfigsKeepEveryBit(t *testing.T) {
	file, err := weights.Open(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := runEntries(t, tinyModule(t), file)
	configs := []Config{{Shuffle: 7}, {Shuffle: 8, Disable: []string{"cse"}}}
	for _, p := range Table {
		if p.On == Graphs && !p.Required && !p.Off && p.Name != "cse" && p.Name != "dce" {
			configs = append(configs, Config{Only: []string{p.Name}})
		}
	}
	for _, cfg := range configs {
		t.Run(cfg.Key(), func(t *testing.T) {
			m := tinyModule(t)
			m.Config = cfg
			if err := Run(m); err != nil {
				t.Fatal(err)
			}
			got := runEntries(t, m, file)
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if !slices.EqualFunc(want[name], got[name], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
					t.Errorf("%s differs", name)
				}
			}
			if cfg.Shuffle != 0 {
				if diff := cmp.Diff(joinedWeights(t, Config{}), joinedWeights(t, cfg)); diff != "" {
					t.Errorf("joined weights, -in order +shuffled:\n%s", diff)
				}
			}
		})
	}
}

// joinedWeights are the packed weights that have several of the model's in them.
func joinedWeights(t *testing.T, cfg Config) (names []string) {
	t.Helper()
	m := tinyModule(t)
	m.Config = cfg
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	for _, o := range m.Pack.Outputs {
		if strings.Contains(o.Name, ".and.") {
			names = append(names, fmt.Sprint(o.Name, " ", o.Value.Type))
		}
	}
	slices.Sort(names)
	return names
}
