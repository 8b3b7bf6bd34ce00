package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kiln-project/kiln/passes/parallel"
)

// Write makes the folder. It appears whole or not at all: a folder that is there
// already is replaced only if it is a bundle. One that holds the very same files stays,
// with new times.
func (b *Bundle) Write(dir string) error {
	if err := CanWrite(dir); err != nil {
		return err
	}
	list, err := b.contents()
	if err != nil {
		return err
	}
	if holds(dir, list) {
		now := time.Now()
		return errors.Join(os.Chtimes(filepath.Join(dir, manifestName), now, now), os.Chtimes(dir, now, now))
	}
	tmp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".kiln-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := writeAll(tmp, list); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer os.RemoveAll(old)
	return os.Rename(tmp, dir)
}

// CanWrite finds what Write would refuse, before there is a bundle to be written: a
// folder that is in no folder, and what is there and is no bundle.
func CanWrite(dir string) error {
	if info, err := os.Lstat(dir); err == nil && (!info.IsDir() || !isBundle(dir)) {
		return fmt.Errorf("%s exists and is not a bundle", dir)
	}
	_, err := os.Stat(filepath.Dir(filepath.Clean(dir)))
	return err
}

// contents are all files of the bundle, the manifest last: it holds the digests of the
// others, which are taken here.
func (b *Bundle) contents() (Files, error) {
	list := Files{{Name: "config.json", Data: b.Config}}
	for _, t := range b.Manifest.Targets {
		for _, f := range b.Code[t] {
			f.Name = t + "/" + f.Name
			list = append(list, f)
		}
	}
	sums := make([]string, len(list))
	parallel.Do(len(list), func(i int) { sums[i] = list[i].sum() })
	b.Manifest.Files = map[string]string{}
	for i := range list {
		b.Manifest.Files[list[i].Name] = sums[i]
	}
	manifest, err := marshal(b.Manifest)
	return append(list, File{Name: manifestName, Data: manifest}), err
}

// writeAll writes files below a folder.
func writeAll(dir string, list Files) error {
	path := func(i int) string { return filepath.Join(dir, filepath.FromSlash(list[i].Name)) }
	made := map[string]bool{}
	for i := range list {
		if d := filepath.Dir(path(i)); !made[d] {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
			made[d] = true
		}
	}
	return parallel.Each(len(list), func(i int) error { return list[i].writeTo(path(i)) })
}

// errOther: a folder does not hold what it is compared with.
var errOther = errors.New("other content")

// holds reports whether a folder holds the files of a list and nothing else. The manifest
// is the last of them, and has the digests of the others.
func holds(dir string, list Files) bool {
	manifest := list[len(list)-1]
	if have, err := os.ReadFile(filepath.Join(dir, manifestName)); err != nil || !bytes.Equal(have, manifest.Data) {
		return false
	}
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
		case !d.Type().IsRegular():
			return errOther
		default:
			n++
		}
		return nil
	})
	if err != nil || n != len(list) {
		return false
	}
	return parallel.Each(len(list)-1, func(i int) error {
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(list[i].Name)))
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.Size() != list[i].size() {
			return errOther
		}
		if sum, _, err := digestFrom(f); err != nil || sum != list[i].sum() {
			return errOther
		}
		return nil
	}) == nil
}
