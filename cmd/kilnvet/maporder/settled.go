package maporder

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// use is what an expression does with a slice whose order is a map's.
type use uint8

const (
	sees  use = iota // the order gets on
	blind            // nothing depends on the order
	sorts            // the order ends here
)

// settled reports whether the order of p, filled by the loop, ends before anything
// sees it.
func (l *loop) settled(p place.Place) bool { return l.settledAfter(p, l.stmt.End()) }

func (l *loop) settledAfter(p place.Place, end token.Pos) bool {
	for c := range l.fn.Preorder((*ast.Ident)(nil)) {
		id := c.Node().(*ast.Ident)
		if id.Pos() < end || l.info.Uses[id] != p.Root {
			continue
		}
		expr, q, ok := place.Widest(l.info, c)
		if !ok || !q.Overlaps(p) {
			continue
		}
		switch l.useOf(expr, q, p) {
		case sees:
			return false
		case sorts:
			return true
		}
	}
	return l.local(p.Root)
}

// useOf classifies one mention of p or a part of it.
func (l *loop) useOf(c inspector.Cursor, q, p place.Place) use {
	if !p.Within(q) { // p[0], p.x
		return sees
	}
	for {
		parent := c.Parent()
		switch n := parent.Node().(type) {
		case *ast.ParenExpr, *ast.UnaryExpr, *ast.SliceExpr:
		case *ast.SelectorExpr: // a method of the slice
			call, ok := parent.Parent().Node().(*ast.CallExpr)
			if ok && q == p && sortName(n.Sel.Name) && call.Fun == n {
				return sorts
			}
			return sees
		case *ast.CallExpr:
			switch {
			case q != p:
				return l.wholeUse(n)
			case isBuiltin(l.info, n, "len", "cap", "clear"),
				isFunc(l.info, n, "slices", "Contains", "ContainsFunc", "Max", "Min"):
				return blind
			case l.sortCall(n):
				return sorts
			case isBuiltin(l.info, n, "append") && c.ParentEdgeKind() == edge.CallExpr_Args && c.ParentEdgeIndex() == 0:
				if s, ok := parent.Parent().Node().(*ast.AssignStmt); ok && len(s.Lhs) == len(s.Rhs) {
					if to, ok := place.Of(l.info, s.Lhs[parent.ParentEdgeIndex()]); ok && to == p {
						return blind // it grows on
					}
				}
				return sees
			case l.info.Types[n.Fun].IsType(), isFunc(l.info, n, "slices", "Values", "All"):
			default:
				return sees
			}
		case *ast.BinaryExpr:
			if id, ok := n.Y.(*ast.Ident); ok && id.Name == "nil" {
				return blind
			}
			return sees
		case *ast.AssignStmt:
			switch {
			case c.ParentEdgeKind() != edge.AssignStmt_Lhs:
				if _, ok := c.Node().(*ast.SliceExpr); ok && len(n.Lhs) == len(n.Rhs) {
					if to, ok := place.Of(l.info, n.Lhs[c.ParentEdgeIndex()]); ok && to == p {
						return blind // list = list[:n]
					}
				}
				return sees
			case len(n.Lhs) == len(n.Rhs) && place.Holds(l.info, n.Rhs[c.ParentEdgeIndex()], p):
				return blind // judged at its other mention
			}
			return sorts // it is replaced
		case *ast.RangeStmt:
			if c.ParentEdgeKind() == edge.RangeStmt_X && q == p {
				if len(l.again(parent).effects()) == 0 {
					return blind
				}
			}
			return sees
		default:
			return sees
		}
		c = parent
	}
}

// wholeUse classifies a call that is handed the whole of which p is a part.
func (l *loop) wholeUse(call *ast.CallExpr) use {
	if l.sortCall(call) {
		return sorts
	}
	return sees
}

// again is a loop over a slice in the order of this one.
func (l *loop) again(cur inspector.Cursor) *loop {
	n := &loop{info: l.info, cur: cur, stmt: cur.Node().(*ast.RangeStmt), source: l.source, fn: l.fn}
	n.setVariables()
	return n
}

// sortCall reports whether a call sorts its operand, or returns it sorted.
func (l *loop) sortCall(call *ast.CallExpr) bool {
	f := callee(l.info, call)
	if f == nil {
		id, ok := ast.Unparen(call.Fun).(*ast.Ident) // a function in a variable
		return ok && sortName(id.Name)
	}
	if f.Pkg() != nil && f.Pkg().Path() == "sort" {
		return !strings.HasPrefix(f.Name(), "Search") && !strings.Contains(f.Name(), "Sorted")
	}
	return sortName(f.Name())
}

// sortName reports whether a function of that name sorts: slices.SortFunc,
// slices.Sorted, sortRows.
func sortName(name string) bool { return strings.HasPrefix(strings.ToLower(name), "sort") }

// collected returns how the result of slices.Collect or slices.AppendSeq carries
// the order of a map on, and which, or nil.
func collected(info *types.Info, cur inspector.Cursor) (*effect, *source) {
	call := cur.Node().(*ast.CallExpr)
	if !isFunc(info, call, "slices", "Collect", "AppendSeq") {
		return nil, nil
	}
	inner, ok := ast.Unparen(call.Args[len(call.Args)-1]).(*ast.CallExpr)
	if !ok {
		return nil, nil
	}
	src := iterOf(info, inner)
	if src == nil {
		return nil, nil
	}
	l := &loop{info: info, source: src, fn: outermost(cur)}
	var to ast.Expr
	switch n := cur.Parent().Node().(type) {
	case *ast.AssignStmt:
		if len(n.Lhs) == len(n.Rhs) {
			to = n.Lhs[cur.ParentEdgeIndex()]
		}
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) && l.fn.Node() != cur.Node() {
			to = n.Names[cur.ParentEdgeIndex()]
		}
	case *ast.RangeStmt:
		return nil, nil // the loop is judged
	case *ast.CallExpr:
		if isBuiltin(info, n, "len") || isFunc(info, n, "slices", "Contains", "ContainsFunc", "Max", "Min") || l.sortCall(n) {
			return nil, nil
		}
	}
	if to != nil {
		if p, ok := place.Of(info, to); ok && l.settledAfter(p, call.End()) {
			return nil, nil
		}
	}
	return &effect{call, types.ExprString(call.Fun) + " gives a slice that is not sorted before its use,"}, src
}
