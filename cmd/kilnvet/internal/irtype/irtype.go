// Package irtype recognises the types of Kiln's package ir.
package irtype

import "go/types"

// Path is the import path of package ir.
const Path = "github.com/kiln-project/kiln/ir"

// Name returns the name of the type of package ir that t is or points to, or "".
func Name(t types.Type) string {
	if t == nil {
		return ""
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil || n.Obj().Pkg().Path() != Path {
		return ""
	}
	return n.Obj().Name()
}
