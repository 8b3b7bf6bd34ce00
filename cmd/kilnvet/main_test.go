package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
)

func TestValid(t *testing.T) {
	if err := analysis.Validate(analyzers); err != nil {
		t.Error(err)
	}
}

// kilnvet runs by itself and below go vet.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "kilnvet")
	if out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, text := range map[string]string{
		"go.mod":       "module example.com/pass\n\ngo 1.26\n",
		"good/good.go": "package good\n",
		"bad/bad.go": `package bad

func names(m map[string]int) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

//kilnvet:ignore maporder
`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := []string{"bad.go:5:3: list is appended to", "bad.go:10:1: comment silences nothing: it gives no reason"}
	for _, tc := range []struct {
		args string
		code int
		want []string
	}{
		{"kilnvet ./good", 0, nil},
		{"kilnvet ./...", 3, found},
		{"kilnvet -walkmutate ./...", 0, nil},
		{"go vet -vettool=" + tool + " ./good", 0, nil},
		{"go vet -vettool=" + tool + " ./...", 1, found},
		{"go vet -vettool=" + tool + " -ignore=false ./...", 1, found[:1]},
		{"kilnvet --help", 0, []string{"kilnvet [flags] ./...", "maporder    report loops", "walkmutate  report changes", "ignore      check comments", "-fix"}},
		{"kilnvet help walkmutate", 0, []string{"walkmutate: report changes", "ir.NewBuilder"}},
		{"kilnvet -nosuch ./...", 2, []string{"flag provided but not defined: -nosuch"}},
	} {
		args := strings.Fields(strings.Replace(tc.args, "kilnvet ", tool+" ", 1))
		if args[0] == "go" {
			args = strings.Fields(tc.args)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != tc.code || tc.want == nil && out.Len() != 0 {
			t.Errorf("%s: exit code %d, want %d:\n%s", tc.args, code, tc.code, &out)
		}
		for _, want := range tc.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in:\n%s", tc.args, want, &out)
			}
		}
	}
}
