package ignore_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/kiln-project/kiln/cmd/kilnvet/ignore"
	"github.com/kiln-project/kiln/cmd/kilnvet/maporder"
	"github.com/kiln-project/kiln/cmd/kilnvet/walkmutate"
)

// One analyzer that runs those of the command, since a test package's expectations
// are for one.
func TestIgnore(t *testing.T) {
	dir, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	check := ignore.Check(maporder.Analyzer, walkmutate.Analyzer)
	both := &analysis.Analyzer{
		Name: "maporder", Doc: "maporder and ignore", Requires: maporder.Analyzer.Requires,
		Run: func(pass *analysis.Pass) (any, error) {
			if _, err := maporder.Analyzer.Run(pass); err != nil {
				return nil, err
			}
			return check.Run(pass)
		},
	}
	analysistest.Run(t, dir, both, "ignored")
}
