//go:build long

package emu

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	updateMutants = flag.Bool("update-mutants", false, "write docs/mutants.md")
	mutantsOfKind = flag.Int("mutants", 40, "try a sample of so many mutants of each kind; 0 is all of them, which takes hours")
)

// TestMutantsLong tries all mutants, or a larger sample, and keeps the result in
// docs/mutants.md.
func TestMutantsLong(t *testing.T) {
	// 37 rows are no whole number of a matrix instruction's tiles, 16 are one.
	list := subjects(t, 37, 16)
	unmutated(t, list)
	all := allMutants(list)
	made := len(all)
	extent := "all"
	if *mutantsOfKind > 0 {
		all = sampled(all, *mutantsOfKind, 1)
		extent = fmt.Sprintf("up to %d of each kind, chosen at random with a seed among those whose instruction is executed", *mutantsOfKind)
	}
	found := tryAll(all)
	s := scoresOf(found)
	s.check(t)
	text := report(found, s, len(list), made, extent)
	if !*updateMutants {
		t.Log(text)
		return
	}
	const doc = "../../docs/mutants.md"
	old, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(old), generated)
	if !ok {
		t.Fatalf("%s has no line %q", doc, generated)
	}
	if err := os.WriteFile(doc, []byte(intro+generated+"\n"+text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// generated stands before the part of docs/mutants.md that the test writes.
const generated = "## Result\n"

func report(found []tried, s scores, kernels, made int, extent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d kernels, %d mutants; tried: %s.\n\n%s\n", kernels, made, extent, s.table())
	b.WriteString("## Not noticed\n\n| kind | mutant |\n|---|---|\n")
	for _, r := range found {
		if r.outcome == survived {
			fmt.Fprintf(&b, "| %s | `%s` |\n", r.kind.name, strings.ReplaceAll(r.String(), "|", "\\|"))
		}
	}
	b.WriteString("\n## Explained by hand\n\n| kind | mutants | reason |\n|---|--:|---|\n")
	for _, e := range explanations() {
		n := len(slices.DeleteFunc(slices.Clone(found), func(r tried) bool {
			return r.outcome != explained || r.kind.name != e.kind || !e.match.MatchString(r.String())
		}))
		fmt.Fprintf(&b, "| %s | %d | %s |\n", e.kind, n, e.reason)
	}
	return b.String()
}
