package kiln_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Kiln never uses a network. What it imports cannot dial, but for package net itself,
// which one library wants for the types of addresses; that none of its sockets is linked
// is the long test's, and that no command makes a socket is shown by
// cmd/kiln/cli, whose child is killed for one.

// addressed lists who imports a package of net, and which, with the reason.
var addressed = map[string]string{
	"github.com/spf13/pflag net":                              "flags that hold addresses: types and their parsers; no command has one",
	"text/template net/url":                                   "the function that escapes a query; of cobra's help, which Kiln replaces",
	"golang.org/x/tools/internal/analysis/driverutil net/url": "links of diagnostics, in kilnvet",
}

func TestNothingDials(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages, ours := 0, 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		packages++
		if strings.HasPrefix(f[0], module) {
			ours++
		}
		if f[0] == "net" || strings.HasPrefix(f[0], "net/") {
			continue
		}
		for _, imports := range f[2:] {
			if imports != "net" && !strings.HasPrefix(imports, "net/") && imports != "crypto/tls" && imports != "log/syslog" {
				continue
			}
			if addressed[f[0]+" "+imports] == "" {
				t.Errorf("%s imports %s: kiln uses no network; say in this test why that one cannot", f[0], imports)
			}
		}
	}
	if ours < 20 || packages < 2*ours {
		t.Fatalf("go list knows %d packages, %d of this module", packages, ours)
	}
}
