package target

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// Every element of A, B and D is in one lane, once.
func TestLaneMaps(t *testing.T) {
	for chip, list := range matrix {
		for i := range list {
			m := &list[i]
			t.Run(fmt.Sprintf("%s/%s %v %v", chip, m.Name, m.A, m.B), func(t *testing.T) {
				covers(t, "A", MatrixTile, m.K, m.PerLane(), m.ElementA)
				covers(t, "B", m.K, MatrixTile, m.PerLane(), m.ElementB)
				covers(t, "D", MatrixTile, MatrixTile, ResultRun, m.ElementD)
				if m.Scaled {
					covers(t, "scales", MatrixTile, m.K/ScaleBlock, 1, func(lane, _ int) (row, block int) {
						row, _ = m.ElementA(lane, 0)
						return row, m.ScaledK(lane) / ScaleBlock
					})
				}
			})
		}
	}
}

func covers(t *testing.T, what string, rows, cols, perLane int, place func(lane, e int) (row, col int)) {
	t.Helper()
	seen := map[[2]int]int{}
	for lane := range MatrixLanes {
		for e := range perLane {
			r, c := place(lane, e)
			if r < 0 || r >= rows || c < 0 || c >= cols {
				t.Fatalf("%s: element %d of lane %d is at (%d,%d), outside of %dx%d", what, e, lane, r, c, rows, cols)
			}
			seen[[2]int{r, c}]++
		}
	}
	if len(seen) != rows*cols || rows*cols != MatrixLanes*perLane {
		t.Errorf("%s: %d places of %d, from %d elements", what, len(seen), rows*cols, MatrixLanes*perLane)
	}
}

// Places that the sources of the table name.
func TestLaneMapEntries(t *testing.T) {
	lookup := func(chip string, a, b ir.DType, scaled bool) *MFMA {
		t.Helper()
		tg, err := Lookup(chip)
		if err != nil {
			t.Fatal(err)
		}
		m := tg.MFMA(a, b, scaled)
		if m == nil {
			t.Fatalf("%s has no instruction for %v and %v, scaled: %v", chip, a, b, scaled)
		}
		return m
	}
	for _, tc := range []struct {
		m            *MFMA
		lane, e      int
		row, k, rowD int // of A, and the row of D of element e%4
	}{
		{lookup("gfx942", ir.BF16, ir.BF16, false), 35, 3, 3, 11, 11},
		{lookup("gfx942", ir.F8E4M3FNUZ, ir.F8E4M3FNUZ, false), 63, 7, 15, 31, 15},
		{lookup("gfx950", ir.BF16, ir.BF16, false), 17, 5, 1, 13, 5},
		{lookup("gfx950:sramecc+", ir.F8E4M3, ir.F8E4M3, true), 16, 16, 0, 80, 4},
		{lookup("gfx950", ir.F4E2M1, ir.F8E4M3, true), 32, 16, 0, 80, 8},
	} {
		row, k := tc.m.ElementA(tc.lane, tc.e)
		rowD, _ := tc.m.ElementD(tc.lane, tc.e%ResultRun)
		if row != tc.row || k != tc.k || rowD != tc.rowD {
			t.Errorf("%s: element %d of lane %d is A[%d,%d], D[%d,]; want A[%d,%d], D[%d,]", tc.m.Name, tc.e, tc.lane, row, k, rowD, tc.row, tc.k, tc.rowD)
		}
	}
	for _, name := range []string{"sm_90", "x86-64-v3"} {
		tg, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := tg.MFMA(ir.BF16, ir.BF16, false); m != nil {
			t.Errorf("%s has %s", name, m.Name)
		}
	}
}
