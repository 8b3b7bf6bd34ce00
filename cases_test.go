package kiln_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/testcache"
	"github.com/kiln-project/kiln/ir"
)

var update = flag.Bool("update", false, "rewrite what the run cases give")

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	code := m.Run()
	if shared.compiler != nil {
		shared.compiler.LLVM.Close()
	}
	os.Exit(code)
}

// shared is the compiler of all cases.
var shared struct {
	once      sync.Once
	compiler  *codegen.Compiler
	none, err error
}

// compiler skips a test where there is no LLVM.
func compiler(t *testing.T) *codegen.Compiler {
	t.Helper()
	shared.once.Do(func() {
		tools, err := llvm.Find(context.Background(), llvm.FindOptions{})
		if err != nil {
			shared.none = err
			return
		}
		lc, err := llvm.New(context.Background(), tools, llvm.Options{})
		if err != nil {
			shared.err = err
			return
		}
		shared.compiler = &codegen.Compiler{Tools: tools, LLVM: lc, Cache: testcache.Open(t)}
	})
	if shared.none != nil {
		t.Skipf("this case compiles: %v", shared.none)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.compiler
}

// textCase is one file of testdata/cases/KIND; the README there says what is in it.
type textCase struct {
	file     string
	settings map[string]string // lines "key: value" of the comment
	graph    *ir.Graph
	archive  *txtar.Archive
}

// cases runs the cases of a kind.
func cases(t *testing.T, kind string, settings []string, run func(*testing.T, *textCase)) {
	files, err := filepath.Glob(filepath.Join("testdata", "cases", kind, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Errorf("%d cases of kind %s", len(files), kind)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c, err := readCase(file, settings)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			run(t, c)
		})
	}
}

// readCase reads the comment and the graph of a case.
func readCase(file string, settings []string) (*textCase, error) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		return nil, err
	}
	if len(a.Comment) == 0 || len(a.Files) == 0 || a.Files[0].Name != "before.kir" {
		return nil, fmt.Errorf("want a comment, then the section before.kir")
	}
	c := &textCase{file: file, settings: map[string]string{}, archive: a}
	for line := range strings.Lines(string(a.Comment)) {
		for _, key := range settings {
			if value, ok := strings.CutPrefix(line, key+": "); ok {
				c.settings[key] = strings.TrimSpace(value)
			}
		}
	}
	// A position in a message is then one in the file.
	above := strings.Count(string(a.Comment), "\n") + 1
	c.graph, err = ir.ParseOne(file, strings.Repeat("\n", above)+string(a.Files[0].Data))
	return c, err
}
