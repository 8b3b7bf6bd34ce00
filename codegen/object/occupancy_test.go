package object

import (
	"fmt"
	"strings"
	"testing"
)

// LLVM's own answers; how they were made stands in the file.
func TestOccupancy(t *testing.T) {
	rows := 0
	chips := map[string]bool{}
	for line := range strings.Lines(string(readTestFile(t, "testdata/occupancy.txt"))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var chip string
		var r Resources
		var want int
		if _, err := fmt.Sscan(line, &chip, &r.VGPRs, &r.SGPRs, &r.LDSBytes, &r.Workgroup, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got, ok := Occupancy(chip, r); !ok || got != want {
			t.Errorf("%s %+v: %d, %t, want %d", chip, r, got, ok, want)
		}
		rows++
		chips[chip] = true
	}
	if rows < 500 || len(chips) != 3 {
		t.Errorf("%d rows of %d chips", rows, len(chips))
	}
}

func TestOccupancyLimits(t *testing.T) {
	good := Resources{VGPRs: 64, SGPRs: 32, LDSBytes: 16384, Workgroup: 256}
	for _, tc := range []struct {
		chip   string
		change func(*Resources)
		want   int // 0: not known
	}{
		{"gfx942", func(*Resources) {}, 4},
		{"gfx950", func(*Resources) {}, 8},
		{"gfx942", func(r *Resources) { r.VGPRs = 512 }, 1},
		{"gfx942", func(r *Resources) { r.VGPRs = 513 }, 0},
		{"gfx942", func(r *Resources) { r.LDSBytes = 65536 }, 1},
		{"gfx942", func(r *Resources) { r.LDSBytes = 65537 }, 0},
		{"gfx950", func(r *Resources) { r.LDSBytes = 163840 }, 1},
		{"gfx950", func(r *Resources) { r.LDSBytes = 163841 }, 0},
		{"gfx942", func(r *Resources) { r.Workgroup = 0 }, 0},
		{"gfx942", func(r *Resources) { r.Workgroup = 1 << 30 }, 0},
		{"gfx942", func(r *Resources) { r.VGPRs = -1 }, 0},
		{"gfx942", func(r *Resources) { r.SGPRs = -1 }, 0},
		{"gfx942", func(r *Resources) { r.LDSBytes = -1 }, 0},
		{"gfx908", func(*Resources) {}, 0},
		{"gfx1100", func(*Resources) {}, 0},
		{"", func(*Resources) {}, 0},
	} {
		r := good
		tc.change(&r)
		if got, ok := Occupancy(tc.chip, r); got != tc.want || ok != (tc.want > 0) {
			t.Errorf("%s %+v: %d, %t, want %d", tc.chip, r, got, ok, tc.want)
		}
	}
}
