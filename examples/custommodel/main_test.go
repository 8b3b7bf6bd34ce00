package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/engine"
)

var numbers = regexp.MustCompile(`\d[\d.]*(e[-+]\d+)?`)

// The program prints what README.md says, but for the numbers.
func TestRun(t *testing.T) {
	native(t, "host") // skips
	dir := filepath.Join(t.TempDir(), "m.kiln")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-o", dir}, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.ReadManifest(dir); err != nil {
		t.Error(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	mask := func(s string) string { return numbers.ReplaceAllString(unindent(s), "#") }
	if !strings.Contains(mask(string(readme)), mask(out.String())) {
		t.Errorf("README.md does not show this output:\n%s", out.String())
	}
}

func TestRunErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-tokens", "0"}, "at least 1 token"},
		{[]string{"-prompt", ""}, "want a prompt"},
		{[]string{"-tokens", "60"}, "no more than 64 positions"},
		{[]string{"more"}, `unexpected argument "more"`},
		{[]string{"-llvm", t.TempDir()}, "make toolchain"},
	} {
		if err := run(t.Context(), tc.args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want one with %q", tc.args, err, tc.want)
		}
	}
}

// A device that computes something else is reported: here, other weights.
func TestCompareReports(t *testing.T) {
	entries, err := graphs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	other, err := engine.NewRef(entries, nil, weights+1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = compare(&out, other, evaluator(t), "ab", 1)
	if err == nil || !strings.Contains(err.Error(), "position 1: logits of ref and ref differ by") || out.Len() > 0 {
		t.Errorf("error %v, output %q", err, out.String())
	}
	if err := compare(&out, evaluator(t), evaluator(t), "ab", 3); err != nil || !strings.Contains(out.String(), "at most 0 of the largest") {
		t.Errorf("the same: error %v, output %q", err, out.String())
	}
}

// -print needs no LLVM, and its text is a graph.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-print"}, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := ir.Parse("printed", out.String()); err != nil {
		t.Error(err)
	}
}

// What the tutorial quotes stands in the program, line for line.
func TestTutorial(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	source := ""
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source += "\n" + unindent(string(text))
	}
	quotes := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(quotes) < 5 {
		t.Errorf("README.md has %d excerpts only", len(quotes))
	}
	for _, q := range quotes {
		if !strings.Contains(source, "\n"+unindent(q[1])) {
			t.Errorf("not in the program:\n%s", q[1])
		}
	}
}

// unindent takes the indentation off every line.
func unindent(s string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(s, "")
}
