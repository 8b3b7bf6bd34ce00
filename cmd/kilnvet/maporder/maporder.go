// Package maporder reports loops over a map whose order reaches what the program
// computes or prints. Go chooses that order anew every time, and Kiln promises the
// same bytes for the same input.
//
// Reported, in the body of a range over a map, or over maps.Keys, maps.Values or
// maps.All, where the order reaches something that outlives the loop:
//
//	names = append(names, k)          // and names is used before it is sorted
//	fmt.Fprintln(w, k)                // or w.WriteString(k), write(w, k)
//	v := b.Input(k, t)                // any method of an ir.Builder that adds, or add(b, k)
//	c.Remark(passes.Applied, op, "%s", k)   // of a passes.Context
//	ch <- k
//	last = k                          // the last or the first one stays
//	if v > most { most, who = v, k }  // who: of equal ones the first stays; most is fine
//	text += k                         // concatenation
//	sum += v.Float                    // floating-point addition rounds in its order
//	id[k] = len(id)                   // or id[k] = n; n++: numbers in the loop's order
//	return k                          // and return fmt.Errorf("%s: bad", k): one of several
//
// Also reported: slices.Collect and slices.AppendSeq of such an iterator whose
// result is used before it is sorted.
//
// Not reported, because the order cannot be seen afterwards:
//
//	n += v; ok = ok && good(v)            // integers, booleans
//	set[k] = true; delete(m, k)           // another map; an element of a slice
//	groups[k] = append(groups[k], v...)   // a slice per key
//	most = max(most, v)                   // and if v > most { most = v }
//	if v == w || v > w && k < who { … }   // a comparison that also orders the keys
//	if k == want { return v }             // at most one key fits
//	names = append(names, k) … slices.Sort(names)
//	for _, k := range slices.Sorted(maps.Keys(m)) { … }
//
// and loops that run only if len(m) == 1. A sort counts by its name: the functions
// of slices and sort, and whatever is called sort…. Failures of a test (t.Errorf)
// and panics are not output.
//
// It looks at one function at a time. What a called function does with a key is not
// seen, unless it is handed a writer or an ir.Builder beside it; nor are
// sync.Map.Range and package reflect, nor the body of a go statement, whose order is
// the scheduler's.
package maporder

import (
	"go/ast"
	"go/token"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/ignore"
)

// Analyzer is the check.
var Analyzer = &analysis.Analyzer{
	Name: "maporder",
	Doc: `report loops over a map whose order reaches a result

In the body of a range over a map (or over maps.Keys, Values or All), where it reaches
what outlives the loop:

	names = append(names, k)   // used before it is sorted
	fmt.Fprintln(w, k)         // or w.WriteString(k), write(w, k)
	v := b.Input(k, t)         // an ir.Builder that adds ops or values
	c.Remark(kind, op, "%s", k) // of a passes.Context
	ch <- k
	last = k                   // and "if v > most { most, who = v, k }" for who
	text += k; sum += float
	id[k] = len(id)            // or id[k] = n; n++
	return k                   // one of several

Integer sums, other maps, max and min, slices that are sorted, and what one key alone
can reach are not reported. Cure: for _, k := range slices.Sorted(maps.Keys(m)).`,
	URL:      "https://pkg.go.dev/github.com/kiln-project/kiln/cmd/kilnvet/maporder",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

// effect is one way in which an order gets out of a loop.
type effect struct {
	node ast.Node
	what string // "names is appended to"
}

func run(pass *analysis.Pass) (any, error) {
	out := ignore.For(pass)
	defer out.Close()
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	// Of nested loops the outer one is reported first, and an effect once.
	seen := map[token.Pos]bool{}
	for cur := range root.Preorder((*ast.RangeStmt)(nil)) {
		l := newLoop(pass.TypesInfo, cur)
		if l == nil || l.single() {
			continue
		}
		fixes := l.fixes()
		for _, e := range l.effects() {
			if seen[e.node.Pos()] {
				continue
			}
			seen[e.node.Pos()] = true
			out.Report(analysis.Diagnostic{
				Pos: e.node.Pos(), End: e.node.End(),
				Message:        e.what + " in the order of " + l.source.describe() + ": iterate over " + l.source.sorted(pass.TypesInfo),
				SuggestedFixes: fixes,
			})
			fixes = nil // one rewriting cures all effects of a loop
		}
	}
	for cur := range root.Preorder((*ast.CallExpr)(nil)) {
		if e, src := collected(pass.TypesInfo, cur); e != nil {
			out.Report(analysis.Diagnostic{
				Pos: e.node.Pos(), End: e.node.End(),
				Message: e.what + " in the order of " + src.describe() + ": use " + src.sorted(pass.TypesInfo),
			})
		}
	}
	return nil, nil
}
