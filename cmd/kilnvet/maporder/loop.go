package maporder

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// loop is a range statement in an order that nobody decides.
type loop struct {
	info   *types.Info
	cur    inspector.Cursor
	stmt   *ast.RangeStmt
	source *source
	key    types.Object     // different in every iteration; nil if nothing is
	fn     inspector.Cursor // the outermost function around it

	// varying are the variables whose value depends on the iteration, as far as the
	// body is concerned.
	varying map[types.Object]bool
	// counters are the integers from outside that the body counts with.
	counters map[types.Object]bool
}

// newLoop returns the loop of a range statement, or nil if its order is no map's.
func newLoop(info *types.Info, cur inspector.Cursor) *loop {
	stmt := cur.Node().(*ast.RangeStmt)
	src := sourceOf(info, stmt.X)
	if src == nil {
		return nil
	}
	l := &loop{info: info, cur: cur, stmt: stmt, source: src, fn: outermost(cur)}
	l.setVariables()
	if _, slice := info.TypeOf(stmt.X).Underlying().(*types.Slice); !slice && src.iter != "Values" {
		l.key = l.object(stmt.Key)
	} else if slice && src.iter == "Keys" {
		l.key = l.object(stmt.Value)
	}
	return l
}

// setVariables finds out which variables vary and which count.
func (l *loop) setVariables() {
	l.varying, l.counters = map[types.Object]bool{}, map[types.Object]bool{}
	for _, e := range []ast.Expr{l.stmt.Key, l.stmt.Value} {
		if o := l.object(e); o != nil {
			l.varying[o] = true
		}
	}
	for changed := true; changed; {
		changed = l.spread()
	}
	reset := map[types.Object]bool{}
	for c := range l.body().Preorder((*ast.IncDecStmt)(nil), (*ast.AssignStmt)(nil)) {
		switch s := c.Node().(type) {
		case *ast.IncDecStmt:
			l.count(s.X)
		case *ast.AssignStmt:
			for i, e := range s.Lhs {
				o := l.object(e)
				switch {
				case o == nil || s.Tok == token.DEFINE:
				case s.Tok != token.ASSIGN || len(s.Lhs) == len(s.Rhs) && place.Holds(l.info, s.Rhs[i], place.Place{Root: o}):
					l.count(e)
				default:
					reset[o] = true
				}
			}
		}
	}
	for o := range reset {
		delete(l.counters, o)
	}
}

func (l *loop) count(e ast.Expr) {
	if o := l.object(e); o != nil && !l.inside(o) && basic(o.Type(), types.IsInteger) {
		l.counters[o] = true
	}
}

// spread carries variation over the assignments of the body, and reports whether
// it found more.
func (l *loop) spread() bool {
	changed := false
	mark := func(e ast.Expr) {
		if o := l.object(e); o != nil && !l.varying[o] {
			l.varying[o], changed = true, true
		}
	}
	for c := range l.body().Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.RangeStmt)(nil)) {
		switch s := c.Node().(type) {
		case *ast.AssignStmt:
			for i, e := range s.Lhs {
				rhs := s.Rhs[0]
				if len(s.Rhs) == len(s.Lhs) {
					rhs = s.Rhs[i]
				}
				o := l.object(e)
				switch {
				case o == nil:
				case l.inside(o):
					if l.varies(rhs) || s.Tok != token.DEFINE && l.conditional(c) {
						mark(e)
					}
				case s.Tok == token.ASSIGN && l.varies(rhs) && !place.Holds(l.info, rhs, place.Place{Root: o}):
					mark(e) // an outer variable that is set anew, such as err
				}
			}
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if len(s.Values) == len(s.Names) && l.varies(s.Values[i]) || len(s.Values) == 1 && l.varies(s.Values[0]) {
					mark(name)
				}
			}
		case *ast.RangeStmt:
			if l.varies(s.X) || sourceOf(l.info, s.X) != nil {
				mark(s.Key)
				mark(s.Value)
			}
		}
	}
	return changed
}

// conditional reports whether a condition that varies stands between c and the loop.
func (l *loop) conditional(c inspector.Cursor) bool {
	for up := range c.Enclosing((*ast.IfStmt)(nil), (*ast.CaseClause)(nil), (*ast.SwitchStmt)(nil)) {
		if !within(up.Node(), l.stmt.Body) {
			return false
		}
		switch s := up.Node().(type) {
		case *ast.IfStmt:
			if l.varies(s.Cond) {
				return true
			}
		case *ast.SwitchStmt:
			if s.Tag != nil && l.varies(s.Tag) {
				return true
			}
		case *ast.CaseClause:
			for _, e := range s.List {
				if l.varies(e) {
					return true
				}
			}
		}
	}
	return false
}

func (l *loop) body() inspector.Cursor { return l.cur.ChildAt(edge.RangeStmt_Body, -1) }

// object is the variable that e names, or nil. The blank identifier is none.
func (l *loop) object(e ast.Expr) types.Object {
	id, ok := e.(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	if v, ok := l.info.ObjectOf(id).(*types.Var); ok {
		return v
	}
	return nil
}

// inside reports whether o is declared in the loop: every iteration has its own.
func (l *loop) inside(o types.Object) bool {
	return l.stmt.Pos() <= o.Pos() && o.Pos() < l.stmt.End()
}

// varies reports whether n depends on the iteration.
func (l *loop) varies(n ast.Node) bool {
	return place.Mentions(l.info, n, func(o types.Object) bool { return l.varying[o] })
}

// single reports whether the loop runs only for a map of at most one element.
func (l *loop) single() bool {
	for _, g := range guards(l.cur, l.fn.Node()) {
		for _, c := range g.conjuncts() {
			b, ok := c.cond.(*ast.BinaryExpr)
			if !ok || b.Op != token.EQL && !c.negated || b.Op != token.NEQ && b.Op != token.GTR && c.negated {
				continue
			}
			call, ok := ast.Unparen(b.X).(*ast.CallExpr)
			one := l.info.Types[b.Y].Value
			if ok && isBuiltin(l.info, call, "len") && one != nil && one.ExactString() == "1" &&
				types.ExprString(call.Args[0]) == types.ExprString(l.source.m) {
				return true
			}
		}
	}
	return false
}

// outermost is the declared function around c, or the outermost literal.
func outermost(c inspector.Cursor) inspector.Cursor {
	out := c
	for up := range c.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		out = up
	}
	return out
}

func within(n, outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() }

// basic reports whether t, or what underlies it, is a basic type with a property.
func basic(t types.Type, info types.BasicInfo) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&info != 0
}
