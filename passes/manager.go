package passes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kiln-project/kiln/ir"
)

// Event tells of one application of a pass: on one graph, or on the module.
type Event struct {
	Pass  *Pass
	Graph string // "" for the module
	// Before and After are the graphs; nil for the module. They are one pointer if
	// nothing changed.
	Before, After *ir.Graph
	Took          time.Duration
	// Skipped: the config's Bisect ends before it.
	Skipped bool
}

// Error is a pass that failed, panicked or left a broken graph. Before is the
// graph that it was given, if it was given one.
type Error struct {
	Pass   string
	Before *ir.Graph
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("pass %s: %v", e.Pass, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Run applies the passes on graphs, in order, and verifies each graph after each
// pass.
func Run(m *Module) error { return run(m, Graphs) }

// Lower applies the passes on steps: it binds the entries to the buckets and has
// the backend turn them into plans.
func Lower(m *Module, buckets []Bucket, b Backend) error {
	if b == nil {
		return errors.New("passes.Lower: no backend: a target's is codegen.NewUnit")
	}
	m.Buckets, m.Backend = buckets, b
	return run(m, Steps)
}

func run(m *Module, on Stage) error {
	if err := m.Config.Check(); err != nil {
		return err
	}
	for i := range Table {
		p := &Table[i]
		if p.On != on || !m.Config.runs(p) {
			continue
		}
		if err := runOne(p, m); err != nil {
			return err
		}
	}
	return nil
}

// runOne applies a pass to the graphs of its stage, or to the module.
func runOne(p *Pass, m *Module) error {
	c := &Context{Module: m, pass: p.Name}
	if p.Module != nil {
		return c.module(p)
	}
	var err error
	if p.On == Steps {
		for _, s := range m.Steps {
			if s.Graph, err = c.apply(p, s.Graph); err != nil {
				return err
			}
		}
		return nil
	}
	for i, g := range m.Entries {
		if m.Entries[i], err = c.apply(p, g); err != nil {
			return err
		}
	}
	return nil
}

// skips counts an application, and reports whether the bisection ends before it.
func (c *Context) skips(p *Pass) bool {
	if p.Required {
		return false
	}
	c.Module.applied++
	b := c.Module.Config.Bisect
	return b != nil && c.Module.applied > *b
}

func (c *Context) trace(e Event) {
	if c.Module.Config.Trace != nil {
		c.Module.Config.Trace(e)
	}
}

// apply runs a pass on a graph and verifies what it returns.
func (c *Context) apply(p *Pass, g *ir.Graph) (*ir.Graph, error) {
	c.graph = g.Name
	if c.skips(p) {
		c.trace(Event{Pass: p, Graph: g.Name, Before: g, After: g, Skipped: true})
		return g, nil
	}
	if seed := c.Module.Config.Shuffle; seed != 0 {
		shuffled, err := shuffle(g, rand.New(rand.NewPCG(seed, uint64(c.Module.applied))))
		if err != nil {
			return g, fmt.Errorf("shuffle: %w", err)
		}
		g = shuffled
	}
	start := time.Now()
	out, err := protect(func() (*ir.Graph, error) { return p.Graph(c, g) })
	took := time.Since(start)
	if err == nil && out != g {
		if verr := ir.Verify(out); verr != nil {
			err = fmt.Errorf("left a broken graph: %w", verr)
		}
	}
	if err != nil {
		return g, &Error{p.Name, g, err}
	}
	c.trace(Event{Pass: p, Graph: g.Name, Before: g, After: out, Took: took})
	return out, nil
}

// module runs a pass on the module. Of the passes on steps only bind makes graphs,
// and ir.Bind verifies them.
func (c *Context) module(p *Pass) error {
	if c.skips(p) {
		c.trace(Event{Pass: p, Skipped: true})
		return nil
	}
	start := time.Now()
	_, err := protect(func() (*ir.Graph, error) { return nil, p.Module(c) })
	if err == nil && p.On == Graphs {
		for _, g := range c.Module.graphs() {
			if verr := ir.Verify(g); verr != nil && err == nil {
				err = fmt.Errorf("left a broken graph: %w", verr)
			}
		}
	}
	if err != nil {
		return &Error{p.Name, nil, err}
	}
	c.trace(Event{Pass: p, Took: time.Since(start)})
	return nil
}

// protect turns a panic of a pass into an error.
func protect(f func() (*ir.Graph, error)) (g *ir.Graph, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// graphs are the entries and the pack graph.
func (m *Module) graphs() []*ir.Graph {
	all := append([]*ir.Graph{}, m.Entries...)
	if m.Pack != nil {
		all = append(all, m.Pack)
	}
	return all
}
