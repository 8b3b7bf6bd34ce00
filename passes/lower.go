package passes

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

func bind(c *Context) error {
	m := c.Module
	bound := ir.Bind
	if m.unverified {
		bound = ir.Substitute
	}
	m.Steps = nil
	for _, b := range m.Buckets {
		i := slices.IndexFunc(m.Entries, func(g *ir.Graph) bool { return g.Name == b.Entry })
		if i < 0 {
			return fmt.Errorf("no entry %q", b.Entry)
		}
		s := &Step{Bind: map[string]int{}, Set: m.Config.Set}
		for _, sym := range m.Entries[i].Syms {
			if n, ok := b.Bind[sym]; ok {
				s.Bind[sym] = n
			}
		}
		var err error
		if s.Graph, err = bound(m.Entries[i], s.Bind); err != nil {
			return err
		}
		m.Steps = append(m.Steps, s)
	}
	return nil
}

func selectKernels(c *Context) error { return eachStep(c.Module, c.Module.Backend.SelectKernels) }

func joinLaunches(c *Context) error { return eachStep(c.Module, c.Module.Backend.JoinLaunches) }

func planMemory(c *Context) error { return eachStep(c.Module, c.Module.Backend.PlanMemory) }

func eachStep(m *Module, f func(*Step) error) error {
	for _, s := range m.Steps {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}
