package passes

import "github.com/kiln-project/kiln/ir"

// Pass is one row of the pass table. Its name is part of the user interface.
type Pass struct {
	Name string
	Doc  string
	Run  func(*Module) error
}

// Module is what passes work on: the entries of one model, and the pack graph
// that is evaluated once when weights are bound.
type Module struct {
	Entries []*ir.Graph
	Pack    *ir.Graph // nil until a pass hoists something
	// FNUZ: the target's 8-bit floats are e4m3fnuz.
	FNUZ bool
}

// Table lists the passes in the order in which they run: hoist-pack after those
// that leave something to pack.
var Table = []Pass{
	{"fnuz-weights", "For a target whose 8-bit floats are e4m3fnuz, recodes f8e4m3 weights that kernels decode in every step.", fnuzWeights},
	{"hoist-pack", "Moves weight-only values out of the entries into the pack graph, each once.", hoistPack},
}

// Run applies every pass in order and verifies each graph after each pass.
func Run(m *Module) error {
	for _, p := range Table {
		if err := runOne(p, m); err != nil {
			return err
		}
	}
	return nil
}
