package walkmutate

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// change is a statement or call that changes something in place.
type change struct {
	cur inspector.Cursor
	// target is the expression stored to, or the slice whose elements a call changes.
	target ast.Expr
	// appends: a call of append, which changes what it shares with other slices.
	appends bool
	// elements: not target itself is changed but what it holds.
	elements bool
}

// changes are all changes below a node, in order.
func changes(info *types.Info, in inspector.Cursor) []change {
	var list []change
	for c := range in.Preorder((*ast.AssignStmt)(nil), (*ast.IncDecStmt)(nil), (*ast.CallExpr)(nil)) {
		switch s := c.Node().(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				for _, e := range s.Lhs {
					list = append(list, change{cur: c, target: ast.Unparen(e)})
				}
			}
		case *ast.IncDecStmt:
			list = append(list, change{cur: c, target: ast.Unparen(s.X)})
		case *ast.CallExpr:
			if len(s.Args) == 0 {
				break
			}
			switch name := called(info, s); {
			case name == "append":
				list = append(list, change{cur: c, target: ast.Unparen(s.Args[0]), elements: true, appends: true})
			case name == "copy", name == "clear", inPlace(name):
				list = append(list, change{cur: c, target: ast.Unparen(s.Args[0]), elements: true})
			}
		}
	}
	return list
}

// inPlace reports whether a function of the standard library changes the elements of
// the slice that is its first argument.
func inPlace(name string) bool {
	switch name {
	case "slices.Delete", "slices.DeleteFunc", "slices.Insert", "slices.Replace", "slices.Compact", "slices.CompactFunc",
		"slices.Reverse", "slices.Sort", "slices.SortFunc", "slices.SortStableFunc":
		return true
	case "sort.Slice", "sort.SliceStable", "sort.Sort", "sort.Stable", "sort.Strings", "sort.Ints", "sort.Float64s":
		return true
	}
	return false
}

// called is the builtin or package function that a call names, such as "append" or
// "slices.Delete", or "".
func called(info *types.Info, call *ast.CallExpr) string {
	switch o := typeutil.Callee(info, call).(type) {
	case *types.Builtin:
		return o.Name()
	case *types.Func:
		if !strings.HasPrefix(o.FullName(), "(") {
			return o.FullName()
		}
	}
	return ""
}
