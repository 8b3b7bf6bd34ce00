package devicetest

import (
	"context"
	"os"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/testcache"
)

// Main is TestMain of a package whose tests compile.
func Main(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	os.Exit(m.Run())
}

// Compiler finds an LLVM or skips: no device can be tested without. What tests of any
// package compile is compiled once.
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
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: testcache.Open(t)}
}
