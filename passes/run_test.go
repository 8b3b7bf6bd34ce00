package passes

import (
	"errors"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

const oneOp = `graph @step
input %x : f32[2]
%0 = neg %x : f32[2]
output y = %0
`

// A pass that fails or leaves a broken graph, the pack graph included, is named.
func TestRunOneReportsThePass(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(*Module) error
		want string
	}{
		{"fine", func(*Module) error { return nil }, ""},
		{"fails", func(*Module) error { return errors.New("no") }, "pass fails: no"},
		{"breaks", func(m *Module) error { m.Entries[0].Ops = nil; return nil }, "pass breaks left a broken graph: step.kir:4:1: graph @step: "},
		{"breaks-pack", func(m *Module) error { m.Pack = &ir.Graph{Name: PackGraph}; return nil }, "pass breaks-pack left a broken graph: graph @pack: "},
	} {
		m := module(t, "step.kir", oneOp)
		switch err := runOne(Pass{Name: tc.name, Run: tc.run}, m); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Pass names are a user interface: distinct, lower case, with a sentence each.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Table {
		if seen[p.Name] || p.Name == "" || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("pass name %q is taken or not of the form fuse-hc", p.Name)
		}
		seen[p.Name] = true
		if !strings.HasSuffix(p.Doc, ".") || p.Run == nil {
			t.Errorf("pass %s: doc %q, function given: %t", p.Name, p.Doc, p.Run != nil)
		}
	}
}
