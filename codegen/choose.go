package codegen

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/tune"
	"github.com/kiln-project/kiln/ir"
)

// Decision is a choice to be made.
type Decision struct {
	Form       string
	Key        string // the shape, but for the rows
	Rows       int
	Candidates []string
	Model      string // what the form's cost model takes

	Op       *ir.Op // that is being lowered
	Requests int    // of its step; 0 if that does not say
	Set      map[string]int
}

// choose makes a choice: as asked, or by the target's table, or else by the form's cost
// model. It follows from the graph and the program alone.
func (u *Unit) choose(d Decision) (plan.Choice, error) {
	c := plan.Choice{Form: d.Form, Key: d.Key, Rows: d.Rows, Taken: d.Model, By: plan.ByModel}
	if !slices.Contains(d.Candidates, d.Model) {
		return c, fmt.Errorf("form %s, %s: the cost model takes %s, which is none of %v", d.Form, d.Key, d.Model, d.Candidates)
	}
	if u.Ask != nil {
		if taken := u.Ask(d); taken != "" {
			c.Taken, c.By = taken, plan.ByTuning
			if !slices.Contains(d.Candidates, taken) {
				return c, fmt.Errorf("form %s, %s, %d rows: asked to take %s, which is none of %v", d.Form, d.Key, d.Rows, taken, d.Candidates)
			}
			return c, nil
		}
	}
	table, err := u.table()
	if err != nil {
		return c, err
	}
	taken, why := fromTable(table, d)
	if c.Why = why; why == "" {
		c.Taken, c.By = taken, plan.ByTable
	}
	return c, nil
}

// fromTable is what a table has, if the form offers it still, or why it has nothing.
func fromTable(table *tune.Table, d Decision) (taken, why string) {
	if table == nil {
		return "", "the target has no table"
	}
	r := table.Find(d.Form, d.Key, d.Rows)
	switch {
	case r == nil:
		return "", "not in the table"
	case !slices.Contains(d.Candidates, r.Choice()):
		return "", fmt.Sprintf("the table has %s, which the form does not offer", r.Choice())
	}
	return r.Choice(), ""
}

// index is the index of a choice in the module.
func (u *Unit) index(c plan.Choice) int {
	if n, ok := u.chosen[c]; ok {
		return n
	}
	n := len(u.Module.Choices)
	u.chosen[c], u.Module.Choices = n, append(u.Module.Choices, c)
	return n
}

// Choose implements kernels.Lowering.
func (l *lowerer) Choose(key string, rows int, candidates []string, model string) string {
	if len(candidates) == 1 && candidates[0] == model {
		return model
	}
	c, err := l.u.choose(Decision{
		Form: l.form.Name, Key: key, Rows: rows, Candidates: candidates, Model: model,
		Op: l.cur, Requests: l.requests, Set: l.set,
	})
	if err != nil {
		l.fail("%v", err)
		return model
	}
	l.choices = append(l.choices, l.u.index(c))
	return c.Taken
}

// choices counts those of a module.
func (s *Stats) choices(m *plan.Module) {
	table, others := m.Chosen()
	s.Choices, s.Modelled = table+others, others
}
