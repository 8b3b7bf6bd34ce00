// Package testcache keeps what tests compile, for tests of all packages: a code object
// is made once, by whichever test needs it first, and again only when its LLVM IR or LLVM
// is another.
package testcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
)

// Open returns the folder that the kiln command has by default; one of the test, where
// there is no cache folder of the user.
func Open(t testing.TB) *codegen.Cache {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		return codegen.OpenCache(t.TempDir())
	}
	return codegen.OpenCache(filepath.Join(dir, "kiln"))
}

// Compiler returns c with a cache before it. Jobs that fail are not kept.
func Compiler(c llvm.Compiler, tools *llvm.Toolchain, cache *codegen.Cache) llvm.Compiler {
	return &compiler{c, tools.ID(), cache}
}

type compiler struct {
	llvm.Compiler
	id    string
	cache *codegen.Cache
}

func (c *compiler) Compile(ctx context.Context, job llvm.Job) (llvm.Result, error) {
	h := sha256.New()
	fmt.Fprintf(h, "test %q %q %q %q %q %q %v %q %d %d\n", c.id, job.Name, job.Triple, job.CPU, job.Features, job.OptPasses, job.PIC, job.Output, job.CodeObjectVersion, len(job.IR))
	h.Write(job.IR)
	key := hex.EncodeToString(h.Sum(nil))
	var r llvm.Result
	if data, ok := c.cache.Get(key); ok {
		return r, gob.NewDecoder(bytes.NewReader(data)).Decode(&r)
	}
	r, err := c.Compiler.Compile(ctx, job)
	if err != nil {
		return r, err
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(&r); err != nil {
		return r, err
	}
	return r, c.cache.Put(key, data.Bytes())
}
