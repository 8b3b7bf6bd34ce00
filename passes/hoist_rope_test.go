package passes

import (
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// In every model and entry, rows of rope tables are gathered once per step for
// each plan and position vector: at the tokens for both plans, and by the second
// at the block starts of each ratio. No other pass is needed for that.
func TestHoistRopeOfTheModels(t *testing.T) {
	for _, dir := range []string{tinyDir, "../testdata/configs/flash", "../testdata/configs/pro"} {
		m := moduleOf(t, dir)
		m.Config.Only = []string{"hoist-rope"}
		if err := Run(m); err != nil {
			t.Fatal(err)
		}
		cfg, err := dsv4.LoadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		tables := ropeTables(m.Pack)
		for _, g := range m.Entries {
			ratios := cfg.Ratios[:cfg.Layers]
			if g.Name == string(dsv4.Draft) {
				ratios = cfg.Ratios[cfg.Layers:]
			}
			want := 0
			for plan, vectors := range map[bool][]int{false: {0}, true: {0, 4, 128}} {
				for _, r := range vectors {
					if slices.ContainsFunc(ratios, func(n int) bool { return n > 0 == plan && (r == 0 || n == r) }) {
						want += 2 // cos and sin
					}
				}
			}
			got := 0
			for i, op := range g.Ops {
				isRope := op.Def.Name == "gather_rows" && op.Args[0].Kind == ir.WeightValue && tables[op.Args[0].Name] != ""
				if isRope {
					got++
				}
				if starts := op.Def.Name == "group_start"; (isRope || starts) && (op.Loc != ropeLoc || i >= 2*want) {
					t.Errorf("%s @%s: %s is op %d, at %s", dir, g.Name, op.Def.Name, i, op.Loc)
				}
			}
			if got != want || want == 0 {
				t.Errorf("%s @%s: %d gathers of rope tables, want %d", dir, g.Name, got, want)
			}
		}
	}
}
