package passes

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// runOne applies a pass and verifies what it left.
func runOne(p Pass, m *Module) error {
	if err := p.Run(m); err != nil {
		return fmt.Errorf("pass %s: %w", p.Name, err)
	}
	graphs := m.Entries
	if m.Pack != nil {
		graphs = append(append([]*ir.Graph{}, graphs...), m.Pack)
	}
	for _, g := range graphs {
		if err := ir.Verify(g); err != nil {
			return fmt.Errorf("pass %s left a broken graph: %w", p.Name, err)
		}
	}
	return nil
}
