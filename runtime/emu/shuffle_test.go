package emu

import (
	"math"
	"slices"
	"testing"
)

func TestShuffled(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 6, 30, 97, 1000} {
		for seed := range uint64(5) {
			order, again := shuffled(n, seed), shuffled(n, seed)
			var got []int64
			moved := false
			for i := range n {
				got = append(got, order(i))
				moved = moved || order(i) != i
				if order(i) != again(i) {
					t.Fatalf("n %d, seed %d: not the same twice", n, seed)
				}
			}
			slices.Sort(got)
			for i, x := range got {
				if x != int64(i) {
					t.Fatalf("n %d, seed %d: no permutation: %v", n, seed, got)
				}
			}
			if seed == 0 && moved {
				t.Errorf("n %d: seed 0 changes the order", n)
			}
			if seed == 3 && n >= 30 && !moved {
				t.Errorf("n %d, seed %d: the order stays", n, seed)
			}
		}
	}
	order := shuffled(math.MaxInt64, 1)
	for _, i := range []int64{0, 1, math.MaxInt64 - 1} {
		if x := order(i); x < 0 {
			t.Errorf("index %d of a huge grid: %d", i, x)
		}
	}
}

func TestParseChecks(t *testing.T) {
	for list, want := range map[string]Checks{"memory": CheckMemory, "race,uninit": CheckRace | CheckUninit, "all": CheckAll, "waitcnt,all": CheckAll} {
		if got, err := ParseChecks(list); got != want || err != nil {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "address", "memory, race", "memory,"} {
		if got, err := ParseChecks(list); err == nil {
			t.Errorf("%q: %v, want an error", list, got)
		}
	}
	if got := (CheckRace | CheckWaitcnt).String(); got != "race,waitcnt" {
		t.Errorf("text %q", got)
	}
}
