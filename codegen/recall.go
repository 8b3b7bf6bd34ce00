package codegen

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/passes/parallel"
)

// built is what the cache keeps of a build: where its files are, each an entry of its own,
// which builds with equal files share, and what Stats say of it.
type built struct {
	Files                             []builtFile
	Plans, Kernels, Choices, Modelled int
}

type builtFile struct {
	Name string
	Size int64
	Sum  string
}

// fileKey is the key of a file of builds.
func fileKey(sum string) string { return cacheKey("file", sum) }

// recall returns what a build under the key has left, once open has seen that all of it is
// there and as it was. What is damaged is noted, and not found.
func (c *Compiler) recall(key string, open func(bundle.Files) (bundle.Files, error)) (bundle.Files, Stats, bool) {
	data, ok := c.Cache.Get(key)
	var b built
	if !ok || json.Unmarshal(data, &b) != nil {
		return nil, Stats{}, false
	}
	files := make(bundle.Files, len(b.Files))
	for i, f := range b.Files {
		files[i] = bundle.File{Name: f.Name, Stored: &bundle.Stored{Path: c.Cache.path(fileKey(f.Sum)), Size: f.Size, Sum: f.Sum}}
	}
	opened, err := open(files)
	if err != nil {
		for _, f := range files { // those that are not there were removed
			if _, err := os.Stat(f.Stored.Path); err == nil && f.Stored.Check() != nil {
				c.Cache.found(f.Stored.Path)
			}
		}
		return nil, Stats{}, false
	}
	return opened, Stats{Plans: b.Plans, Kernels: b.Kernels, Cached: b.Kernels, Choices: b.Choices, Modelled: b.Modelled, WholeHit: true}, true
}

// checked leaves the files where they are.
func checked(f bundle.Files) (bundle.Files, error) { return f, f.Check() }

// keep stores the files of a build, which are Stored then, and what they came with.
func (c *Compiler) keep(key string, files bundle.Files, st *Stats) error {
	if c.Cache == nil {
		return nil
	}
	err := parallel.Each(len(files), func(i int) (err error) {
		files[i].Stored, err = c.Cache.store(files[i].Data)
		return err
	})
	if err != nil {
		return err
	}
	b := built{Plans: st.Plans, Kernels: st.Kernels, Choices: st.Choices, Modelled: st.Modelled}
	for _, f := range files {
		b.Files = append(b.Files, builtFile{f.Name, f.Stored.Size, f.Stored.Sum})
	}
	data, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	return c.Cache.Put(key, data)
}

// store keeps content under its own digest. What is there already, and sound, is not
// written again.
func (c *Cache) store(data []byte) (*bundle.Stored, error) {
	sum := sha256.Sum256(data)
	s := &bundle.Stored{Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}
	key := fileKey(s.Sum)
	s.Path = c.path(key)
	if _, err := os.Stat(s.Path); err == nil {
		if s.Check() == nil {
			return s, nil
		}
		c.found(s.Path)
	}
	return s, c.put(key, data, sum)
}
