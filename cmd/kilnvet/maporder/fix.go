package maporder

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"

	"github.com/kiln-project/kiln/cmd/kilnvet/internal/place"
)

// fixes rewrites the loop to run over its sorted keys, where that is certain to
// compile and to mean the same: keys of an ordered type that equals itself (no
// float), a map that the body leaves alone, variables that the loop declares.
func (l *loop) fixes() []analysis.SuggestedFix {
	if l.source.iter != "" || l.stmt.Tok != token.DEFINE || l.stmt.Key == nil {
		return nil
	}
	m, ok := l.info.TypeOf(l.source.m).Underlying().(*types.Map)
	p, named := place.Of(l.info, l.source.m)
	if !ok || !named || !basic(m.Key(), types.IsInteger|types.IsString) || l.changes(p) {
		return nil
	}
	imports, ok := l.imports("maps", "slices")
	if !ok {
		return nil
	}
	text := types.ExprString(l.source.m)
	key := l.stmt.Key.(*ast.Ident).Name
	head, element := "_, "+key, ""
	if l.stmt.Value != nil && l.stmt.Value.(*ast.Ident).Name != "_" {
		if key == "_" {
			return nil // it takes a name for the key
		}
		element = fmt.Sprintf("\n%s := %s[%s]", l.stmt.Value.(*ast.Ident).Name, text, key)
	}
	edits := append(imports,
		analysis.TextEdit{Pos: l.stmt.Key.Pos(), End: l.stmt.X.End(),
			NewText: []byte(head + " := range slices.Sorted(maps.Keys(" + text + "))")})
	if element != "" {
		edits = append(edits, analysis.TextEdit{Pos: l.stmt.Body.Lbrace + 1, End: l.stmt.Body.Lbrace + 1, NewText: []byte(element)})
	}
	return []analysis.SuggestedFix{{Message: "Iterate over slices.Sorted(maps.Keys(" + text + "))", TextEdits: edits}}
}

// changes reports whether the body assigns to p, a part of it or a whole around it,
// or deletes from it.
func (l *loop) changes(p place.Place) bool {
	for c := range l.body().Preorder((*ast.AssignStmt)(nil), (*ast.CallExpr)(nil)) {
		switch n := c.Node().(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if q, ok := place.Of(l.info, e); ok && q.Overlaps(p) {
					return true
				}
			}
		case *ast.CallExpr:
			if isBuiltin(l.info, n, "delete", "clear") && place.Holds(l.info, n.Args[0], p) {
				return true
			}
		}
	}
	return false
}

// imports makes the edit that imports packages of the standard library, or reports
// that a name is taken.
func (l *loop) imports(paths ...string) ([]analysis.TextEdit, bool) {
	var file *ast.File
	for c := range l.cur.Enclosing((*ast.File)(nil)) {
		file = c.Node().(*ast.File)
	}
	scope := l.innermost()
	specs := ""
	for _, p := range paths {
		switch _, o := scope.LookupParent(p, l.stmt.Pos()); o := o.(type) {
		case nil:
			specs += "\n\t\"" + p + "\""
		case *types.PkgName:
			if o.Imported().Path() != p {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	if specs == "" {
		return nil, true
	}
	at := file.Name.End()
	if block := importBlock(file); block != nil {
		at = block.Lparen + 1
	} else {
		specs = "\n\nimport (" + specs + "\n)"
	}
	return []analysis.TextEdit{{Pos: at, End: at, NewText: []byte(specs)}}, true
}

// innermost is the scope in which the loop stands.
func (l *loop) innermost() *types.Scope {
	for c := range l.cur.Enclosing() {
		n := c.Node()
		if d, ok := n.(*ast.FuncDecl); ok {
			n = d.Type
		}
		if s := l.info.Scopes[n]; s != nil && n != ast.Node(l.stmt) {
			return s
		}
	}
	return types.Universe
}

// importBlock is the file's first parenthesized import declaration, or nil.
func importBlock(file *ast.File) *ast.GenDecl {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT && g.Lparen.IsValid() {
			return g
		}
	}
	return nil
}
