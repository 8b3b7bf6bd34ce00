// Package passes stands for Kiln's package passes in the test packages.
package passes

import "github.com/kiln-project/kiln/ir"

type Module struct {
	Entries []*ir.Graph
	Pack    *ir.Graph
}

type Pass struct {
	Graph func(g *ir.Graph) (*ir.Graph, error)
}

type RemarkKind int

type Context struct{}

func (c *Context) Remark(kind RemarkKind, op *ir.Op, format string, args ...any) {}
