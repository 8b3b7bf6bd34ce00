package llvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Memo keeps, from one process to the next, what LLVM's programs say about themselves: it
// takes longer to ask them than all else that a compilation from the cache does. Keys are
// digests in hexadecimal. An entry that is not whole must not be found.
type Memo interface {
	Get(key string) ([]byte, bool)
	Put(key string, body []byte) error
}

// settled is how long a file must have been as it is before an answer about it is kept: a
// second change within the clock's resolution would not show in its times.
var settled = 2 * time.Second

// ask is what a program prints, from the memo if it holds the answer of the very same
// files.
func (tc *Toolchain) ask(ctx context.Context, name string, args ...string) (string, error) {
	if tc.memo == nil {
		return ask(ctx, name, args...)
	}
	files, newest, err := tc.identity(name)
	if err != nil || time.Since(newest) < settled {
		return ask(ctx, name, args...) // nothing would tell that the answer is another one
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "LLVM says %q\n%s", args, files))
	key := hex.EncodeToString(sum[:])
	if text, ok := tc.memo.Get(key); ok {
		return string(text), nil
	}
	text, err := ask(ctx, name, args...)
	if err == nil {
		err = tc.memo.Put(key, []byte(text))
	}
	return text, err
}

// wrapped is how a program of scripts/get-llvm.sh begins, and namedByWrapper what it names.
var (
	wrapped        = []byte("#!/bin/sh\n# Written by get-llvm.sh: ")
	namedByWrapper = regexp.MustCompile(`\$r/([^"$:]+)`)
)

// errUnknownProgram: another file than those which are looked at may decide what it says.
var errUnknownProgram = errors.New("neither an ELF file nor a wrapper of get-llvm.sh")

// identity describes the files that decide what a program says: where they lie, and what
// changes with every change to them. newest is the time of the last one.
func (tc *Toolchain) identity(name string) (text string, newest time.Time, err error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", newest, err
	}
	files := []string{real}
	head, err := readHead(real)
	switch {
	case err != nil:
		return "", newest, err
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		files = append(files, librariesIn(filepath.Join(filepath.Dir(real), "..", "lib"))...)
	case bytes.HasPrefix(head, wrapped):
		root := filepath.Join(filepath.Dir(real), "..")
		for _, m := range namedByWrapper.FindAllSubmatch(head, -1) {
			path := filepath.Join(root, string(m[1]))
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				files = append(files, librariesIn(path)...)
				continue
			}
			files = append(files, append(librariesIn(filepath.Join(filepath.Dir(path), "..", "lib")), path)...)
		}
	default:
		return "", newest, errUnknownProgram
	}
	if tc.LibLLVM != "" {
		files = append(files, tc.LibLLVM) // a bare name, which the loader finds somewhere, is an error
	}
	var b strings.Builder
	for _, path := range files {
		id, changed, err := fileIdentity(path)
		if err != nil {
			return "", newest, err
		}
		fmt.Fprintf(&b, "%q %s\n", path, id)
		if changed.After(newest) {
			newest = changed
		}
	}
	return b.String(), newest, nil
}

// readHead returns the first bytes of a file: all of a wrapper.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4<<10))
}

// librariesIn lists LLVM's libraries in a folder.
func librariesIn(dir string) []string {
	var list []string
	for _, pattern := range []string{"libLLVM*", "liblld*"} {
		more, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil { // it only fails for a pattern that is none
			list = append(list, more...)
		}
	}
	return list
}
