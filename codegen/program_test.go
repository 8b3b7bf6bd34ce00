package codegen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The digest is that of the program that runs, also when another build has taken its
// file's place: a copy of this test replaces itself and prints its digest.
func TestProgramReplaced(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if flag.Arg(0) == "replaced" {
		if err := os.Remove(self); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(self, []byte("another build"), 0o755); err != nil {
			t.Fatal(err)
		}
		sum, err := program()
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("digest " + sum + "\n")
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the file of a process by another name than its path")
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.test")
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestProgramReplaced$", "replaced")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	sum := sha256.Sum256(data)
	if want := "digest " + hex.EncodeToString(sum[:]) + "\n"; err != nil || !bytes.Contains(out, []byte(want)) {
		t.Errorf("%s (%v), want %s", out, err, want)
	}
}
