package target

import "testing"

// Every element of A, B and D is in one lane, once.
func TestMMALaneMaps(t *testing.T) {
	const lanes = 32
	m := mustMMA(t, "sm_90")
	for _, tc := range []struct {
		what                string
		rows, cols, perLane int
		place               func(lane, e int) (row, col int)
	}{
		{"A", 16, m.K, 8, m.ElementA}, {"B", m.K, MMACols, 4, m.ElementB}, {"D", 16, MMACols, 4, m.ElementD},
	} {
		seen := map[[2]int]bool{}
		for lane := range lanes {
			for e := range tc.perLane {
				r, c := tc.place(lane, e)
				if r < 0 || r >= tc.rows || c < 0 || c >= tc.cols || seen[[2]int{r, c}] {
					t.Fatalf("%s: element %d of lane %d is at (%d,%d), outside or there already", tc.what, e, lane, r, c)
				}
				seen[[2]int{r, c}] = true
			}
		}
		if len(seen) != tc.rows*tc.cols {
			t.Errorf("%s: %d places of %d", tc.what, len(seen), tc.rows*tc.cols)
		}
	}
}

// Places as the PTX ISA gives them: with groupID = lane >> 2 and threadID_in_group =
// lane % 4, A's row is groupID for elements 0, 1, 4 and 5 and groupID + 8 for the
// others, and so on.
func TestMMALaneMapEntries(t *testing.T) {
	m := mustMMA(t, "sm_90")
	for _, tc := range []struct {
		what     string
		place    func(lane, e int) (row, col int)
		lane, e  int
		row, col int
	}{
		{"A", m.ElementA, 13, 1, 3, 3}, {"A", m.ElementA, 13, 2, 11, 2}, {"A", m.ElementA, 13, 4, 3, 10}, {"A", m.ElementA, 31, 7, 15, 15},
		{"B", m.ElementB, 13, 1, 3, 3}, {"B", m.ElementB, 13, 2, 10, 3}, {"D", m.ElementD, 13, 1, 3, 3}, {"D", m.ElementD, 13, 2, 11, 2},
	} {
		if row, col := tc.place(tc.lane, tc.e); row != tc.row || col != tc.col {
			t.Errorf("%s: element %d of lane %d is at (%d,%d), want (%d,%d)", tc.what, tc.e, tc.lane, row, col, tc.row, tc.col)
		}
	}
	for _, name := range []string{"gfx942", "gfx950", "x86-64-v3"} {
		tg, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := tg.MMA(); m != nil {
			t.Errorf("%s has %s", name, m.Name)
		}
	}
}

func mustMMA(t *testing.T, name string) *MMA {
	t.Helper()
	tg, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	if tg.MMA() == nil {
		t.Fatalf("%s has no matrix instruction of warps", name)
	}
	return tg.MMA()
}
