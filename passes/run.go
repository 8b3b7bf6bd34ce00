package passes

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// Run applies the passes on graphs, in order, and verifies each graph after each
// pass.
func Run(m *Module) error { return run(m, Graphs) }

// Lower applies the passes on steps: it binds the entries to the buckets and has
// the backend turn them into plans.
func Lower(m *Module, buckets []Bucket, b Backend) error {
	m.Buckets, m.Backend = buckets, b
	return run(m, Steps)
}

func run(m *Module, on Stage) error {
	for _, p := range Table {
		if p.On != on {
			continue
		}
		if err := runOne(p, m); err != nil {
			return err
		}
	}
	return nil
}

// runOne applies a pass and verifies the graphs that it left. Of the passes on
// steps only bind makes graphs, and ir.Bind verifies them.
func runOne(p Pass, m *Module) error {
	if err := p.Run(m); err != nil {
		return fmt.Errorf("pass %s: %w", p.Name, err)
	}
	if p.On != Graphs {
		return nil
	}
	graphs := slices.Clone(m.Entries)
	if m.Pack != nil {
		graphs = append(graphs, m.Pack)
	}
	for _, g := range graphs {
		if err := ir.Verify(g); err != nil {
			return fmt.Errorf("pass %s left a broken graph: %w", p.Name, err)
		}
	}
	return nil
}
