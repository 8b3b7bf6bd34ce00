package driver_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// Without a build ID a library is told by the bytes of the file that is mapped, links
// followed.
func TestBuildOfFile(t *testing.T) {
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Kind: driver.CUDA, Devices: []drivertest.Device{{Name: "x", Arch: "sm_90"}}})
	check(t, err)
	link := filepath.Join(t.TempDir(), "libcuda.so.1")
	check(t, os.Symlink(fake.Path, link))
	data, err := os.ReadFile(fake.Path)
	check(t, err)
	l, err := driver.Open(driver.CUDA, driver.Options{Library: link})
	check(t, err)
	if got, want := must[string](t)(l.Build()), fmt.Sprintf("%x", sha256.Sum256(data)); got != want {
		t.Errorf("build %q, want %q", got, want)
	}
	// An update takes the file away while the library is loaded.
	check(t, os.Remove(fake.Path))
	gone := must[string](t)(l.Build())
	if again := must[string](t)(l.Build()); !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(gone) || again != gone {
		t.Errorf("without the file: build %q, then %q", gone, again)
	}
	check(t, fake.Close())
}

// The linker of Go writes a build ID, as others do.
func TestBuildID(t *testing.T) {
	self, err := os.Executable()
	check(t, err)
	file, err := os.Open(self)
	check(t, err)
	defer file.Close()
	if id := driver.BuildID(file); !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(id) {
		t.Errorf("build ID %q", id)
	}
	text, err := os.Open("build_test.go")
	check(t, err)
	defer text.Close()
	if id := driver.BuildID(text); id != "" {
		t.Errorf("a text has the build ID %q", id)
	}
}
