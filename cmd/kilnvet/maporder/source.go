package maporder

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"
)

// source is what a loop takes its order from.
type source struct {
	m    ast.Expr // the map
	iter string   // "Keys", "Values" or "All" of package maps; "" for the map itself
}

func (s *source) describe() string {
	if s.iter != "" {
		return "maps." + s.iter + "(" + s.name("m") + ")"
	}
	return "map " + s.name("literal")
}

// sorted is what to iterate over instead.
func (s *source) sorted(info *types.Info) string {
	iter, elem := "Keys", types.Type(nil)
	m, ok := info.TypeOf(s.m).Underlying().(*types.Map)
	if ok {
		elem = m.Key()
	}
	if s.iter == "Values" {
		iter = "Values"
		if ok {
			elem = m.Elem()
		}
	}
	if elem == nil || basic(elem, types.IsOrdered) {
		return "slices.Sorted(maps." + iter + "(" + s.name("m") + "))"
	}
	return "slices.SortedFunc(maps." + iter + "(" + s.name("m") + "), …), or over a slice that has an order, such as g.Ops"
}

// name is the map as written if that is short, else a word for it.
func (s *source) name(long string) string {
	switch ast.Unparen(s.m).(type) {
	case *ast.CompositeLit:
		return long
	case *ast.CallExpr:
		return "m"
	}
	return types.ExprString(s.m)
}

// sourceOf returns the map order behind a range operand, or nil.
func sourceOf(info *types.Info, x ast.Expr) *source {
	x = ast.Unparen(x)
	if isMap(info.TypeOf(x)) {
		return &source{m: x}
	}
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil
	}
	if s := iterOf(info, call); s != nil {
		return s
	}
	if isFunc(info, call, "slices", "Collect") {
		if inner, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr); ok {
			return iterOf(info, inner)
		}
	}
	return nil
}

// iterOf returns the source behind maps.Keys(m), maps.Values(m) or maps.All(m).
func iterOf(info *types.Info, call *ast.CallExpr) *source {
	f := callee(info, call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != "maps" || len(call.Args) != 1 {
		return nil
	}
	switch f.Name() {
	case "Keys", "Values", "All":
		return &source{m: call.Args[0], iter: f.Name()}
	}
	return nil
}

// isMap reports whether t is a map, or a type parameter that only maps can be.
func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	p, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		_, ok := t.Underlying().(*types.Map)
		return ok
	}
	iface, _ := p.Constraint().Underlying().(*types.Interface)
	for i := range iface.NumEmbeddeds() {
		union, ok := iface.EmbeddedType(i).(*types.Union)
		if !ok {
			if isMap(iface.EmbeddedType(i)) {
				return true
			}
			continue
		}
		all := union.Len() > 0
		for j := range union.Len() {
			all = all && isMap(union.Term(j).Type())
		}
		if all {
			return true
		}
	}
	return false
}

// callee is the function or method that a call names, or nil.
func callee(info *types.Info, call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(info, call).(*types.Func)
	return f
}

// isFunc reports whether a call is of one of the named functions of a package.
func isFunc(info *types.Info, call *ast.CallExpr, pkg string, names ...string) bool {
	f := callee(info, call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != pkg || f.Signature().Recv() != nil {
		return false
	}
	for _, n := range names {
		if f.Name() == n {
			return true
		}
	}
	return false
}

// isBuiltin reports whether a call is of one of the named builtin functions.
func isBuiltin(info *types.Info, call *ast.CallExpr, names ...string) bool {
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := info.Uses[id].(*types.Builtin)
	if !ok {
		return false
	}
	for _, n := range names {
		if b.Name() == n {
			return true
		}
	}
	return false
}
