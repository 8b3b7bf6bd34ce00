package pass

import "github.com/kiln-project/kiln/ir"

// A test may break a graph, but not the one it walks.
func breaks(g *ir.Graph) {
	g.Ops[0].Args = nil
	g.Outputs = nil
	for range g.Ops {
		g.Ops = g.Ops[1:] // want `g.Ops changes while it is walked`
	}
}
