package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/kiln-project/kiln/passes/parallel"
)

// File is one file of a target's folder.
type File struct {
	Name string // with slashes
	Data []byte // nil if Stored alone has it
	// Stored, if not nil, is where a cache has the content.
	Stored *Stored
}

// Stored is content at the start of a file of a cache.
type Stored struct {
	Path string
	Size int64  // bytes
	Sum  string // SHA-256, in hexadecimal
}

// Check compares the content with its digest.
func (s *Stored) Check() error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	have, n, err := digestFrom(io.LimitReader(f, s.Size))
	if err == nil && (n != s.Size || have != s.Sum) {
		err = fmt.Errorf("%s: the content is not what was stored", s.Path)
	}
	return err
}

// load reads the content and compares it with its digest.
func (s *Stored) load() ([]byte, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, s.Size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	if digest(data) != s.Sum {
		return nil, fmt.Errorf("%s: the content is not what was stored", s.Path)
	}
	return data, nil
}

// Files are a target's folder.
type Files []File

// Load returns the files with all content in memory.
func (f Files) Load() (Files, error) {
	out := slices.Clone(f)
	return out, parallel.Each(len(out), func(i int) (err error) {
		out[i].Data, err = out[i].content()
		return err
	})
}

// Check compares what is stored with its digests.
func (f Files) Check() error {
	return parallel.Each(len(f), func(i int) error {
		if f[i].Stored == nil {
			return nil
		}
		return f[i].Stored.Check()
	})
}

// Get returns a file's content; the error is fs.ErrNotExist if there is none of the name.
func (f Files) Get(name string) ([]byte, error) {
	i := slices.IndexFunc(f, func(x File) bool { return x.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return f[i].content()
}

// content is Data, or what is stored.
func (x *File) content() ([]byte, error) {
	if x.Data == nil && x.Stored != nil {
		return x.Stored.load()
	}
	return x.Data, nil
}

// size is the number of bytes of the content.
func (x *File) size() int64 {
	if x.Data == nil && x.Stored != nil {
		return x.Stored.Size
	}
	return int64(len(x.Data))
}

// sum is the digest of the content.
func (x *File) sum() string {
	if x.Stored != nil {
		return x.Stored.Sum
	}
	return digest(x.Data)
}

// writeTo writes the content to a file that is not there yet.
func (x *File) writeTo(path string) error {
	if x.Data != nil || x.Stored == nil {
		return os.WriteFile(path, x.Data, 0o644)
	}
	from, err := os.Open(x.Stored.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.CopyN(to, from, x.Stored.Size); err != nil {
		err = fmt.Errorf("%s: %w", x.Stored.Path, err)
	}
	return errors.Join(err, to.Close())
}

// CodeBytes is the size of the target's code object.
func (f Files) CodeBytes(target string) int {
	for i := range f {
		if f[i].Name == ObjectName(target) {
			return int(f[i].size())
		}
	}
	return 0
}

// Plans counts the plans.
func (f Files) Plans() int {
	n := 0
	for _, x := range f {
		if strings.HasPrefix(x.Name, planPrefix) {
			n++
		}
	}
	return n
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// buffers are for digests of files. Fresh memory for each would take longer than the
// digest.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// digestFrom is the digest of all that a reader gives, and how many bytes that is.
func digestFrom(r io.Reader) (sum string, n int64, err error) {
	h := sha256.New()
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	n, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, *b)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
