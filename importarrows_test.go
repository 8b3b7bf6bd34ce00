package kiln_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kiln-project/kiln"

// arrow says what the packages of a folder may import besides the standard
// library. It holds for the folder and everything below, except what has a
// longer row of its own.
type arrow struct {
	folder   string   // below the module root; "." is the root package alone
	ours     []string // folders of this module, each with everything below; "." is all
	external []string // modules or packages, each with everything below
}

// arrows is the package table of the architecture page. Its rows speak about
// the code that ships: test files may import what they need, since a test that
// compares two layers has to see both.
var arrows = []arrow{
	{folder: "."},

	// The parser of the text form is the only dependency below the passes.
	{folder: "ir", ours: []string{"ir/num"}, external: []string{"github.com/alecthomas/participle/v2"}},
	{folder: "ir/num"},
	{folder: "ir/eval", ours: []string{"ir"}},
	{folder: "ir/metric", ours: []string{"ir/num"}},

	{folder: "passes", ours: []string{"ir", "passes"}},

	{folder: "codegen", ours: []string{"ir", "passes", "codegen"}},
	{folder: "codegen/plan", ours: []string{"ir"}},
	{folder: "codegen/object"},
	{folder: "codegen/tune"},
	// Kernels are built as llir modules; text goes to the LLVM driver, which knows
	// nothing of them and calls libLLVM without cgo.
	{folder: "codegen/kernel", ours: []string{"ir", "passes", "codegen"}, external: []string{"github.com/llir/llvm"}},
	{folder: "codegen/kernels", ours: []string{"ir", "passes", "codegen"}, external: []string{"github.com/llir/llvm"}},
	{folder: "codegen/target", ours: []string{"ir", "passes", "codegen"}, external: []string{"github.com/llir/llvm"}},
	{folder: "codegen/llvm", external: []string{"github.com/ebitengine/purego"}},

	// The runtime executes plans and code objects; it must not be able to
	// generate them, nor to rewrite graphs.
	{folder: "runtime", ours: []string{"ir", "codegen/plan", "codegen/object", "runtime"}},
	// Devices are beside what runs on them, which knows none of them.
	{folder: "runtime/device", ours: []string{"ir", "codegen/plan", "runtime/engine"}},
	// What tests of devices share: it compiles a model for them.
	{folder: "runtime/device/devicetest", ours: []string{"ir", "passes", "codegen", "models/dsv4", "runtime"}},
	{folder: "runtime/host", ours: []string{"codegen/plan", "codegen/object", "runtime/device"}, external: []string{
		"github.com/ebitengine/purego", "golang.org/x/sys/cpu",
	}},
	// The bindings of GPU drivers know nothing of plans: they load code and launch
	// kernels.
	{folder: "runtime/internal/driver", external: []string{"github.com/ebitengine/purego"}},
	{folder: "runtime/internal/driver/drivertest", ours: []string{"codegen/object", "runtime/internal/driver"}, external: []string{"github.com/ebitengine/purego"}},
	// Over them, the device of plans.
	{folder: "runtime/internal/gpu", ours: []string{"codegen/plan", "runtime/device", "runtime/internal/driver"}},
	{folder: "runtime/hip", ours: []string{"codegen/object", "runtime/internal"}},
	{folder: "runtime/cuda", ours: []string{"codegen/object", "runtime/internal"}},
	// For tests: it takes what lanes hold from the table that kernels are made by.
	{folder: "runtime/warpsim", ours: []string{"codegen/plan", "codegen/target", "runtime/device"}},
	{folder: "runtime/weights", ours: []string{"ir/num"}},
	{folder: "runtime/tokenizer", ours: []string{"ir/num"}, external: []string{"github.com/dlclark/regexp2"}},

	{folder: "models", ours: []string{"ir"}},
	// Checks of a model over whatever executes it: nothing that ships imports it
	// but the command, so it may see both sides that it compares.
	{folder: "models/dsv4/golden", ours: []string{"ir", "passes", "models/dsv4", "runtime"}},

	// Checks of passes and of a device against the evaluator: like the golden checks
	// it sees both sides that it compares, but no model.
	{folder: "check", ours: []string{"ir", "passes", "codegen", "runtime", "check"}},

	{folder: "cmd", ours: []string{"."}, external: []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/mattn/go-isatty",
		"golang.org/x/sys/unix",
	}},
	// It knows package ir by name, so it builds without what it checks.
	{folder: "cmd/kilnvet", ours: []string{"cmd/kilnvet"}, external: []string{"golang.org/x/tools"}},
	{folder: "examples", ours: []string{"."}},
}

// under tells whether p is folder or below it; everything is below ".". A mere
// prefix of the name ("ir" of "irx") is not enough.
func under(p, folder string) bool {
	return folder == "." || p == folder || strings.HasPrefix(p, folder+"/")
}

// rowOf returns the longest row that holds for a folder, or nil.
func rowOf(folder string) *arrow {
	var best *arrow
	for i, a := range arrows {
		holds := a.folder == folder || a.folder != "." && under(folder, a.folder)
		if holds && (best == nil || len(a.folder) > len(best.folder)) {
			best = &arrows[i]
		}
	}
	return best
}

// edge is an import of the module's code: folder imports the package path.
type edge struct {
	folder, imports string
	file            string // where it stands, for the report
}

// violation returns what is wrong with an edge, or "".
func violation(e edge) string {
	row := rowOf(e.folder)
	if row == nil {
		return fmt.Sprintf("%s: folder %s is not in the table of import arrows", e.file, e.folder)
	}
	below := func(p string) func(string) bool {
		return func(folder string) bool { return under(p, folder) }
	}
	if e.imports == module || strings.HasPrefix(e.imports, module+"/") {
		target := path.Clean(strings.TrimPrefix(strings.TrimPrefix(e.imports, module), "/"))
		if !slices.ContainsFunc(row.ours, below(target)) {
			return fmt.Sprintf("%s: %s imports %s; allowed folders: %v", e.file, e.folder, target, row.ours)
		}
		return ""
	}
	// The first element of a path outside the standard library has a dot. "C" is
	// cgo, without which everything must build.
	first, _, _ := strings.Cut(e.imports, "/")
	if (strings.Contains(first, ".") || e.imports == "C") && !slices.ContainsFunc(row.external, below(e.imports)) {
		return fmt.Sprintf("%s: %s imports %s; allowed from outside: %v", e.file, e.folder, e.imports, row.external)
	}
	return ""
}

// loadEdges returns the imports of every Go file of the module but the tests,
// and the folders that hold such a file. It reads import clauses only, of all
// files: an import under a build constraint of another system counts, and a
// file whose body does not compile at the moment still reports its own.
func loadEdges(root string) (edges []edge, folders []string, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			// The go command looks into none of these either; a folder with a
			// go.mod of its own is another module.
			if p != root {
				_, noMod := os.Stat(filepath.Join(p, "go.mod"))
				if name == "testdata" || name == "vendor" || name[0] == '.' || name[0] == '_' || noMod == nil {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(rel)
		folder := path.Dir(file)
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range syntax.Imports {
			imports, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", file, spec.Path.Value, err)
			}
			edges = append(edges, edge{folder, imports, file})
		}
		return nil
	})
	return edges, folders, err
}

func TestImportArrows(t *testing.T) {
	edges, folders, err := loadEdges(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if rowOf(f) == nil {
			t.Errorf("folder %s is not in the table of import arrows", f)
		}
	}
	for _, e := range edges {
		if msg := violation(e); msg != "" {
			t.Error(msg)
		}
	}
	// A walk that finds nothing would pass everything.
	for _, want := range []string{".", "codegen", "models/dsv4"} {
		if !slices.Contains(folders, want) {
			t.Errorf("folder %s was not visited, only %v", want, folders)
		}
	}
	if !slices.ContainsFunc(edges, func(e edge) bool { return e.folder == "models/dsv4" && e.imports == "encoding/json" }) {
		t.Error("the import of encoding/json in models/dsv4 was not seen")
	}
}

// TestViolation is the check of the checker: made-up edges it must report, and
// their permitted neighbours it must not.
func TestViolation(t *testing.T) {
	own := func(folder string) string { return module + "/" + folder }
	for _, tc := range []struct {
		folder, imports string
		bad             bool
	}{
		{"ir", own("ir/num"), false},
		{"ir", own("ir/eval"), true},
		{"ir", own("passes"), true},
		{"ir", "github.com/alecthomas/participle/v2/lexer", false},
		{"ir", "github.com/alecthomas/participle/v3", true},
		{"ir/num", own("ir"), true},
		{"ir/num", "math", false},
		{"ir/eval", own("ir"), false},
		{"ir/eval", own("ir/num"), false},
		{"ir/eval", own("runtime/weights"), true},
		{"passes", own("ir"), false},
		{"passes", own("codegen/plan"), true},
		{"passes", own("irx"), true},
		{"codegen/kernel", own("passes"), false},
		{"codegen/kernel", own("codegen/target"), false},
		{"codegen/kernel", own("runtime"), true},
		{"codegen/kernel", "github.com/llir/llvm/ir", false},
		{"codegen/kernel", "github.com/ebitengine/purego", true},
		{"codegen/kernels", "github.com/llir/llvm/ir/types", false},
		{"codegen/target", "github.com/llir/llvm/ir", false},
		{"codegen/object", "github.com/llir/llvm/ir", true},
		{"codegen/llvm", "github.com/ebitengine/purego", false},
		{"codegen/llvm", "github.com/llir/llvm/ir", true},
		{"codegen/llvm", own("codegen/kernel"), true},
		{"codegen/plan", own("ir"), false},
		{"codegen/plan", own("passes"), true},
		{"codegen/plan", own("codegen/kernel"), true},
		{"codegen/object", "debug/elf", false},
		{"codegen/object", own("ir"), true},
		{"codegen/object", own("codegen/plan"), true},
		{"runtime/engine", own("ir/eval"), false},
		{"runtime/engine", own("codegen/plan"), false},
		{"runtime/engine", own("runtime/weights"), false},
		{"runtime/engine", own("codegen"), true},
		{"runtime/engine", own("codegen/kernel"), true},
		{"runtime/engine", own("passes"), true},
		{"runtime/engine", own("models/dsv4"), true},
		{"runtime/device", own("runtime/engine"), false},
		{"runtime/device", own("runtime/host"), true},
		{"runtime/device", "github.com/ebitengine/purego", true},
		{"runtime/host", own("runtime/device"), false},
		{"runtime/host", own("runtime/engine"), true},
		{"runtime/host", "github.com/ebitengine/purego", false},
		{"runtime/host", own("codegen/object"), false},
		{"runtime/host", own("codegen/llvm"), true},
		{"runtime/engine", "github.com/ebitengine/purego", true},
		{"runtime/weights", own("ir/num"), false},
		{"runtime/weights", own("ir"), true},
		{"runtime/tokenizer", own("runtime/weights"), true},
		{"runtime/tokenizer", "github.com/dlclark/regexp2", false},
		{"runtime/tokenizer", "github.com/spf13/cobra", true},
		{"models/dsv4", own("ir"), false},
		{"models/dsv4", own("runtime/tokenizer"), true},
		{"models/dsv4/golden", own("runtime/engine"), false},
		{"models/dsv4/golden", own("codegen/kernel"), true},
		{"check", own("runtime/host"), false},
		{"check", own("models/dsv4"), true},
		{"ir/metric", own("ir"), true},
		{"runtime/engine", own("check"), true},
		{"cmd/kiln/cli", own("runtime/engine"), false},
		{"cmd/kiln/cli", "github.com/spf13/cobra", false},
		{"cmd/kiln/cli", "github.com/spf13/viper", true},
		{"cmd/kilnvet/maporder", own("cmd/kilnvet/ignore"), false},
		{"cmd/kilnvet/maporder", "golang.org/x/tools/go/analysis", false},
		{"cmd/kilnvet/maporder", own("ir"), true},
		{"cmd/kiln/cli", "golang.org/x/tools/go/analysis", true},
		{"examples/pass", own("passes"), false},
		{"runtime/hip", "C", true},
		{"runtime/hip", own("codegen/object"), false},
		{"runtime/hip", own("codegen/plan"), true},
		{"runtime/hip", "github.com/ebitengine/purego", true},
		{"runtime/cuda", own("runtime/internal/driver"), false},
		{"runtime/cuda", own("codegen/plan"), true},
		{"runtime/internal/driver", "github.com/ebitengine/purego", false},
		{"runtime/internal/driver", own("codegen/object"), true},
		{"runtime/internal/driver/drivertest", own("codegen/object"), false},
		{".", own("ir"), true},
		{".", "fmt", false},
		{"ir", module, true},
		{"internal/x", "fmt", true},
		{"irx", "fmt", true},
	} {
		msg := violation(edge{folder: tc.folder, imports: tc.imports, file: "made/up.go"})
		if tc.bad != (msg != "") {
			t.Errorf("%s imports %s: report %q, want a report: %t", tc.folder, tc.imports, msg, tc.bad)
		}
		if msg != "" && !strings.Contains(msg, "made/up.go") {
			t.Errorf("%s imports %s: report %q does not name the file", tc.folder, tc.imports, msg)
		}
	}
}

// The folders that a row allows must have rows themselves, so that a typing
// error cannot open or close an arrow unseen.
func TestArrowTable(t *testing.T) {
	for _, a := range arrows {
		for _, folder := range a.ours {
			if rowOf(folder) == nil {
				t.Errorf("row %s allows %s, which is in no row", a.folder, folder)
			}
		}
	}
	sorted := slices.SortedFunc(slices.Values(arrows), func(a, b arrow) int { return strings.Compare(a.folder, b.folder) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].folder == sorted[i-1].folder {
			t.Errorf("folder %s has several rows", sorted[i].folder)
		}
	}
}

// TestLoadEdges checks the walk on a small tree: files under foreign build
// constraints count, test files, hidden folders and other modules do not.
func TestLoadEdges(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"ir/a.go":               "package ir\nimport \"fmt\"\nfunc broken( {",
		"ir/a_plan9.go":         "//go:build plan9\n\npackage ir\nimport x \"os\"",
		"ir/a_test.go":          "package ir\nimport \"testing\"",
		"ir/testdata/t.go":      "package t\nimport \"net\"",
		"ir/.hidden/h.go":       "package h\nimport \"net\"",
		"ir/_old/o.go":          "package o\nimport \"net\"",
		"examples/other/go.mod": "module other",
		"examples/other/m.go":   "package m\nimport \"net\"",
		"new/n.go":              "package n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edges, folders, err := loadEdges(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []edge{{"ir", "fmt", "ir/a.go"}, {"ir", "os", "ir/a_plan9.go"}}
	if !slices.Equal(edges, want) {
		t.Errorf("edges %v, want %v", edges, want)
	}
	if want := []string{"ir", "new"}; !slices.Equal(folders, want) {
		t.Errorf("folders %v, want %v", folders, want)
	}
}
