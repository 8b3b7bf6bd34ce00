package emu

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Extents whose products do not fit an int are refused, not wrapped around.
func TestLaunchExtents(t *testing.T) {
	k := snippet(t, "gfx950")
	for _, c := range []struct {
		name        string
		grid, block [3]int
		want        string
	}{
		{"no group", [3]int{1, 0, 1}, [3]int{64, 1, 1}, "every extent must be at least 1"},
		{"work-items in a row", [3]int{1 << 30, 1, 1}, [3]int{64, 1, 1}, "more than 32 bits can count"},
		{"work-groups", [3]int{1 << 22, 1 << 21, 1 << 21}, [3]int{1, 1, 1}, "more work-groups than 63 bits can count"},
		{"work-items of a group", [3]int{1, 1, 1}, [3]int{1 << 22, 1 << 21, 1 << 21}, "more work-items than the 1024"},
	} {
		_, err := k.Run(t.Context(), Launch{Grid: c.grid, Block: c.block, Memory: &Space{}})
		if misfit := (*LaunchError)(nil); !errors.As(err, &misfit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want a LaunchError with %q", c.name, err, c.want)
		}
	}
}

// A launch of very many short groups ends when it is told to.
func TestCancelShortGroups(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := snippet(t, "gfx950").Run(ctx, Launch{Grid: [3]int{1 << 20, 1 << 20, 1 << 20}, Block: [3]int{1, 1, 1}, Memory: &Space{}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
}
