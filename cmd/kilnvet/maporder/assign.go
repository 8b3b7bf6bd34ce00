package maporder

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// assigned describes how assignment i of s lets the order out of the loop, or is "".
func (l *loop) assigned(c inspector.Cursor, s *ast.AssignStmt, i int) string {
	lhs, rhs := s.Lhs[i], s.Rhs[0]
	if len(s.Rhs) == len(s.Lhs) {
		rhs = s.Rhs[i]
	}
	p, ok := place.Of(l.info, lhs)
	if !ok || s.Tok == token.DEFINE && l.inside(p.Root) {
		return ""
	}
	if l.numbers(p, lhs, rhs) {
		return p.String() + " gets a number that counts"
	}
	if l.inside(p.Root) || l.ownSlot(lhs) || l.oneKey(c) || l.scratch(p) {
		return ""
	}
	switch {
	case s.Tok != token.ASSIGN:
		if l.varies(rhs) {
			return rounding(p, l.info.TypeOf(lhs))
		}
	case l.grows(p, rhs):
		return l.appended(p, rhs)
	case place.Holds(l.info, rhs, p):
		return l.folded(p, lhs, rhs)
	case !l.varies(rhs):
	case l.varyingIndex(lhs):
		// An element of its own, if indexes differ: not known here.
	case l.countedIndex(lhs):
		list := lhs.(*ast.IndexExpr).X
		if q, ok := place.Of(l.info, list); ok && !l.settled(q) {
			return q.String() + " is filled"
		}
	case l.checked(p), l.ordered(c, p, rhs):
	default:
		return p.String() + " keeps one of several values, chosen"
	}
	return ""
}

// numbers reports whether an element or a field that belongs to the iteration gets
// the value of a counter: then the order decides who gets which number.
func (l *loop) numbers(p place.Place, lhs, rhs ast.Expr) bool {
	if !l.varies(lhs) || p.Path == "" {
		return false
	}
	found := false
	ast.Inspect(rhs, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.Ident:
			found = found || l.counters[l.info.ObjectOf(e)]
		case *ast.CallExpr:
			if isBuiltin(l.info, e, "len") {
				q, ok := place.Of(l.info, e.Args[0])
				found = found || ok && !l.inside(q.Root) && !l.varies(e.Args[0]) && p != q && p.Within(q)
			}
		}
		return !found
	})
	return found
}

// ownSlot reports whether lhs is an element, or a part of one, that no other
// iteration has.
func (l *loop) ownSlot(lhs ast.Expr) bool { return indexed(lhs, l.perKey) }

// varyingIndex reports whether lhs is an element, or a part of one, whose index varies.
func (l *loop) varyingIndex(lhs ast.Expr) bool {
	return indexed(lhs, func(index ast.Expr) bool { return l.varies(index) })
}

// indexed reports whether pred holds for an index on the way to lhs.
func indexed(lhs ast.Expr, pred func(ast.Expr) bool) bool {
	for {
		switch e := ast.Unparen(lhs).(type) {
		case *ast.IndexExpr:
			if pred(e.Index) {
				return true
			}
			lhs = e.X
		case *ast.SelectorExpr:
			lhs = e.X
		case *ast.StarExpr:
			lhs = e.X
		default:
			return false
		}
	}
}

// countedIndex reports whether lhs is list[n] with an n that the body counts.
func (l *loop) countedIndex(lhs ast.Expr) bool {
	e, ok := lhs.(*ast.IndexExpr)
	return ok && place.Mentions(l.info, e.Index, func(o types.Object) bool { return l.counters[o] })
}

// scratch reports whether p is a variable of the function that nothing outside the
// loop reads.
func (l *loop) scratch(p place.Place) bool {
	if !l.local(p.Root) {
		return false
	}
	for c := range l.fn.Preorder((*ast.Ident)(nil)) {
		if l.info.Uses[c.Node().(*ast.Ident)] == p.Root && !within(c.Node(), l.stmt) {
			return false
		}
	}
	return true
}

// local reports whether o is a variable of the outermost function whose value ends
// with it: no parameter, no result, no pointer to something that stays.
func (l *loop) local(o types.Object) bool {
	in := func(n ast.Node) bool { return n.Pos() <= o.Pos() && o.Pos() < n.End() }
	if _, pointer := o.Type().Underlying().(*types.Pointer); pointer || !in(l.fn.Node()) {
		return false
	}
	for c := range l.fn.Preorder((*ast.FuncType)(nil)) {
		if in(c.Node()) {
			return false
		}
	}
	d, ok := l.fn.Node().(*ast.FuncDecl)
	return !ok || d.Recv == nil || !in(d.Recv)
}

// rounding describes an accumulation whose order shows, by its type.
func rounding(p place.Place, t types.Type) string {
	switch {
	case basic(t, types.IsString):
		return p.String() + " is concatenated"
	case basic(t, types.IsFloat|types.IsComplex):
		return p.String() + " is accumulated, rounding,"
	}
	return ""
}

// grows reports whether val is p with something more in it.
func (l *loop) grows(p place.Place, val ast.Expr) bool {
	call, ok := ast.Unparen(val).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	if !isBuiltin(l.info, call, "append") && !isFunc(l.info, call, "slices", "Insert", "AppendSeq", "Concat") {
		return false
	}
	q, ok := place.Of(l.info, call.Args[0])
	return ok && q == p
}

// appended describes an append of something that varies to a slice that is used
// before it is sorted.
func (l *loop) appended(p place.Place, val ast.Expr) string {
	args := ast.Unparen(val).(*ast.CallExpr).Args[1:]
	if isFunc(l.info, ast.Unparen(val).(*ast.CallExpr), "slices", "Insert") && len(args) > 0 && l.varies(args[0]) {
		return "" // at a place that was searched for
	}
	for _, a := range args {
		if l.varies(a) {
			if l.settled(p) {
				return ""
			}
			return p.String() + " is appended to, and not sorted before its use,"
		}
	}
	return ""
}

// folded describes an accumulation p = f(p, …) whose order shows, or is "".
func (l *loop) folded(p place.Place, lhs, val ast.Expr) string {
	if !l.varies(val) {
		return ""
	}
	isOld := func(e ast.Expr) bool {
		q, ok := place.Of(l.info, e)
		return ok && q == p
	}
	switch e := ast.Unparen(val).(type) {
	case *ast.BinaryExpr:
		if basic(l.info.TypeOf(lhs), types.IsInteger|types.IsBoolean) && l.commutes(e, isOld) {
			return ""
		}
		if what := rounding(p, l.info.TypeOf(lhs)); what != "" {
			return what
		}
	case *ast.CallExpr:
		if isBuiltin(l.info, e, "max", "min") || isFunc(l.info, e, "math", "Max", "Min") {
			return ""
		}
		if isBuiltin(l.info, e, "append") {
			if s, ok := ast.Unparen(e.Args[0]).(*ast.SliceExpr); ok && isOld(s.X) {
				return p.String() + " keeps one of several values, chosen"
			}
		}
	}
	return p.String() + " is made from what it was before,"
}

// commutes reports whether e is a chain p + x + y of one commutative operator.
func (l *loop) commutes(e *ast.BinaryExpr, isOld func(ast.Expr) bool) bool {
	switch e.Op {
	case token.ADD, token.MUL, token.AND, token.OR, token.XOR, token.LAND, token.LOR:
	case token.SUB:
		return isOld(e.X)
	default:
		return false
	}
	for _, x := range []ast.Expr{e.X, e.Y} {
		if isOld(x) {
			return true
		}
		if b, ok := ast.Unparen(x).(*ast.BinaryExpr); ok && b.Op == e.Op && l.commutes(b, isOld) {
			return true
		}
	}
	return false
}

// checked reports whether p is tested in the loop and what follows leaves the
// iteration, as in if err = f(k); err != nil { return err }. The return is judged
// by itself.
func (l *loop) checked(p place.Place) bool {
	for c := range l.body().Preorder((*ast.IfStmt)(nil)) {
		s := c.Node().(*ast.IfStmt)
		if place.Holds(l.info, s.Cond, p) && leaves(s.Body) && types.Identical(p.Root.Type(), types.Universe.Lookup("error").Type()) {
			if b, ok := s.Body.List[len(s.Body.List)-1].(*ast.BranchStmt); !ok || b.Tok == token.CONTINUE {
				return true
			}
		}
	}
	return false
}
