package walkmutate

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/irtype"
	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// walk is a loop over a slice of a graph or an op.
type walk struct {
	info  *types.Info
	cur   inspector.Cursor
	stmt  *ast.RangeStmt
	fn    *function
	over  place.Place
	graph bool // the slice is a graph's
}

// newWalk returns the walk that a range statement is, or nil.
func newWalk(info *types.Info, cur inspector.Cursor) *walk {
	stmt := cur.Node().(*ast.RangeStmt)
	x := ast.Unparen(stmt.X)
	if call, ok := x.(*ast.CallExpr); ok && len(call.Args) == 1 {
		switch called(info, call) {
		case "len", "slices.All", "slices.Values", "slices.Backward":
			x = call.Args[0]
		}
	}
	w := &walk{info: info, cur: cur, stmt: stmt, fn: newFunction(info, cur)}
	var owner string
	w.over, owner = w.slice(x)
	w.graph = owner == "Graph"
	if owner == "" {
		return nil
	}
	return w
}

// slice returns the slice of a graph or an op that e is, is a part of, or is a local
// name for, and whether it is of a Graph or an Op; else "".
func (w *walk) slice(e ast.Expr) (place.Place, string) {
	switch e := ast.Unparen(e).(type) {
	case *ast.SliceExpr:
		return w.slice(e.X)
	case *ast.SelectorExpr:
		if _, ok := w.info.TypeOf(e).Underlying().(*types.Slice); ok {
			if owner := irtype.Name(w.info.TypeOf(e.X)); owner == "Graph" || owner == "Op" {
				if p, ok := place.Of(w.info, e); ok {
					return p, owner
				}
			}
		}
	case *ast.Ident:
		o := w.info.ObjectOf(e)
		if w.fn.asking[o] {
			break // ops = ops[1:]
		}
		w.fn.asking[o] = true
		defer delete(w.fn.asking, o)
		for _, src := range w.fn.sources[o] {
			if src.ranged || w.grows(o, src.expr) {
				continue // it stays a name for the same array
			}
			p, owner := w.slice(src.expr)
			if owner != "" && !w.replaced(p, src.expr.End(), w.stmt.Pos()) {
				return p, owner
			}
		}
	}
	return place.Place{}, ""
}

// grows reports whether e is append(o, …).
func (w *walk) grows(o types.Object, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || called(w.info, call) != "append" {
		return false
	}
	id, ok := call.Args[0].(*ast.Ident)
	return ok && w.info.ObjectOf(id) == o
}

// replaced reports whether p is assigned between two positions of the function.
func (w *walk) replaced(p place.Place, from, to token.Pos) bool {
	for _, c := range w.fn.changes {
		if q, ok := place.Of(w.info, c.target); ok && !c.elements && p == q && from < c.target.Pos() && c.target.Pos() < to {
			return true
		}
	}
	return false
}

// check reports the changes of what is walked.
func (w *walk) check(report func(ast.Node, string)) {
	for _, c := range w.fn.changes {
		if !within(c.cur.Node(), w.stmt.Body) || w.ends(c.cur) {
			continue
		}
		if w.changed(c) {
			report(c.cur.Node(), w.over.String()+" changes while it is walked: build a new graph, or collect the changes and apply them after the loop")
		} else if w.graph && w.changesOp(c) {
			report(c.cur.Node(), types.ExprString(c.target)+" changes an op while its graph is walked: build a new graph with ir.NewBuilder")
		}
	}
}

// changed reports whether c changes the slice that is walked.
func (w *walk) changed(c change) bool {
	if c.elements {
		if s, ok := c.target.(*ast.SliceExpr); ok && c.appends && s.Slice3 {
			return false // a capped slice is copied
		}
		p, owner := w.slice(c.target)
		return owner != "" && p == w.over
	}
	switch e := c.target.(type) {
	case *ast.IndexExpr: // g.Ops[i] = op, not g.Ops[i].Loc = "x"
		p, owner := w.slice(e.X)
		return owner != "" && p == w.over
	case *ast.SelectorExpr:
		p, ok := place.Of(w.info, e)
		return ok && w.over.Within(p)
	case *ast.StarExpr: // *g = ir.Graph{}
		p, ok := place.Of(w.info, e)
		return ok && w.over.Within(p)
	}
	return false
}

// changesOp reports whether c changes the operands or results of an op that the
// function did not make.
func (w *walk) changesOp(c change) bool {
	if c.appends {
		return false // what it is assigned to counts
	}
	for e := c.target; ; {
		switch x := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			edges := x.Sel.Name == "Args" || x.Sel.Name == "Results"
			return edges && irtype.Name(w.info.TypeOf(x.X)) == "Op" && w.fn.given(c.target, c.elements)
		default:
			return false
		}
	}
}

// ends reports whether the walk ends right after c.
func (w *walk) ends(c inspector.Cursor) bool {
	for c.ParentEdgeKind() != edge.BlockStmt_List {
		if c.Node() == ast.Node(w.stmt.Body) {
			return false
		}
		c = c.Parent()
	}
	for next, ok := c.NextSibling(); ok; next, ok = next.NextSibling() {
		switch s := next.Node().(type) {
		case *ast.ReturnStmt:
			return w.leaves(next, false)
		case *ast.BranchStmt:
			return s.Tok == token.BREAK && s.Label == nil && w.leaves(next, true)
		}
	}
	return false
}

// leaves reports whether a return, or a break, leaves the walk and not something in it.
func (w *walk) leaves(c inspector.Cursor, isBreak bool) bool {
	for up := range c.Enclosing((*ast.FuncLit)(nil), (*ast.RangeStmt)(nil), (*ast.ForStmt)(nil), (*ast.SwitchStmt)(nil), (*ast.TypeSwitchStmt)(nil), (*ast.SelectStmt)(nil)) {
		if up.Node() == ast.Node(w.stmt) {
			return true
		}
		if _, ok := up.Node().(*ast.FuncLit); ok || isBreak {
			return false
		}
	}
	return false
}

func within(n, outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() }
