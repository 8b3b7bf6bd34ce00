// Command kilnvet checks Go code that works on Kiln's graphs, in this repository
// or out of tree, for what makes a pass unreproducible or wrong:
//
//	go run github.com/kiln-project/kiln/cmd/kilnvet ./...
//	go vet -vettool=$(which kilnvet) ./...
//
// Its analyzers are maporder, walkmutate and ignore; kilnvet help NAME describes
// one. See docs/kilnvet.md.
package main

import (
	"flag"
	"fmt"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/kiln-project/kiln/cmd/kilnvet/ignore"
	"github.com/kiln-project/kiln/cmd/kilnvet/maporder"
	"github.com/kiln-project/kiln/cmd/kilnvet/walkmutate"
)

// analyzers is what kilnvet runs.
var analyzers = []*analysis.Analyzer{
	maporder.Analyzer,
	walkmutate.Analyzer,
	ignore.Check(maporder.Analyzer, walkmutate.Analyzer),
}

func main() {
	flag.Usage = usage
	multichecker.Main(analyzers...)
}

// usage is what -help prints; that of the flag package would list flags alone.
func usage() {
	w := flag.CommandLine.Output()
	fmt.Fprint(w, `kilnvet checks Go code that works on Kiln's graphs.

  kilnvet [flags] ./...                      also with -fix, -json, -test=false
  go vet -vettool=$(which kilnvet) ./...     with the flags and the cache of go vet
  kilnvet help NAME                          what an analyzer reports

`)
	for _, a := range analyzers {
		title, _, _ := strings.Cut(a.Doc, "\n")
		fmt.Fprintf(w, "  %-11s %s\n", a.Name, title)
	}
	fmt.Fprint(w, `
A comment on the line of a finding, or the line above, silences it:

  //kilnvet:ignore ANALYZER REASON

Exit code: 0 without findings, 1 when a package does not load, 3 with findings.
go vet exits with 1 for both.

Flags:
`)
	flag.PrintDefaults()
}
