package view

import (
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Recorder makes a column of every pass that a module's entry goes through.
type Recorder struct {
	Columns []Column

	module *passes.Module
	entry  string
	seen   int // remarks of the module that a column has, or that are not for one
}

// Record starts with an entry as it is now, in a column of the given name and
// doc, and hears of every pass from now on.
func Record(m *passes.Module, entry, name, doc string) *Recorder {
	r := &Recorder{module: m, entry: entry}
	if g := r.graph(); g != nil {
		r.Columns = append(r.Columns, Column{Name: name, Doc: doc, State: Changed, Graph: g})
	}
	first := m.Config.Trace
	m.Config.Trace = func(e passes.Event) {
		if first != nil {
			first(e)
		}
		r.hear(e)
	}
	return r
}

// graph is what has become of the entry so far; nil for a pack graph that no pass
// has made yet.
func (r *Recorder) graph() *ir.Graph {
	for _, s := range r.module.Steps {
		if s.Graph.Name == r.entry {
			return s.Graph
		}
	}
	if r.entry == passes.PackGraph {
		return r.module.Pack
	}
	i := slices.IndexFunc(r.module.Entries, func(g *ir.Graph) bool { return g.Name == r.entry })
	if i < 0 {
		return nil
	}
	return r.module.Entries[i]
}

func (r *Recorder) hear(e passes.Event) {
	var remarks []passes.Remark
	for _, m := range r.module.Remarks[r.seen:] {
		if m.Graph == r.entry || m.Graph == "" {
			remarks = append(remarks, m)
		}
	}
	r.seen = len(r.module.Remarks)
	if e.Graph != "" && e.Graph != r.entry {
		return
	}
	c := Column{Name: e.Pass.Name, Doc: e.Pass.Doc, State: Unchanged, Before: e.Before, Graph: e.After, Remarks: remarks}
	if e.Graph == "" {
		c.Graph = r.graph()
		if len(r.Columns) > 0 {
			c.Before = r.Columns[len(r.Columns)-1].Graph
		}
	}
	if c.Graph == nil {
		return
	}
	switch {
	case e.Skipped:
		c.State = Skipped
	case c.Before == nil || c.Before != c.Graph && ir.Text(c.Before) != ir.Text(c.Graph):
		c.State = Changed
	}
	r.Columns = append(r.Columns, c)
}
