package maporder

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/edge"
	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// guard is a condition under which a statement is reached.
type guard struct {
	cond    ast.Expr
	negated bool
}

// guards are the conditions between c and the node around it: those of the
// statements it stands in, and those that leave the block before it.
func guards(c inspector.Cursor, around ast.Node) []guard {
	var list []guard
	for ; c.Node() != nil && within(c.Node(), around) && c.Node() != around; c = c.Parent() {
		switch kind := c.ParentEdgeKind(); kind {
		case edge.IfStmt_Body, edge.IfStmt_Else:
			list = append(list, guard{c.Parent().Node().(*ast.IfStmt).Cond, kind == edge.IfStmt_Else})
		case edge.CaseClause_Body, edge.BlockStmt_List:
			if clause, ok := c.Parent().Node().(*ast.CaseClause); ok && len(clause.List) == 1 {
				list = append(list, caseGuard(c.Parent(), clause))
			}
			for prev, ok := c.PrevSibling(); ok; prev, ok = prev.PrevSibling() {
				if prev.ParentEdgeKind() != kind {
					break
				}
				if s, ok := prev.Node().(*ast.IfStmt); ok && s.Else == nil && leaves(s.Body) {
					list = append(list, guard{s.Cond, true})
				}
			}
		}
	}
	return list
}

// caseGuard is the condition of a case with one expression.
func caseGuard(cur inspector.Cursor, clause *ast.CaseClause) guard {
	if s, ok := cur.Parent().Parent().Node().(*ast.SwitchStmt); ok && s.Tag != nil {
		return guard{cond: &ast.BinaryExpr{X: s.Tag, Op: token.EQL, OpPos: clause.Pos(), Y: clause.List[0]}}
	}
	return guard{cond: clause.List[0]}
}

// leaves reports whether control does not reach the end of a block.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch s := b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				return fun.Name == "panic"
			case *ast.SelectorExpr:
				switch fun.Sel.Name {
				case "Fatal", "Fatalf", "Fatalln", "Exit", "FailNow", "Skip", "Skipf", "SkipNow":
					return true
				}
			}
		}
	}
	return false
}

// conjuncts are the conditions that all hold where g does.
func (g guard) conjuncts() []guard {
	switch e := ast.Unparen(g.cond).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return guard{e.X, !g.negated}.conjuncts()
		}
	case *ast.BinaryExpr:
		if e.Op == token.LAND && !g.negated || e.Op == token.LOR && g.negated {
			return append(guard{e.X, g.negated}.conjuncts(), guard{e.Y, g.negated}.conjuncts()...)
		}
	}
	return []guard{{ast.Unparen(g.cond), g.negated}}
}

// oneKey reports whether at most one iteration reaches c: its key is compared with
// something that does not vary.
func (l *loop) oneKey(c inspector.Cursor) bool {
	for _, g := range guards(c, l.stmt.Body) {
		for _, g := range g.conjuncts() {
			b, ok := g.cond.(*ast.BinaryExpr)
			if ok && (b.Op == token.EQL && !g.negated || b.Op == token.NEQ && g.negated) &&
				(l.perKey(b.X) && !l.varies(b.Y) || l.perKey(b.Y) && !l.varies(b.X)) {
				return true
			}
		}
	}
	return false
}

// perKey reports whether e has another value for every key: it is the key, or made
// of it in a way that keeps keys apart.
func (l *loop) perKey(e ast.Expr) bool {
	if l.key == nil {
		return false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return l.info.ObjectOf(e) == l.key
	case *ast.BinaryExpr: // "packed." + k
		return e.Op == token.ADD && (l.perKey(e.X) || l.perKey(e.Y))
	case *ast.CompositeLit: // pair{k, i}
		for _, x := range e.Elts {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			if l.perKey(x) {
				return true
			}
		}
	case *ast.CallExpr: // string(k)
		return len(e.Args) == 1 && l.info.Types[e.Fun].IsType() && l.perKey(e.Args[0])
	}
	return false
}

// ordered reports whether an assignment of val to p at c is guarded by a comparison
// of the two, as in if v > most { most = v }.
func (l *loop) ordered(c inspector.Cursor, p place.Place, val ast.Expr) bool {
	text := types.ExprString(ast.Unparen(val))
	isOld := func(e ast.Expr) bool {
		q, ok := place.Of(l.info, e)
		return ok && q == p
	}
	isNew := func(e ast.Expr) bool { return types.ExprString(ast.Unparen(e)) == text }
	for _, g := range guards(c, l.stmt.Body) {
		found := false
		ast.Inspect(g.cond, func(n ast.Node) bool {
			switch e := n.(type) {
			case *ast.BinaryExpr:
				switch e.Op {
				case token.LSS, token.LEQ, token.GTR, token.GEQ:
					found = found || isOld(e.X) && isNew(e.Y) || isOld(e.Y) && isNew(e.X)
				}
			case *ast.CallExpr: // strings.Compare(k, who), k.Before(who)
				operands := e.Args
				if sel, ok := e.Fun.(*ast.SelectorExpr); ok {
					operands = append([]ast.Expr{sel.X}, operands...)
				}
				before, after := false, false
				for _, x := range operands {
					before, after = before || isOld(x), after || isNew(x)
				}
				found = found || before && after
			}
			return !found
		})
		if found {
			return true
		}
	}
	return false
}
