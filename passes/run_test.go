package passes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

const oneOp = `graph @step
input %x : f32[2]
%0 = neg %x : f32[2]
output y = %0
`

// A pass that fails, panics or leaves a broken graph is named, with the graph that
// it was given.
func TestRunOneReportsThePass(t *testing.T) {
	broken := func(_ *Context, g *ir.Graph) (*ir.Graph, error) {
		b := *g
		b.Ops = nil
		return &b, nil
	}
	for _, tc := range []struct {
		pass Pass
		want string
	}{
		{Pass{Name: "fine", Graph: func(_ *Context, g *ir.Graph) (*ir.Graph, error) { return g, nil }}, ""},
		{Pass{Name: "fails", Graph: func(*Context, *ir.Graph) (*ir.Graph, error) { return nil, errors.New("no") }}, "pass fails: no"},
		{Pass{Name: "panics", Graph: func(_ *Context, g *ir.Graph) (*ir.Graph, error) { return g, fmt.Errorf("%v", g.Ops[9]) }}, "pass panics: panic: runtime error: index out of range"},
		{Pass{Name: "breaks", Graph: broken}, "pass breaks: left a broken graph: step.kir:4:1: graph @step: "},
		{Pass{Name: "none", Graph: func(*Context, *ir.Graph) (*ir.Graph, error) { return nil, nil }}, "pass none: left no graph"},
		{Pass{Name: "no-op", Graph: func(_ *Context, g *ir.Graph) (*ir.Graph, error) {
			return &ir.Graph{Name: g.Name, Inputs: []*ir.Value{nil}}, nil
		}}, "pass no-op: "},
		{Pass{Name: "no-entry", Module: func(c *Context) error { c.Module.Entries[0] = nil; return nil }}, "pass no-entry: left no graph as entry 0"},
		{Pass{Name: "no-step", On: Steps, Module: func(c *Context) error { c.Module.Steps = []*Step{nil}; return nil }}, "pass no-step: left no graph as step 0"},
		{Pass{Name: "empty-step", On: Steps, Module: func(c *Context) error { c.Module.Steps = []*Step{{}}; return nil }}, "pass empty-step: left no graph as step 0"},
		{Pass{Name: "breaks-pack", Module: func(c *Context) error { c.Module.Pack = &ir.Graph{Name: PackGraph}; return nil }}, "pass breaks-pack: left a broken graph: graph @pack: "},
	} {
		m := module(t, "step.kir", oneOp)
		err := runOne(&tc.pass, m)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.pass.Name, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("%s: error %v, want %q", tc.pass.Name, err, tc.want)
		}
		var e *Error
		if tc.want != "" && tc.pass.Graph != nil && (!errors.As(err, &e) || e.Before == nil || e.Before.Name != "step") {
			t.Errorf("%s: the error does not have the graph before the pass", tc.pass.Name)
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
		if !strings.HasSuffix(p.Doc, ".") {
			t.Errorf("pass %s: doc %q", p.Name, p.Doc)
		}
	}
}
