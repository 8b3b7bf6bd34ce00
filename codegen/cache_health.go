package codegen

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// CacheHealth is what is in a cache's folder.
type CacheHealth struct {
	Entries    int      `json:"entries"`
	Bytes      int64    `json:"bytes"`      // of the entries
	Damaged    []string `json:"damaged"`    // files whose digest is wrong: they are made again
	Unfinished int      `json:"unfinished"` // files of processes that were stopped, or are writing
}

// Health reads every entry. A folder that is not there is an empty cache.
func (c *Cache) Health() (CacheHealth, error) {
	h := CacheHealth{Damaged: []string{}}
	list, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	for _, e := range list {
		key, entry := strings.CutSuffix(e.Name(), cacheSuffix)
		if isUnfinished(e.Name()) {
			h.Unfinished++
		}
		if !entry {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process removed it
		}
		if err != nil {
			return h, err
		}
		h.Entries++
		h.Bytes += info.Size()
		if _, ok := c.Get(key); !ok {
			h.Damaged = append(h.Damaged, e.Name())
		}
	}
	return h, nil
}

// Each calls f with every sound entry, in the order of their keys.
func (c *Cache) Each(f func(body []byte)) error {
	list, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if key, entry := strings.CutSuffix(e.Name(), cacheSuffix); entry {
			if body, ok := c.Get(key); ok {
				f(body)
			}
		}
	}
	return err
}

// isUnfinished tells whether a file was being written.
func isUnfinished(name string) bool {
	return strings.HasPrefix(name, "new-") && strings.HasSuffix(name, ".tmp")
}
