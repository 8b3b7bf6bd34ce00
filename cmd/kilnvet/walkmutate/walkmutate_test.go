package walkmutate

import (
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/irtype"
	"github.com/kiln-project/kiln/ir"
)

func TestWalkmutate(t *testing.T) {
	dir, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, dir, Analyzer, "walkmutate/pass", irtype.Path)
}

// What the analyzer knows by name exists, so that a renaming is noticed.
func TestNames(t *testing.T) {
	graph, op := reflect.TypeFor[ir.Graph](), reflect.TypeFor[ir.Op]()
	if graph.PkgPath() != irtype.Path || graph.Name() != "Graph" || op.Name() != "Op" {
		t.Errorf("graphs are %s.%s", graph.PkgPath(), graph.Name())
	}
	for _, name := range []string{"Args", "Results"} {
		if _, ok := op.FieldByName(name); !ok {
			t.Errorf("ir.Op has no field %s", name)
		}
	}
}
