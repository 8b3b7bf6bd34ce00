// Package place names what an assignable expression denotes, so that two
// expressions of one function can be compared: xs, out.Names, m.Entries[i].Ops.
package place

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"
)

// Place is a variable and the way from it. Pointers are followed silently:
// p.f and (*p).f are one place. Indexes are compared as text.
type Place struct {
	Root types.Object
	Path string // such as ".Entries[i].Ops"; "" is the variable itself
}

// Of returns the place that e denotes, if it begins at a variable.
func Of(info *types.Info, e ast.Expr) (Place, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return Of(info, e.X)
	case *ast.StarExpr:
		return Of(info, e.X)
	case *ast.Ident:
		if v, ok := info.ObjectOf(e).(*types.Var); ok {
			return Place{Root: v}, true
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			if _, ok := info.Uses[x].(*types.PkgName); ok {
				return Of(info, e.Sel)
			}
		}
		if sel := info.Selections[e]; sel != nil && sel.Kind() == types.FieldVal {
			if p, ok := Of(info, e.X); ok {
				return Place{p.Root, p.Path + "." + e.Sel.Name}, true
			}
		}
	case *ast.IndexExpr:
		if p, ok := Of(info, e.X); ok {
			return Place{p.Root, p.Path + "[" + types.ExprString(e.Index) + "]"}, true
		}
	}
	return Place{}, false
}

// Within reports whether p is q or a part of it.
func (p Place) Within(q Place) bool {
	rest, ok := strings.CutPrefix(p.Path, q.Path)
	return ok && p.Root == q.Root && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Overlaps reports whether a change of one is a change of the other.
func (p Place) Overlaps(q Place) bool { return p.Within(q) || q.Within(p) }

// String is the place as one would write it.
func (p Place) String() string { return p.Root.Name() + p.Path }

// Widest returns the longest place around an identifier: of xs in
// f(xs.names[0]) that is xs.names[0]. A method that is called is no part of it.
func Widest(info *types.Info, id inspector.Cursor) (inspector.Cursor, Place, bool) {
	p, ok := Of(info, id.Node().(ast.Expr))
	cur := id
	for ok {
		switch cur.ParentEdgeKind() {
		case edge.ParenExpr_X, edge.StarExpr_X, edge.SelectorExpr_X, edge.IndexExpr_X, edge.SelectorExpr_Sel:
		default:
			return cur, p, true
		}
		wider, is := Of(info, cur.Parent().Node().(ast.Expr))
		if !is {
			return cur, p, true
		}
		cur, p = cur.Parent(), wider
	}
	return cur, p, false
}

// Mentions reports whether n mentions an object for which pred holds.
func Mentions(info *types.Info, n ast.Node, pred func(types.Object) bool) bool {
	found := false
	if n == nil {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if o := info.ObjectOf(id); o != nil && pred(o) {
				found = true
			}
		}
		return !found
	})
	return found
}

// Holds reports whether n mentions p, a part of it or a whole that has it.
func Holds(info *types.Info, n ast.Node, p Place) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && !found {
			if q, ok := Of(info, e); ok {
				// The place is the longest one: of xs.a, the xs alone is none.
				found = q.Overlaps(p)
				return false
			}
		}
		return !found
	})
	return found
}
