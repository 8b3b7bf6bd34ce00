package view

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// numbers gives values their numbers on the page. A value of one column and what
// it is in the next have one number, though they are two values of two graphs.
type numbers struct {
	names  []string // by number; "" for a result of an op
	byName map[string]int
}

// numbered is a graph whose values have numbers.
type numbered struct {
	graph *ir.Graph
	of    map[*ir.Value]int
	// twin is what an op was in the graph before; ops that are new have none.
	twin map[*ir.Op]*ir.Op
}

func (n *numbers) make(name string) int {
	n.names = append(n.names, name)
	return len(n.names) - 1
}

// graph numbers the values of g, which is prev after a pass; prev may be nil.
// Inputs, weights and states are known by their names. An op is the one that it
// looks like most among those of its name and place; a value of a new op takes
// over the number of one that is gone if what used that now uses this.
func (n *numbers) graph(prev *numbered, g *ir.Graph) *numbered {
	if prev == nil {
		prev = &numbered{graph: &ir.Graph{}, of: map[*ir.Value]int{}}
	}
	m := &matcher{numbers: n, prev: prev, out: &numbered{g, map[*ir.Value]int{}, map[*ir.Op]*ir.Op{}}, taken: map[int]bool{}}
	for _, list := range [][]*ir.Value{g.Inputs, g.Weights, g.States} {
		for _, v := range list {
			name := v.String()
			if _, ok := n.byName[name]; !ok {
				n.byName[name] = n.make(name)
			}
			m.number(v, n.byName[name])
		}
	}
	m.ops()
	m.takeOver()
	for _, op := range g.Ops {
		for _, r := range op.Results {
			if _, ok := m.out.of[r]; !ok {
				m.number(r, n.make(""))
			}
		}
	}
	return m.out
}

// matcher numbers one graph after another.
type matcher struct {
	*numbers
	prev, out *numbered
	taken     map[int]bool // numbers that out has
}

func (m *matcher) number(v *ir.Value, id int) {
	m.out.of[v] = id
	m.taken[id] = true
}

// kin are the ops of one name at one place.
type kin struct {
	ops  []*ir.Op
	used []bool
	now  int // how many there are in the new graph
	seen int // how many of them were looked at
}

// ops finds the twins.
func (m *matcher) ops() {
	kins := map[string]*kin{}
	of := func(op *ir.Op) *kin {
		key := op.Def.Name + " " + op.Loc
		if kins[key] == nil {
			kins[key] = &kin{}
		}
		return kins[key]
	}
	exact := map[string][]*ir.Op{}
	parts := ir.PartsOf(m.prev.graph)
	for _, op := range m.prev.graph.Ops {
		k := of(op)
		k.ops, k.used = append(k.ops, op), append(k.used, false)
		key := looks(op, m.prev, parts)
		exact[key] = append(exact[key], op)
	}
	for _, op := range m.out.graph.Ops {
		of(op).now++
	}
	parts = ir.PartsOf(m.out.graph)
	for _, op := range m.out.graph.Ops {
		k := of(op)
		at := -1
		for _, same := range exact[looks(op, m.out, parts)] {
			if at = k.free(same); at >= 0 {
				break
			}
		}
		if at < 0 {
			at = m.similar(k, op)
		}
		k.seen++
		if at < 0 {
			continue
		}
		k.used[at] = true
		m.out.twin[op] = k.ops[at]
		for i, r := range op.Results {
			m.number(r, m.prev.of[k.ops[at].Results[i]])
		}
	}
}

// looks are all that tells ops apart but types, which binding changes.
func looks(op *ir.Op, g *numbered, parts *ir.Parts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %s", op.Def.Name, op.Loc, parts.Attrs(op))
	for _, a := range op.Args {
		id, ok := g.of[a]
		if !ok {
			id = -1
		}
		fmt.Fprintf(&b, " %d", id)
	}
	return b.String()
}

// free is the index of an op that has no twin yet, or -1.
func (k *kin) free(op *ir.Op) int {
	for i, o := range k.ops {
		if o == op && !k.used[i] {
			return i
		}
	}
	return -1
}

// similar picks an op that does not look the same: if as many are left as there
// were, the one of the same turn, else the one with the most operands in common.
func (m *matcher) similar(k *kin, op *ir.Op) int {
	if k.now == len(k.ops) && !k.used[k.seen] {
		return k.seen
	}
	best, most := -1, 0
	for i, o := range k.ops {
		common := 0
		for j := range min(len(o.Args), len(op.Args)) {
			if id, ok := m.out.of[op.Args[j]]; ok && id == m.prev.of[o.Args[j]] {
				common++
			}
		}
		if !k.used[i] && common > most {
			best, most = i, common
		}
	}
	return best
}

// takeOver has values of new ops take over numbers of values that are gone.
func (m *matcher) takeOver() {
	pair := func(now, was *ir.Value) {
		_, has := m.out.of[now]
		if id, ok := m.prev.of[was]; ok && !has && !m.taken[id] && now.Type.Equal(was.Type) {
			m.number(now, id)
		}
	}
	for _, op := range m.out.graph.Ops {
		was := m.out.twin[op]
		if was == nil {
			continue
		}
		for i := range min(len(op.Args), len(was.Args)) {
			pair(op.Args[i], was.Args[i])
		}
	}
	outputs := map[string]*ir.Value{}
	for _, o := range m.prev.graph.Outputs {
		outputs[o.Name] = o.Value
	}
	for _, o := range m.out.graph.Outputs {
		if was, ok := outputs[o.Name]; ok {
			pair(o.Value, was)
		}
	}
	updates := map[string]*ir.Value{}
	for _, u := range m.prev.graph.Updates {
		updates[u.State.Name] = u.Value
	}
	for _, u := range m.out.graph.Updates {
		if was, ok := updates[u.State.Name]; ok {
			pair(u.Value, was)
		}
	}
}
