package view

import (
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// groupData are the ops of one place of the model, in all columns.
type groupData struct {
	Name string `json:"name"`
	Like int    `json:"like"` // the first group that reads the same but for its layer; -1: none
}

// columnData is one column. Only changed ones have cells.
type columnData struct {
	Name    int      `json:"name"`
	Doc     int      `json:"doc"`
	State   State    `json:"state"`
	Ops     int      `json:"ops"`
	Cells   [][]line `json:"cells"`   // by group
	Remarks []line   `json:"remarks"` // of a column without cells
}

// line is one line of a cell: its kind, then what the kind has. Texts are
// numbers of the table, values their own numbers.
type line []any

const (
	declLine   = iota // keyword, value, type, mark
	opLine            // number of the first result, results, op, operands, attributes, types, loc, mark
	outLine           // text before the value, value
	textLine          // text
	remarkLine        // kind, text, op, loc, results of the op
	goneLine          // an op of the column before, which is not in this: as opLine
)

// Marks say what a pass did to a line.
const (
	markNone    = iota
	markNew     // the column before has no such op
	markChanged // it has, with other operands or attributes
)

// The first group holds what belongs to the whole graph, the last its outputs.
const (
	wholeGroup  = "graph"
	outputGroup = "outputs"
)

// groupOf names the group of a loc: its first two elements, as in layers.12.
func groupOf(loc string) string {
	if loc == "" {
		return "no place"
	}
	first, rest, ok := strings.Cut(loc, ".")
	if !ok {
		return first
	}
	second, _, _ := strings.Cut(rest, ".")
	return first + "." + second
}

// columns lays out the graphs and returns the names of the values.
func (t *table) columns(columns []Column, d *pageData) []string {
	n := &numbers{byName: map[string]int{}, names: []string{}}
	index := groupIndex(columns)
	for i, name := range index.order {
		d.Groups = append(d.Groups, groupData{name, -1})
		index.at[name] = i
	}
	var last *numbered
	cells := [][][]line{}
	for _, c := range columns {
		before := last
		if c.Before != nil && (before == nil || before.graph != c.Before) {
			before = n.graph(before, c.Before)
		}
		after := before
		if before == nil || before.graph != c.Graph {
			after = n.graph(before, c.Graph)
		}
		l := &layout{t: t, index: index, before: before, after: after}
		cd := columnData{Name: t.add(c.Name), Doc: t.add(c.Doc), State: c.State, Ops: len(c.Graph.Ops), Remarks: []line{}}
		if c.State == Changed {
			cd.Cells = l.cells(c.Remarks)
			cells = append(cells, cd.Cells)
		} else {
			for _, r := range c.Remarks {
				cd.Remarks = append(cd.Remarks, l.remark(r))
			}
		}
		d.Columns = append(d.Columns, cd)
		last = after
	}
	if len(columns) > 0 {
		foldAlike(t, n.names, d.Groups, cells)
	}
	return n.names
}

// groups is the order of all columns' groups.
type groups struct {
	order []string
	at    map[string]int
}

// groupIndex orders the groups as the columns have them: one that only a later
// column has comes after the one that it follows there.
func groupIndex(columns []Column) *groups {
	g := &groups{at: map[string]int{}}
	seen := map[string]bool{wholeGroup: true, outputGroup: true}
	order := []string{wholeGroup}
	for _, c := range columns {
		if c.State != Changed {
			continue
		}
		after := wholeGroup
		for _, op := range c.Graph.Ops {
			name := groupOf(op.Loc)
			if !seen[name] {
				seen[name] = true
				at := len(order)
				for i, have := range order {
					if have == after {
						at = i + 1
					}
				}
				order = append(order[:at], append([]string{name}, order[at:]...)...)
			}
			after = name
		}
	}
	g.order = append(order, outputGroup)
	return g
}

// ofValue is the group that a weight or state belongs to by its name.
func (g *groups) ofValue(name string) int {
	if at, ok := g.at[groupOf(strings.TrimPrefix(name, passes.PackedPrefix))]; ok {
		return at
	}
	return 0
}

// layout lays out one column.
type layout struct {
	t             *table
	index         *groups
	before, after *numbered // before is nil in the first column
}

func (l *layout) cells(remarks []passes.Remark) [][]line {
	g := l.after.graph
	parts := ir.PartsOf(g)
	out := make([][]line, len(l.index.order))
	for i := range out {
		out[i] = []line{}
	}
	put := func(at int, x line) { out[at] = append(out[at], x) }
	text := func(format string, args ...any) { put(0, line{textLine, l.t.add(fmt.Sprintf(format, args...))}) }
	for _, m := range g.Meta {
		text("meta %s = %q", m.Key, m.Val)
	}
	if len(g.Syms) > 0 {
		text("sym %s", strings.Join(g.Syms, ", "))
	}
	for _, let := range g.Lets {
		text("let %s = %s", let.Name, let.Dim)
	}
	had := map[int]bool{}
	if l.before != nil {
		for _, id := range l.before.of {
			had[id] = true
		}
	}
	var later []func() // ops come before the weights and states of their layer
	decl := func(keyword string, at int, v *ir.Value) {
		mark := markNone
		if l.before != nil && !had[l.after.of[v]] {
			mark = markNew
		}
		x := line{declLine, l.t.add(keyword), l.after.of[v], l.t.add(parts.Type(v.Type)), mark}
		if at == 0 {
			put(at, x)
		} else {
			later = append(later, func() { put(at, x) })
		}
	}
	for _, v := range g.Inputs {
		decl("input", 0, v)
	}
	for _, v := range g.Weights {
		decl("weight", l.index.ofValue(v.Name), v)
	}
	for _, v := range g.States {
		decl("state", l.index.ofValue(v.Name), v)
	}
	l.ops(put, remarks)
	for _, o := range g.Outputs {
		put(len(out)-1, line{outLine, l.t.add("output " + o.Name), l.after.of[o.Value]})
	}
	for _, u := range g.Updates {
		put(l.index.ofValue(u.State.Name), line{outLine, l.t.add("update !" + u.State.Name), l.after.of[u.Value]})
	}
	for _, f := range later {
		f()
	}
	return out
}

// ops puts the ops, each followed by what was said of it and by the ops that
// were right behind it and are gone.
func (l *layout) ops(put func(int, line), remarks []passes.Remark) {
	behind, start := l.gone()
	said := map[*ir.Op][]passes.Remark{}
	var loose []passes.Remark
	lineOf := l.lines(behind, start)
	for _, r := range remarks {
		if op := lineOf[r.At]; op != nil {
			said[op] = append(said[op], r)
		} else {
			loose = append(loose, r)
		}
	}
	show := func(at int, op *ir.Op, x line) {
		put(at, x)
		for _, r := range said[op] {
			put(at, l.remark(r))
		}
	}
	var before *ir.Parts
	number := map[*ir.Op]int{}
	if l.before != nil {
		before = ir.PartsOf(l.before.graph)
		n := 0
		for _, op := range l.before.graph.Ops {
			number[op] = n
			n += len(op.Results)
		}
	}
	gone := func(at int, ops []*ir.Op) {
		for _, op := range ops {
			show(at, op, l.op(goneLine, l.before, before, op, number[op], markNone))
		}
	}
	parts := ir.PartsOf(l.after.graph)
	for at, name := range l.index.order {
		gone(at, start[name])
	}
	n := 0
	for _, op := range l.after.graph.Ops {
		at := l.index.at[groupOf(op.Loc)]
		show(at, op, l.op(opLine, l.after, parts, op, n, l.mark(op, parts, before)))
		gone(at, behind[op])
		n += len(op.Results)
	}
	for _, r := range loose {
		put(l.index.at[groupOf(r.Loc)], l.remark(r))
	}
}

// gone finds the ops that this column has no more: behind which op of the same
// group they were, or at whose start.
func (l *layout) gone() (behind map[*ir.Op][]*ir.Op, start map[string][]*ir.Op) {
	behind, start = map[*ir.Op][]*ir.Op{}, map[string][]*ir.Op{}
	if l.before == nil || l.before == l.after {
		return behind, start
	}
	now := map[*ir.Op]*ir.Op{}
	for _, op := range l.after.graph.Ops {
		if was := l.after.twin[op]; was != nil {
			now[was] = op
		}
	}
	last := map[string]*ir.Op{}
	for _, op := range l.before.graph.Ops {
		group := groupOf(op.Loc)
		switch {
		case now[op] != nil:
			last[group] = now[op]
		case last[group] != nil:
			behind[last[group]] = append(behind[last[group]], op)
		default:
			start[group] = append(start[group], op)
		}
	}
	return behind, start
}

// lines maps ops that a remark may be of to the op whose line tells of them: what
// they have become, or themselves where they are new or gone.
func (l *layout) lines(behind map[*ir.Op][]*ir.Op, start map[string][]*ir.Op) map[*ir.Op]*ir.Op {
	of := map[*ir.Op]*ir.Op{}
	for _, op := range l.after.graph.Ops {
		of[op] = op
		if was := l.after.twin[op]; was != nil {
			of[was] = op
		}
	}
	for _, ops := range behind {
		for _, op := range ops {
			of[op] = op
		}
	}
	for _, ops := range start {
		for _, op := range ops {
			of[op] = op
		}
	}
	return of
}

func (l *layout) mark(op *ir.Op, parts, before *ir.Parts) int {
	if l.before == nil || l.before == l.after {
		return markNone
	}
	was := l.after.twin[op]
	switch {
	case was == nil:
		return markNew
	case looks(op, l.after, parts) != looks(was, l.before, before):
		return markChanged
	}
	return markNone
}

func (l *layout) op(kind int, g *numbered, parts *ir.Parts, op *ir.Op, number, mark int) line {
	types := make([]string, len(op.Results))
	for i, r := range op.Results {
		types[i] = parts.Type(r.Type)
	}
	return line{
		kind, number, ids(g, op.Results), l.t.add(op.Def.Name), ids(g, op.Args),
		l.t.add(parts.Attrs(op)), l.t.add(strings.Join(types, ", ")), l.t.add(op.Loc), mark,
	}
}

func ids(g *numbered, values []*ir.Value) []int {
	out := make([]int, len(values))
	for i, v := range values {
		out[i] = g.of[v]
	}
	return out
}

func (l *layout) remark(r passes.Remark) line {
	of := []int{}
	if r.At != nil {
		for _, g := range []*numbered{l.after, l.before} {
			if g == nil || len(of) > 0 || len(r.At.Results) == 0 {
				continue
			}
			if _, ok := g.of[r.At.Results[0]]; ok {
				of = ids(g, r.At.Results)
			}
		}
	}
	return line{remarkLine, l.t.add(string(r.Kind)), l.t.add(r.Text), l.t.add(r.Op), l.t.add(r.Loc), of}
}
