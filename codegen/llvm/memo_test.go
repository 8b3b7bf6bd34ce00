//go:build linux

package llvm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type mapMemo map[string][]byte

func (m mapMemo) Get(key string) ([]byte, bool)     { body, ok := m[key]; return body, ok }
func (m mapMemo) Put(key string, body []byte) error { m[key] = body; return nil }

// fakeUnpacked writes what scripts/get-llvm.sh leaves of unpacked packages: wrappers and
// the programs behind them, which note each run in a file.
func fakeUnpacked(t *testing.T, dir, version string) (ran func() int) {
	t.Helper()
	fakeTools(t, filepath.Join(dir, "root", "bin"), version, tools("")...)
	log := filepath.Join(dir, "log")
	for _, name := range tools("") {
		path := filepath.Join(dir, "bin", name)
		text := fmt.Sprintf("#!/bin/sh\n# Written by get-llvm.sh: %s\nr=${0%%/*}/..\necho >>'%s'\nexec \"$r/root/bin/%s\" \"$@\"\n", name, log, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func() int {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
}

// TestMemo: programs are asked once, and again when any of their files is another.
func TestMemo(t *testing.T) {
	dir, memo := t.TempDir(), mapMemo{}
	ran := fakeUnpacked(t, dir, "22.1.8")
	// A line of the log, so that it is there.
	find := func(want int, version string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "log"), []byte("\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		tc, err := Find(t.Context(), FindOptions{Dir: dir, Memo: memo})
		if err != nil {
			t.Fatal(err)
		}
		if n := ran() - 1; n != want || tc.Version != version {
			t.Errorf("%d programs ran for version %s, want %d for %s", n, tc.Version, want, version)
		}
	}
	find(4, "22.1.8")
	find(4, "22.1.8") // the files are too young
	defer func(was time.Duration) { settled = was }(settled)
	settled = 0
	find(4, "22.1.8")
	find(0, "22.1.8")
	fakeTools(t, filepath.Join(dir, "root", "bin"), "23.1.0", tools("")...)
	find(4, "23.1.0")
	find(0, "23.1.0")
	for _, name := range []string{"bin/llc", "root/bin/llc", "root/lib/libLLVM.so.23"} {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
		tc, err := Find(t.Context(), FindOptions{Dir: dir, Memo: memo})
		if err != nil || tc.Version != "23.1.0" {
			t.Fatal(tc, err)
		}
		if n := ran(); n == 0 {
			t.Errorf("nothing was asked again when %s was written", name)
		}
		find(0, "23.1.0")
	}
	// What another program decides is asked each time.
	for _, name := range tools("") {
		path := filepath.Join(dir, "bin", name)
		text := fmt.Sprintf("#!/bin/sh\necho >>'%s'\nexec '%s' \"$@\"\n", filepath.Join(dir, "log"), filepath.Join(dir, "root", "bin", name))
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	find(4, "23.1.0")
	find(4, "23.1.0")
}

// TestNewLater: no worker before the first job, and an end before or after it.
func TestNewLater(t *testing.T) {
	tc, err := Find(t.Context(), FindOptions{})
	if err != nil {
		t.Skipf("no LLVM: %v", err)
	}
	c := NewLater(tc, Options{})
	job := Job{Name: "f", IR: []byte("define i32 @f() {\n  ret i32 1\n}\n"), Triple: "x86_64-unknown-linux-gnu", CPU: "x86-64-v2"}
	for range 2 {
		if _, err := c.Compile(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if mode, why := c.Mode(); mode == Auto {
		t.Errorf("mode %q: %s", mode, why)
	}
	unused := NewLater(tc, Options{})
	for _, c := range []Compiler{c, unused} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Compile(t.Context(), job); err == nil {
			t.Error("a closed compiler compiles")
		}
	}
}
