package passes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes/parallel"
)

// Event tells of one application of a pass: on one graph, or on the module.
type Event struct {
	Pass *Pass
	// N numbers the applications of optional passes from 1, as Bisect counts them;
	// 0 for a required pass.
	N     int
	Graph string // "" for the module
	Step  int    // of a pass on steps: which of them; -1 for the module or an entry
	// Before and After are the graphs; nil for the module. They are one pointer if
	// nothing changed.
	Before, After *ir.Graph
	// Given and Left are the graphs before and after a pass on the module, the pack
	// graph last; nil for a graph. What bind leaves are the steps.
	Given, Left []*ir.Graph
	Took        time.Duration
	// Skipped: the config's Bisect ends before it.
	Skipped bool
	// Err: the pass failed, and there is no After.
	Err error
}

// Error is a pass that failed, panicked or left a broken graph.
type Error struct {
	Pass   string
	Before *ir.Graph   // the graph that it was given, if it was given one
	Given  []*ir.Graph // those that a pass on the module was given
	Pack   *ir.Graph   // the pack graph that there was beside Before, if any
	Module *Module     // whose target and config it ran with
	// Bug: it panicked or left a broken graph, which is never the user's doing.
	Bug   bool
	Stack []string // of a panic: function (file:line), innermost first
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("pass %s: %v", e.Pass, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Run applies the passes on graphs, in order. Each graph is verified after each pass, or,
// where nobody listens, after all of them.
func Run(m *Module) error { return together(m, stage(Graphs)) }

// together is run with one verification at the end instead of one after each pass. If
// anything fails all is done again with those, so that the error is that of the pass
// which broke a graph, not of one that stumbled over it.
func together(m *Module, list []*Pass) error {
	if m.Config.Trace != nil || m.Config.VerifyEach {
		return run(m, list)
	}
	before := *m
	before.Entries, before.Steps = slices.Clone(m.Entries), slices.Clone(m.Steps)
	m.unverified = true
	err := run(m, list)
	m.unverified = false
	if err == nil {
		err = (&Context{Module: m}).verifyNew(before.Pack)
	}
	if err == nil {
		for i := len(before.Remarks); i < len(m.Remarks); i++ {
			m.Remarks[i].At = nil // it would keep graphs that are of no use any more
		}
		return nil
	}
	*m = before
	return run(m, list)
}

// Lower applies the passes on steps: it binds the entries to the buckets and has
// the backend turn them into plans.
func Lower(m *Module, buckets []Bucket, b Backend) error {
	if b == nil {
		return errors.New("passes.Lower: no backend: a target's is codegen.NewUnit")
	}
	m.Buckets, m.Backend = buckets, b
	return run(m, stage(Steps))
}

// Optimize applies the passes on steps that make graphs of graphs: those before
// select-kernels. Without buckets the steps are the entries as they are, and what
// needs a number that a symbol stands for does not apply.
func Optimize(m *Module, buckets []Bucket) error {
	m.Buckets, m.Steps = buckets, nil
	var list []*Pass
	for _, p := range stage(Steps) {
		if p.Name == selectKernelsName {
			break
		}
		if p.Name != bindName || len(buckets) > 0 {
			list = append(list, p)
		}
	}
	if len(buckets) == 0 {
		for _, g := range m.Entries {
			m.Steps = append(m.Steps, &Step{Graph: g, Bind: map[string]int{}})
		}
	}
	return run(m, list)
}

// Passes that the manager knows.
const (
	bindName          = "bind"
	selectKernelsName = "select-kernels"
)

// stage lists the passes of a stage.
func stage(on Stage) []*Pass {
	var list []*Pass
	for i := range Table {
		if Table[i].On == on {
			list = append(list, &Table[i])
		}
	}
	return list
}

func run(m *Module, list []*Pass) error {
	if err := m.Config.Check(); err != nil {
		return err
	}
	for _, p := range list {
		if !m.Config.runs(p) {
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
		before := m.applied
		if m.of > 0 && !p.Required { // of one step, as among all
			m.applied += m.bucket
		}
		for i, s := range m.Steps {
			if s.Graph, err = c.apply(p, s.Graph, i); err != nil {
				return err
			}
		}
		if m.of > 0 && !p.Required {
			m.applied = before + m.of
		}
		return nil
	}
	if p.Apart && m.Config.Trace == nil && !m.Config.VerifyEach {
		return applyApart(p, m)
	}
	for i, g := range m.Entries {
		if m.Entries[i], err = c.apply(p, g, -1); err != nil {
			return err
		}
	}
	return nil
}

// applyApart applies a pass to all entries at once. Numbers of applications and remarks
// are those of one after the other.
func applyApart(p *Pass, m *Module) error {
	own, errs := make([]Module, len(m.Entries)), make([]error, len(m.Entries))
	out := make([]*ir.Graph, len(m.Entries))
	parallel.Do(len(m.Entries), func(i int) {
		own[i] = *m
		own[i].Remarks, own[i].visits = nil, 0
		if !p.Required {
			own[i].applied += i
		}
		out[i], errs[i] = (&Context{Module: &own[i], pass: p.Name}).apply(p, m.Entries[i], -1)
	})
	for i := range own {
		m.Remarks, m.visits, m.applied = append(m.Remarks, own[i].Remarks...), m.visits+own[i].visits, own[i].applied
		if errs[i] != nil {
			return errs[i]
		}
		m.Entries[i] = out[i]
	}
	return nil
}

// count numbers an application, and reports whether the bisection ends before it.
func (c *Context) count(p *Pass) (n int, skipped bool) {
	if p.Required {
		return 0, false
	}
	c.Module.applied++
	b := c.Module.Config.Bisect
	return c.Module.applied, b != nil && c.Module.applied > *b
}

func (c *Context) trace(e Event) {
	if c.Module.Config.Trace != nil {
		c.Module.Config.Trace(e)
	}
}

// apply runs a pass on a graph and verifies what it returns.
func (c *Context) apply(p *Pass, g *ir.Graph, step int) (*ir.Graph, error) {
	c.graph = g.Name
	e := Event{Pass: p, Graph: g.Name, Step: step, Before: g, After: g}
	if e.N, e.Skipped = c.count(p); e.Skipped {
		c.trace(e)
		return g, nil
	}
	if seed := c.Module.Config.Shuffle; seed != 0 {
		shuffled, err := shuffle(g, rand.New(rand.NewPCG(seed, uint64(c.Module.applied))))
		if err != nil {
			return g, fmt.Errorf("shuffle: %w", err)
		}
		g = shuffled
	}
	before := ""
	if c.Module.Config.VerifyEach {
		before = ir.Text(g)
	}
	given := keep(g)
	defer given.release()
	start := time.Now()
	out, err := protect(func() (*ir.Graph, error) { return p.Graph(c, g) })
	e.Before, e.Took = g, time.Since(start)
	if given.restore(g) && err == nil {
		err = &bug{err: errInPlace}
	}
	if err == nil && (out == nil || out != g && !c.Module.unverified) {
		err = verify(out)
	}
	if err == nil && c.Module.Config.VerifyEach {
		if ir.Text(g) != before {
			err = &bug{err: errInPlace}
		} else {
			err = c.verifyAll()
		}
	}
	if err != nil {
		e.After, e.Err = nil, err
		c.trace(e)
		return g, c.failed(p, g, nil, err)
	}
	e.After = out
	c.trace(e)
	return out, nil
}

// module runs a pass on the module. Of the passes on steps only bind makes graphs: it
// verifies them, or together does.
func (c *Context) module(p *Pass) error {
	e := Event{Pass: p, Step: -1, Given: c.Module.graphs()}
	if e.N, e.Skipped = c.count(p); e.Skipped {
		e.Left = e.Given
		c.trace(e)
		return nil
	}
	start := time.Now()
	_, err := protect(func() (*ir.Graph, error) { return nil, p.Module(c) })
	e.Took = time.Since(start)
	if err == nil {
		err = c.whole()
	}
	if err == nil && !c.Module.unverified && (p.On == Graphs || c.Module.Config.VerifyEach) {
		err = c.verifyAll()
	}
	if err != nil {
		e.Err = err
		c.trace(e)
		return c.failed(p, nil, e.Given, err)
	}
	e.Left = c.Module.graphs()
	c.trace(e)
	return nil
}

// verifyAll verifies every graph of the module.
func (c *Context) verifyAll() error { return c.verifyNew(nil) }

// verifyNew is verifyAll without a pack graph that was verified before.
func (c *Context) verifyNew(pack *ir.Graph) error {
	graphs := slices.DeleteFunc(c.Module.graphs(), func(g *ir.Graph) bool { return g != nil && g == pack })
	return parallel.First(len(graphs), func(i int) error { return verify(graphs[i]) })
}

// verify verifies what a pass left, which may be nothing.
func verify(g *ir.Graph) error {
	if g == nil {
		return &bug{err: errors.New("left no graph")}
	}
	_, err := protect(func() (*ir.Graph, error) { return g, broken(ir.Verify(g)) })
	return err
}

// whole finds entries and steps that a pass on the module left without a graph.
func (c *Context) whole() error {
	for i, g := range c.Module.Entries {
		if g == nil {
			return &bug{err: fmt.Errorf("left no graph as entry %d", i)}
		}
	}
	for i, s := range c.Module.Steps {
		if s == nil || s.Graph == nil {
			return &bug{err: fmt.Errorf("left no graph as step %d", i)}
		}
	}
	return nil
}

func (c *Context) failed(p *Pass, before *ir.Graph, given []*ir.Graph, err error) error {
	out := &Error{Pass: p.Name, Before: before, Given: given, Module: c.Module, Err: err}
	if before != nil {
		out.Pack = c.Module.Pack
	}
	var b *bug
	if errors.As(err, &b) {
		out.Bug, out.Stack = true, b.stack
	}
	return out
}

// bug is a panic, or a breach of what the manager asks of a pass.
type bug struct {
	err   error
	stack []string
}

func (b *bug) Error() string { return b.err.Error() }
func (b *bug) Unwrap() error { return b.err }

// broken makes an error of what the verifier found; nil stays nil.
func broken(err error) error {
	if err == nil {
		return nil
	}
	return &bug{err: fmt.Errorf("left a broken graph: %w", err)}
}

// protect turns a panic of a pass into an error.
func protect(f func() (*ir.Graph, error)) (g *ir.Graph, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &bug{fmt.Errorf("panic: %v", r), panicStack()}
		}
	}()
	return f()
}

// panicStack lists the calls from the panic out to protect. Files are without
// their folders, so that the text is the same wherever Kiln was built.
func panicStack() []string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var out []string
	for {
		f, more := frames.Next()
		name := path.Base(f.Function)
		if strings.HasPrefix(name, "passes.protect") || !more {
			return out
		}
		if !strings.HasPrefix(name, "runtime.") {
			out = append(out, fmt.Sprintf("%s (%s:%d)", name, filepath.Base(f.File), f.Line))
		}
	}
}

// graphs are the entries, or once there are steps those, and the pack graph.
func (m *Module) graphs() []*ir.Graph {
	var all []*ir.Graph
	for _, s := range m.Steps {
		all = append(all, s.Graph)
	}
	if len(all) == 0 {
		all = append(all, m.Entries...)
	}
	if m.Pack != nil {
		all = append(all, m.Pack)
	}
	return all
}
