package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The numbers of launches in README.md and docs/passes.md are what explain prints.
func TestLaunchesInDocs(t *testing.T) {
	steps := func(target string, more ...string) (x explanation) {
		kiln(t, append([]string{"explain", "--model", flashConfig, "--target", target, "--json"}, more...)...).decode(t, &x)
		return x
	}
	docs := map[string]string{}
	for _, file := range []string{"README.md", "docs/passes.md"} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		docs[file] = string(text)
	}
	says := func(file, text string) {
		t.Helper()
		if !strings.Contains(docs[file], text) {
			t.Errorf("%s lacks what explain says: %s", file, text)
		}
	}
	passes := "docs/passes.md"
	var all, apart []explanation // by target
	for _, c := range []struct{ target, row string }{
		{"gfx950", "gfx942 and gfx950"}, {"sm_90", "sm_90"}, {"x86-64-v3", "the host"},
	} {
		for _, entry := range []string{"decode", "draft"} {
			with, without := steps(c.target, "--entry", entry), steps(c.target, "--entry", entry, "--disable-pass", "fuse-hc")
			says(passes, fmt.Sprintf("| %s step, %s | %d | %d |", entry, c.row, without.Total.After.Launches, with.Total.After.Launches))
			if entry == "decode" {
				all, apart = append(all, with), append(apart, steps(c.target, "--disable-pass", "join-launches"))
			}
		}
	}
	amd, nvidia, host := all[0].Total, all[1].Total, all[2].Total
	says(passes, fmt.Sprintf("On gfx942 and gfx950 the step is %d launches with the required passes, %d with all but `join-launches` and %d with all; on sm_90 %d, %d and %d:",
		amd.Before.Launches, apart[0].Total.After.Launches, amd.After.Launches, nvidia.Before.Launches, apart[1].Total.After.Launches, nvidia.After.Launches))
	says(passes, fmt.Sprintf("The step: %d launches, ", host.Before.Launches))
	says("README.md", fmt.Sprintf("%d launches of a Flash decode step for %d, every bit the same; on sm_90 %d for %d,",
		host.After.Launches, host.Before.Launches, nvidia.After.Launches, nvidia.Before.Launches))

	// In the middle of the model, of ratio 0, 4 and 128.
	middle := func(x *explanation, launches func(*layerKind) int) []any {
		var list []any
		for _, name := range []int{1, 4, 5} {
			for i := range x.Kinds {
				if k := &x.Kinds[i]; len(k.Layers) > 0 && k.Layers[0] == name {
					list = append(list, launches(k))
				}
			}
		}
		return list
	}
	before := func(k *layerKind) int { return k.Cost.Before.Launches }
	after := func(k *layerKind) int { return k.Cost.After.Launches }
	says(passes, fmt.Sprintf("its layers are %d, %d and %d launches, and with all but", middle(&all[1], before)...))
	says(passes, fmt.Sprintf("with all but `join-launches` %d, %d and %d. A layer", middle(&apart[1], after)...))
	says(passes, fmt.Sprintf("a layer of ratio 0, 4 and 128 is %d, %d and %d launches in the middle", middle(&all[1], after)...))
	says(passes, fmt.Sprintf("| **total** | **%d** | **%d** | **%d** |", middle(&all[2], before)...))
	says(passes, fmt.Sprintf("| join-launches: nothing on the host | %d | %d | %d | %d |", append(middle(&all[2], after), host.After.Launches)...))
}
