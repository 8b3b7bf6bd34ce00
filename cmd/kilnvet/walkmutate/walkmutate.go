// Package walkmutate reports code that changes a graph which others hold. Kiln's
// graphs are immutable: a pass reads one and builds the next with an ir.Builder.
//
// Reported everywhere, tests and package ir included, in the body of a range over a
// slice of an ir.Graph or an ir.Op (g.Ops, g.Inputs, g.Weights, g.States, g.Outputs,
// g.Updates, op.Args, …), over a local name of one, over its length, or over
// slices.All, Values or Backward of it, is a change of that slice:
//
//	g.Ops = append(g.Ops, op)            // the walk does not see op
//	g.Ops = slices.Delete(g.Ops, i, i+1) // the walk skips one and ends in nil
//	g.Ops[i] = op
//	kept := g.Ops[:0]                    // before the loop
//	kept = append(kept, op)              // in it: the same array
//
// and in a walk over a slice of a graph also a change of the operands or results of an
// op that was not made in the function:
//
//	op.Args[0] = v
//	op.Results = nil
//
// A change right before the return or break that ends the walk is not reported here.
// Nor is a loop that reads the slice anew, for i := 0; i < len(g.Ops); i++: it is the
// way to write a worklist.
//
// Reported outside of package ir and of tests, wherever it stands, is a store into
// something of package ir that the function did not make itself: what its parameters,
// its receiver and package variables lead to. A literal in a package variable is a
// function too.
//
//	func pass(m *passes.Module) error {
//		g := m.Entries[0]
//		g.Ops[i] = op           // g belongs to the module
//		g.Outputs[0].Name = "y"
//		slices.Reverse(g.Inputs)
//		c := *op                // a copy,
//		c.Loc = "x"             // not reported,
//		c.Args[0] = v           // whose operands are the old op's
//		m.Entries[0] = out      // not reported: this is how a pass hands on its graph
//
// Not reported are stores into what the function made or called for, such as a
// composite literal, the result of ir.Bind, ir.Parse or Builder.Finish, or a
// slices.Clone. Tests are exempt since they break graphs to see that Verify reports it.
//
// It looks at one function at a time, and a call's result counts as made.
package walkmutate

import (
	"go/ast"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/ignore"
	"github.com/kiln-project/kiln/cmd/kilnvet/internal/irtype"
)

// Analyzer is the check.
var Analyzer = &analysis.Analyzer{
	Name: "walkmutate",
	Doc: `report changes of a graph that is walked or that belongs to others

In a range over a slice of an ir.Graph or ir.Op, by whatever name:

	g.Ops = append(g.Ops, op)     // also slices.Delete, Insert, …, and g.Ops[i] = op
	kept = append(kept, op)       // after kept := g.Ops[:0]
	op.Args[0] = v                // in a walk over a graph

Outside of package ir and of tests, a store into what parameters, the receiver or
package variables lead to:

	g := m.Entries[0]
	g.Ops[i] = op
	slices.Reverse(g.Inputs)

What the function made itself, or got from a call, is its own. Cure: build a new graph
with ir.NewBuilder.`,
	URL:      "https://pkg.go.dev/github.com/kiln-project/kiln/cmd/kilnvet/walkmutate",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	out := ignore.For(pass)
	defer out.Close()
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	// A change is reported once, and with it the calls that are a part of it.
	var reported []ast.Node
	report := func(n ast.Node, message string) {
		if !slices.ContainsFunc(reported, func(r ast.Node) bool { return within(n, r) }) {
			reported = append(reported, n)
			out.Report(analysis.Diagnostic{Pos: n.Pos(), End: n.End(), Message: message})
		}
	}
	for cur := range root.Preorder((*ast.RangeStmt)(nil)) {
		if w := newWalk(pass.TypesInfo, cur); w != nil {
			w.check(report)
		}
	}
	if pass.Pkg.Path() == irtype.Path {
		return nil, nil
	}
	for cur := range root.Preorder((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		if outermost(cur) != cur {
			continue // its function is looked at
		}
		if !strings.HasSuffix(pass.Fset.File(cur.Node().Pos()).Name(), "_test.go") {
			checkStores(pass.TypesInfo, cur, report)
		}
	}
	return nil, nil
}
