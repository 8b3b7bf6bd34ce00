package devicetest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
)

// cache is that of all tests of a package: what several of them compile is compiled
// once.
var cache *codegen.Cache

// Main is TestMain of a package whose tests compile.
func Main(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	dir, err := os.MkdirTemp("", "kiln-device-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cache = codegen.OpenCache(dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Compiler finds an LLVM or skips: no device can be tested without.
func Compiler(t testing.TB) *codegen.Compiler {
	t.Helper()
	tools, err := llvm.Find(context.Background(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("no LLVM (run make toolchain): %v", err)
	}
	lc, err := llvm.New(context.Background(), tools, llvm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lc.Close() })
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: cache}
}
