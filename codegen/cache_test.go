package codegen

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	c := OpenCache(dir)
	key, body := cacheKey("a", "b"), []byte("an object")
	if _, ok := c.Get(key); ok {
		t.Error("an empty cache has an entry")
	}
	if err := c.Put(key, body); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.Get(key); !ok || !bytes.Equal(got, body) {
		t.Errorf("got %q, %v", got, ok)
	}
	if cacheKey("a", "b") != key || cacheKey("ab") == key || cacheKey("a", "b", "") == key {
		t.Error("keys of different parts must differ")
	}
	// A damaged entry is not served.
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { b[0] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func([]byte) []byte { return nil },
	} {
		data, err := os.ReadFile(c.path(key))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path(key), damage(bytes.Clone(data)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Get(key); ok {
			t.Error("a damaged entry was served")
		}
		if err := os.WriteFile(c.path(key), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(dir, "mine.txt")
	if err := os.WriteFile(mine, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if n, size, err := c.Clean(); n != 1 || size == 0 || err != nil {
		t.Errorf("clean: %d files, %d bytes, %v", n, size, err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("clean removed another file: %v", err)
	}
	if n, _, err := OpenCache(filepath.Join(dir, "absent")).Clean(); n != 0 || err != nil {
		t.Errorf("clean of no folder: %d, %v", n, err)
	}
	var none *Cache
	if _, ok := none.Get(key); ok || none.Put(key, body) != nil {
		t.Error("no cache must keep nothing")
	}
}

// TestCacheConcurrent: writers of one key never show a reader half an entry.
func TestCacheConcurrent(t *testing.T) {
	c := OpenCache(t.TempDir())
	body := bytes.Repeat([]byte("object"), 10000)
	key := cacheKey("k")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if err := c.Put(key, body); err != nil {
					t.Error(err)
				}
				if got, ok := c.Get(key); !ok || !bytes.Equal(got, body) {
					t.Error("half an entry")
				}
			}
		})
	}
	wg.Wait()
}
