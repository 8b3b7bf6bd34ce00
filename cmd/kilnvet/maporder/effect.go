package maporder

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/irtype"
	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// effects are the ways in which the order gets out of the loop's body.
func (l *loop) effects() []effect {
	var list []effect
	add := func(n ast.Node, what string) {
		if what != "" {
			list = append(list, effect{n, what})
		}
	}
	kinds := []ast.Node{(*ast.AssignStmt)(nil), (*ast.SendStmt)(nil), (*ast.ReturnStmt)(nil), (*ast.CallExpr)(nil), (*ast.GoStmt)(nil)}
	l.body().Inspect(kinds, func(c inspector.Cursor) bool {
		switch s := c.Node().(type) {
		case *ast.GoStmt:
			return false
		case *ast.AssignStmt:
			for i := range s.Lhs {
				add(s, l.assigned(c, s, i))
			}
		case *ast.SendStmt:
			if p, ok := place.Of(l.info, s.Chan); ok && !l.inside(p.Root) && l.varies(s.Value) && !l.oneKey(c) {
				add(s, p.String()+" is sent to")
			}
		case *ast.ReturnStmt:
			if l.returns(c, s) {
				add(s, "one of several values is returned, whichever comes first")
			}
		case *ast.CallExpr:
			if what := l.called(s); what != "" && !l.oneKey(c) {
				add(s, what)
			}
		}
		return true
	})
	return list
}

// returns reports whether s leaves the loop with a value that varies.
func (l *loop) returns(c inspector.Cursor, s *ast.ReturnStmt) bool {
	for lit := range c.Enclosing((*ast.FuncLit)(nil)) {
		if within(lit.Node(), l.stmt) {
			return false // it leaves a function within the loop
		}
	}
	return slices.ContainsFunc(s.Results, func(e ast.Expr) bool { return l.varies(e) }) && !l.oneKey(c)
}

// called describes what a call writes or builds from something that varies, or is "".
func (l *loop) called(call *ast.CallExpr) string {
	if !slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return l.varies(e) }) {
		return ""
	}
	f := callee(l.info, call)
	if f == nil {
		return ""
	}
	if f.Pkg() != nil && (f.Pkg().Path() == "fmt" || f.Pkg().Path() == "log") &&
		(strings.HasPrefix(f.Name(), "Print") || strings.HasPrefix(f.Name(), "Fatal")) {
		if f.Signature().Recv() == nil {
			return f.FullName() + " prints"
		}
	}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && f.Signature().Recv() != nil {
		switch t := l.info.TypeOf(sel.X); {
		case !l.outer(sel.X):
		case irtype.Name(t) == "Builder":
			if !slices.Contains(builderReads, f.Name()) {
				return types.ExprString(sel.X) + "." + f.Name() + " adds to a graph"
			}
		case f.FullName() == remark:
			return types.ExprString(sel.X) + "." + f.Name() + " adds to the remarks"
		case strings.HasPrefix(f.Name(), "Write") && isWriter(t),
			f.Name() == "Encode" && f.Pkg() != nil && strings.HasPrefix(f.Pkg().Path(), "encoding/"),
			strings.HasPrefix(f.Name(), "Print") && f.Pkg() != nil && f.Pkg().Path() == "log":
			return types.ExprString(sel.X) + " is written"
		}
	}
	for i, a := range call.Args {
		if !l.outer(a) {
			continue
		}
		switch {
		case irtype.Name(l.info.TypeOf(a)) == "Builder":
			return types.ExprString(a) + ", a graph builder, is handed to " + f.Name()
		case isOutput(paramType(f.Signature(), i)):
			return types.ExprString(a) + " is written"
		}
	}
	return ""
}

// outer reports whether e, or what e is the address of, is from outside the loop.
func (l *loop) outer(e ast.Expr) bool {
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok {
		e = u.X
	}
	p, ok := place.Of(l.info, e)
	return ok && !l.inside(p.Root) && !l.varies(e)
}

// remark is how a pass says what it did: remarks are printed in the order in which they came.
const remark = "(*github.com/kiln-project/kiln/passes.Context).Remark"

// builderReads are the methods of ir.Builder that add nothing to its graph.
var builderReads = []string{"At", "Err", "Finish"}

// writeMethod is the Write of io.Writer.
var writeMethod = types.NewInterfaceType([]*types.Func{
	types.NewFunc(0, nil, "Write", types.NewSignatureType(nil, nil, nil,
		types.NewTuple(types.NewVar(0, nil, "p", types.NewSlice(types.Typ[types.Byte]))),
		types.NewTuple(types.NewVar(0, nil, "n", types.Typ[types.Int]), types.NewVar(0, nil, "err", types.Universe.Lookup("error").Type())), false)),
}, nil).Complete()

// isWriter reports whether t or a pointer to it is an io.Writer.
func isWriter(t types.Type) bool {
	return types.Implements(t, writeMethod) || types.Implements(types.NewPointer(t), writeMethod)
}

// isOutput reports whether a parameter of type t is there to be written to. A file
// may as well be there to be read.
func isOutput(t types.Type) bool {
	if t == nil {
		return false
	}
	if _, ok := t.Underlying().(*types.Interface); ok {
		return types.Implements(t, writeMethod)
	}
	switch types.TypeString(t, nil) {
	case "*strings.Builder", "*bytes.Buffer", "*bufio.Writer":
		return true
	}
	return false
}

// paramType is the type of the parameter that takes argument i.
func paramType(s *types.Signature, i int) types.Type {
	last := s.Params().Len() - 1
	if i > last || i == last && s.Variadic() {
		return nil
	}
	return s.Params().At(i).Type()
}
