package walkmutate

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/irtype"
	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// source is an expression that a variable gets its value from.
type source struct {
	expr   ast.Expr
	ranged bool // the variable gets its elements
}

// function is what is known about a function and the literals in it.
type function struct {
	info    *types.Info
	params  map[types.Object]bool // those of literals and the receiver too, not results
	sources map[types.Object][]source
	changes []change
	asking  map[types.Object]bool // the variables whose origin is being asked for
}

// outermost is the outermost function around c, a literal in a package variable among them.
func outermost(c inspector.Cursor) inspector.Cursor {
	outer := c
	for up := range c.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		outer = up
	}
	return outer
}

// newFunction looks at the outermost function around c.
func newFunction(info *types.Info, c inspector.Cursor) *function {
	outer := outermost(c)
	f := &function{
		info: info, params: map[types.Object]bool{}, sources: map[types.Object][]source{},
		changes: changes(info, outer), asking: map[types.Object]bool{},
	}
	params := func(list *ast.FieldList) {
		if list == nil {
			return
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				f.params[info.Defs[name]] = true
			}
		}
	}
	from := func(e ast.Expr, s source) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
			o := info.ObjectOf(id)
			f.sources[o] = append(f.sources[o], s)
		}
	}
	for n := range outer.Preorder((*ast.FuncDecl)(nil), (*ast.FuncType)(nil), (*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.RangeStmt)(nil)) {
		switch n := n.Node().(type) {
		case *ast.FuncDecl:
			params(n.Recv)
		case *ast.FuncType:
			params(n.Params)
		case *ast.AssignStmt:
			if len(n.Lhs) == len(n.Rhs) && (n.Tok == token.ASSIGN || n.Tok == token.DEFINE) {
				for i, e := range n.Lhs {
					from(e, source{expr: n.Rhs[i]})
				}
			}
		case *ast.ValueSpec:
			if len(n.Names) == len(n.Values) {
				for i, e := range n.Names {
					from(e, source{expr: n.Values[i]})
				}
			}
		case *ast.RangeStmt:
			if n.Value != nil {
				from(n.Value, source{n.X, true})
			}
		}
	}
	return f
}

// given reports whether a store to e, or to its elements, changes what the function
// did not make itself.
func (f *function) given(e ast.Expr, elements bool) bool {
	given, _ := f.origin(e, elements)
	return given
}

// origin reports whether what a store to e changes was given to the function, and
// whether the way there leads through a type of package ir. shared: between e and the
// store the way follows a pointer or goes into a slice or map, so that a copy of e
// does not help.
func (f *function) origin(e ast.Expr, shared bool) (given, ofIR bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.StarExpr:
		given, ofIR = f.origin(e.X, true)
		return given, ofIR || irtype.Name(f.info.TypeOf(e)) != ""
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return f.origin(e.X, false)
		}
	case *ast.SliceExpr:
		return f.origin(e.X, true)
	case *ast.TypeAssertExpr:
		return f.origin(e.X, shared)
	case *ast.CallExpr:
		if called(f.info, e) == "append" { // the array may be the old one
			return f.origin(e.Args[0], shared)
		}
	case *ast.IndexExpr:
		_, array := f.info.TypeOf(e.X).Underlying().(*types.Array)
		return f.origin(e.X, shared || !array)
	case *ast.SelectorExpr:
		if sel := f.info.Selections[e]; sel == nil || sel.Kind() != types.FieldVal {
			break // a variable of another package is below
		}
		if shared && f.renewed(e) {
			return false, true
		}
		_, pointer := f.info.TypeOf(e.X).Underlying().(*types.Pointer)
		given, ofIR = f.origin(e.X, shared || pointer)
		name := irtype.Name(f.info.TypeOf(e.X))
		return given, ofIR || name != "" && name != "Builder"
	}
	p, ok := place.Of(f.info, e)
	if !ok || p.Path != "" {
		return false, false // the result of a call, a literal
	}
	return f.variable(p.Root, shared)
}

// variable is origin for a variable.
func (f *function) variable(o types.Object, shared bool) (given, ofIR bool) {
	if o.Parent() == o.Pkg().Scope() {
		return true, false
	}
	if !shared || f.asking[o] {
		return false, false // the store changes the variable alone
	}
	if f.params[o] {
		return true, false
	}
	f.asking[o] = true
	defer delete(f.asking, o)
	for _, s := range f.sources[o] {
		// What the variable leads to is what its source leads to.
		g, r := f.origin(s.expr, true)
		given, ofIR = given || g, ofIR || r
	}
	return given, ofIR
}

// renewed reports whether the function has assigned something that it made to a field.
func (f *function) renewed(field *ast.SelectorExpr) bool {
	p, ok := place.Of(f.info, field)
	if !ok {
		return false
	}
	for _, c := range f.changes {
		s, assigns := c.cur.Node().(*ast.AssignStmt)
		if q, ok := place.Of(f.info, c.target); !ok || !assigns || q != p || len(s.Lhs) != len(s.Rhs) || s.End() > field.Pos() {
			continue
		}
		for i, e := range s.Lhs {
			if ast.Unparen(e) == c.target {
				if given, _ := f.origin(s.Rhs[i], true); !given {
					return true
				}
			}
		}
	}
	return false
}

// checkStores reports the stores of an outermost function into what it was given.
func checkStores(info *types.Info, decl inspector.Cursor, report func(ast.Node, string)) {
	f := newFunction(info, decl)
	for _, c := range f.changes {
		if c.appends {
			// append writes where its operand was cut short; else into free capacity.
			if s, ok := c.target.(*ast.SliceExpr); !ok || s.High == nil || s.Slice3 {
				continue
			}
		}
		if given, ofIR := f.origin(c.target, c.elements); given && ofIR {
			report(c.cur.Node(), types.ExprString(c.target)+" belongs to a graph that this function did not make: build a new one with ir.NewBuilder")
		}
	}
}
