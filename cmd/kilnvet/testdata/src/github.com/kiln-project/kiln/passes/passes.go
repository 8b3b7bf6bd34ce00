// Package passes stands for Kiln's package passes in the test packages.
package passes

import "github.com/kiln-project/kiln/ir"

type Module struct {
	Entries []*ir.Graph
	Pack    *ir.Graph
}
