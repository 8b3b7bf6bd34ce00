package codegen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Cache keeps compiled objects, and what else is costly to make, in a folder. Its
// keys are digests of everything that an entry depends on, so one is never stale;
// each file ends with the digest of its content, so a damaged one is noticed and
// made again. Processes may share a folder: files appear by rename. A nil Cache
// keeps nothing.
type Cache struct {
	dir string

	mu      sync.Mutex
	damaged []string // names of files
}

// cacheSuffix marks the files that belong to a cache.
const cacheSuffix = ".kiln-object"

// OpenCache uses dir, which is made when something is stored.
func OpenCache(dir string) *Cache { return &Cache{dir: dir} }

// cacheKey is the digest of its parts, each told from the next.
func cacheKey(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *Cache) path(key string) string { return filepath.Join(c.dir, key+cacheSuffix) }

// Get returns an entry; a missing or damaged one is not found.
func (c *Cache) Get(key string) ([]byte, bool) {
	if c == nil {
		return nil, false
	}
	data, err := os.ReadFile(c.path(key))
	if err != nil {
		return nil, false
	}
	if len(data) < sha256.Size {
		c.found(c.path(key))
		return nil, false
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	want := sha256.Sum256(body)
	if !bytes.Equal(sum, want[:]) {
		c.found(c.path(key))
		return nil, false
	}
	return body, true
}

// found notes a damaged file.
func (c *Cache) found(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name := filepath.Base(path); !slices.Contains(c.damaged, name) {
		c.damaged = append(c.damaged, name)
	}
}

// Damaged names the files that were found damaged so far, sorted. What they had is made
// again by who asked for it.
func (c *Cache) Damaged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.damaged))
}

// Put stores an entry under a key, a digest in hexadecimal. A cache that cannot be written is an error: compiling
// again each time would be silently slow.
func (c *Cache) Put(key string, body []byte) error {
	if c == nil {
		return nil
	}
	return c.put(key, body, sha256.Sum256(body))
}

// put is Put of a body whose digest is known.
func (c *Cache) put(key string, body []byte, sum [sha256.Size]byte) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	f, err := os.CreateTemp(c.dir, "new-*.tmp")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	_, err = f.Write(body)
	if err == nil {
		_, err = f.Write(sum[:])
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), c.path(key))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// Check makes the folder and writes to it, so that a cache that cannot be written
// is known before anything is compiled.
func (c *Cache) Check() error {
	err := os.MkdirAll(c.dir, 0o755)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(c.dir, "new-*.tmp")
	}
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Clean removes the cache's files and reports how many and their bytes. Other
// files in the folder stay.
func (c *Cache) Clean() (files int, size int64, err error) {
	list, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), cacheSuffix) && !isUnfinished(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // another process removed it
		}
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return files, size, err
		}
		files, size = files+1, size+info.Size()
	}
	return files, size, nil
}
