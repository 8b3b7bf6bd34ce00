//go:build unix

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is the kiln command as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = []string{reexec + "=1", onRef}
	return cmd
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return 0
}

// The whole of Main: exit codes, the two outputs, and a bound on memory, which
// is that of a process and not of a test binary with many models behind it.
func TestProcess(t *testing.T) {
	var stdout, stderr bytes.Buffer
	cmd := process(t, "run", "--model", tinyModel, "--prompt", "func (b *Buffer) ", "--max-new-tokens", "16")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if code := exitCode(t, cmd.Run()); code != exitOK || stdout.Len() == 0 {
		t.Fatalf("exit code %d, standard output %q, standard error %q", code, stdout.String(), stderr.String())
	}
	m := regexp.MustCompile(`\| peak memory (\d+) MB\n$`).FindStringSubmatch(stderr.String())
	if m == nil {
		t.Fatalf("standard error %q does not end in the peak memory", stderr.String())
	}
	// The checkpoint has 11 MB.
	if mb, err := strconv.Atoi(m[1]); err != nil || mb < 11 || mb > 400 && !raceDetector {
		t.Errorf("peak memory %s MB, want 11..400", m[1])
	}

	stderr.Reset()
	cmd = process(t, "dump", "--model", tinyModel)
	cmd.Stderr = &stderr
	if code := exitCode(t, cmd.Run()); code != exitUsage || stderr.String() != "kiln: dump needs --entry\n  try: "+filepath.Base(cmd.Path)+" dump --help\n" {
		t.Errorf("exit code %d, standard error %q", code, stderr.String())
	}
}

// An interrupt ends a command that waits for input.
func TestProcessInterrupt(t *testing.T) {
	cmd := process(t, "tokenize", "--model", tinyModel)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds: once it is written, the command reads.
	if _, err := io.WriteString(in, strings.Repeat("a ", 1<<17)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != exitFailed || stderr.String() != "kiln: interrupted\n" {
		t.Errorf("exit code %d, standard error %q, want 1 and that it was interrupted", code, stderr.String())
	}
}

// A reader that has had enough ends the command, as it does others.
func TestProcessClosedPipe(t *testing.T) {
	cmd := process(t, "run", "--model", tinyModel, "--prompt-ids", "0", "--ignore-eos", "--max-new-tokens", "4000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("%v; standard error %q", err, stderr.String())
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err == nil || strings.Contains(stderr.String(), "panic") {
			t.Errorf("error %v, standard error %q", err, stderr.String())
		}
	case <-time.After(30 * time.Second):
		t.Error("the command goes on without a reader")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// make run fetches LLVM for every device that needs one, builds first, and ends
// with what to try.
func TestMakeRun(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	for _, tc := range []struct {
		args string
		want []string // in this order
		none string
	}{
		{"run", []string{"go build ", "get-llvm.sh --quiet '.toolchain/llvm'", "--max-new-tokens 96\n", "next.sh '' ''"}, "--device"},
		{"run DEVICE=host N=3", []string{"go build ", "get-llvm.sh ", "--max-new-tokens 3 --device host\n", "next.sh 'host' ''"}, "--llvm"},
		{"run DEVICE=ref", []string{"go build ", "--device ref\n", "next.sh 'ref' ''"}, "get-llvm"},
		{"run TOOLCHAIN=none", []string{"go build ", "--max-new-tokens 96\n"}, "get-llvm"},
		{"run TOOLCHAIN=/x", []string{"get-llvm.sh --quiet '/x'", "--llvm '/x'\n", "next.sh '' '/x'"}, "--device"},
	} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n", "-C", "../../.."}, strings.Fields(tc.args)...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // without the variables of a make that runs the tests
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		rest := string(out)
		for _, w := range tc.want {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("make %s: no %q, or out of order, in\n%s", tc.args, w, out)
				break
			}
			rest = after
		}
		if strings.Contains(string(out), tc.none) {
			t.Errorf("make %s: %q in\n%s", tc.args, tc.none, out)
		}
	}
}
