package maporder

import (
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/kiln-project/kiln/ir"
)

func testdata(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// One run for both packages: most of the time goes into loading the standard library.
func TestReportedAndQuiet(t *testing.T) {
	analysistest.Run(t, testdata(t), Analyzer, "maporder/reported", "maporder/quiet")
}

func TestFix(t *testing.T) {
	analysistest.RunWithSuggestedFixes(t, testdata(t), Analyzer, "maporder/fix")
}

// The methods that are exempt exist, so that a renaming is noticed.
func TestBuilderReads(t *testing.T) {
	for _, name := range builderReads {
		if _, ok := reflect.TypeFor[*ir.Builder]().MethodByName(name); !ok {
			t.Errorf("ir.Builder has no method %s", name)
		}
	}
}
