package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/cmd/kiln/cli"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/host"
)

const tinyModel = "../../testdata/tiny-dsv4"

// actAs makes the test binary a command: custompass, or kiln as it is.
const actAs = "CUSTOMPASS_TEST_IS"

func TestMain(m *testing.M) {
	switch os.Getenv(actAs) {
	case "custompass":
		main()
	case "kiln":
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// withLLVM adds the flag that finds an LLVM, or skips a test that needs one.
func withLLVM(t *testing.T, args ...string) []string {
	t.Helper()
	dir := "../../.toolchain/llvm"
	if _, err := os.Stat(dir); err == nil {
		return append(args, "--llvm", dir)
	}
	if _, err := llvm.Find(t.Context(), llvm.FindOptions{}); err != nil {
		t.Skipf("this test compiles: %v", err)
	}
	return args
}

// command runs a program and returns its standard output.
func command(t *testing.T, environ []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = environ
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, stderr.String())
	}
	return string(out)
}

// plain is an environment without the KILN_ variables of whoever runs the tests.
func plain(more ...string) []string { return append(more, "PATH="+os.Getenv("PATH")) }

// as runs one of the two commands.
func as(t *testing.T, name string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return command(t, plain(actAs+"="+name), self, args...)
}

// The fusion changes no bit of any logit, evaluated or compiled.
func TestSameLogits(t *testing.T) {
	for _, device := range []string{"ref", "host"} {
		t.Run(device, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"logits", "--model", tinyModel, "--ids", "100,200,300,400,500,600,700", "--prefill", "5", "--mtp", "--device", device}
			if device == "host" {
				if _, err := host.Target(); err != nil {
					t.Skip(err)
				}
				args = withLLVM(t, append(args, "--cache-dir", filepath.Join(dir, "cache"))...)
			}
			var made [2][]byte
			for i, name := range []string{"kiln", "custompass"} {
				out := filepath.Join(dir, name+".safetensors")
				as(t, name, append(args, "--out", out)...)
				var err error
				if made[i], err = os.ReadFile(out); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(made[0], made[1]) {
				t.Error("logits differ")
			}
		})
	}
}

// The passes are part of every command of the program.
func TestDump(t *testing.T) {
	args := []string{"dump", "--model", tinyModel, "--entry", "decode"}
	if text := as(t, "kiln", args...); strings.Contains(text, "my.add_row") {
		t.Error("kiln itself has the fusion")
	}
	if text := as(t, "custompass", args...); strings.Count(text, " = my.add_row ") != 6 {
		t.Errorf("want my.add_row six times:\n%s", text)
	}
}

// What the tutorial quotes stands in the program, line for line, or is printed by
// one of the two commands' dump.
func TestTutorial(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source := ""
	for _, name := range []string{"kiln", "custompass"} {
		source += "\n" + masked(as(t, name, "dump", "--model", tinyModel, "--entry", "decode"))
	}
	for _, pattern := range []string{"*.go", "mypasses/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source += "\n" + masked(string(text))
		}
	}
	quotes := regexp.MustCompile("(?s)```(?:go|kir)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(quotes) < 6 {
		t.Errorf("README.md has %d excerpts only", len(quotes))
	}
	for _, q := range quotes {
		if !strings.Contains(source, "\n"+masked(q[1])) {
			t.Errorf("not in the program:\n%s", q[1])
		}
	}
}

// masked takes the indentation off every line, and the numbers off the values of a
// graph: another pass before them gives them others.
func masked(s string) string {
	s = regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(s, "")
	return regexp.MustCompile(`%\d+`).ReplaceAllString(s, "%N")
}
