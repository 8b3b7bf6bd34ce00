//go:build long

package kiln_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// sockets are the functions that every connection goes through.
var sockets = regexp.MustCompile(`(?m) [tT] (net\.socket|net\.\(\*sysDialer\)\S*|(syscall|golang\.org/x/sys/unix)\.([sS]ocket|[cC]onnect))$`)

// The command as it is released has no function that makes a socket: the linker leaves
// out what nothing reaches. A program that dials has them, so that the test would see
// one.
func TestNoSocketIsLinked(t *testing.T) {
	build := func(pkg string) string {
		out := filepath.Join(t.TempDir(), "program")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, pkg)
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", out).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(symbols)
	}
	if found := sockets.FindAllString(build("./cmd/kiln"), -1); found != nil {
		t.Errorf("the command has %q", found)
	}
	if found := sockets.FindAllString(build("./testdata/dials"), -1); len(found) < 3 {
		t.Errorf("a program that dials has %q only", found)
	}
}
