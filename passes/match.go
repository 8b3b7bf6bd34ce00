package passes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"sync"

	"github.com/kiln-project/kiln/ir"
)

// Pattern describes an op and those around it. The zero fields hold for any op.
type Pattern struct {
	Op string // name
	As string // what the Match calls the op
	// Args are the ops that define operands, by index.
	Args map[int]Pattern
	// User are the ops that read results: each result has that one use and no
	// other. Arg says which operand of the user it is.
	User map[int]Pattern
	Arg  int
	// Reader is the one op of its name that reads a result as operand Arg; ops of
	// other names may read the result too.
	Reader map[int]Pattern
	// Sibling reads the same value as its operand Arg: of operand i here, the one
	// other op that fits, and it comes later.
	Sibling map[int]Pattern
	// Attrs that the op must have.
	Attrs ir.Attrs
	// DType of operands, by index, and of what kind they are.
	DType  map[int]ir.DType
	Weight []int // operands that are weights
	// Where is any other condition: it returns what does not hold, or "".
	Where func(*Match, *ir.Op) string
}

// Match is where a pattern fits.
type Match struct {
	ops  map[string]*ir.Op
	list []*ir.Op // in order of matching
	u    *uses
	c    *Context
}

// Op is a matched op by its name in the pattern.
func (m *Match) Op(as string) *ir.Op { return m.ops[as] }

// Arg is an operand of a matched op.
func (m *Match) Arg(as string, i int) *ir.Value { return m.ops[as].Args[i] }

// use is a place where a value is read; op is nil for an output or update.
type use struct {
	op  *ir.Op
	arg int
}

// uses knows who reads each value of a graph, and the order of its ops.
type uses struct {
	of    map[*ir.Value][]use // in the order of the ops, outputs and updates last
	index map[*ir.Op]int

	firsts []use
}

// usesPool has those that are of no use any more: every rule of every graph needs some.
var usesPool = sync.Pool{New: func() any { return &uses{of: map[*ir.Value][]use{}, index: map[*ir.Op]int{}} }}

// drop gives the memory to the next usesOf.
func (u *uses) drop() { usesPool.Put(u) }

func usesOf(g *ir.Graph) *uses {
	n := len(g.Outputs) + len(g.Updates)
	for _, op := range g.Ops {
		n += len(op.Args)
	}
	u := usesPool.Get().(*uses)
	clear(u.of)
	clear(u.index)
	u.firsts = slices.Grow(u.firsts[:0], n)[:n]
	firsts := u.firsts // most values have one use: memory for that of all of them
	add := func(v *ir.Value, by use) {
		list, ok := u.of[v]
		if !ok {
			list, firsts = firsts[:0:1], firsts[1:]
		}
		u.of[v] = append(list, by)
	}
	for i, op := range g.Ops {
		u.index[op] = i
		for j, a := range op.Args {
			add(a, use{op, j})
		}
	}
	for _, o := range g.Outputs {
		add(o.Value, use{nil, 0})
	}
	for _, up := range g.Updates {
		add(up.Value, use{nil, 0})
	}
	return u
}

// after are the uses of a value by ops that come after op, outputs and updates
// included.
func (u *uses) after(v *ir.Value, op *ir.Op) []use {
	list := u.of[v]
	return list[sort.Search(len(list), func(i int) bool { return list[i].op == nil || u.index[list[i].op] > u.index[op] }):]
}

// match tries a pattern at an op. It returns what does not hold, or "".
func (m *Match) match(p *Pattern, op *ir.Op) string {
	m.c.visit()
	if op.Def.Name != p.Op {
		return fmt.Sprintf("%s is no %s", op.Def.Name, p.Op)
	}
	for _, other := range m.list {
		if other == op {
			return fmt.Sprintf("%s at %s is in the match twice", op.Def.Name, op.Where())
		}
	}
	m.ops[p.As] = op
	m.list = append(m.list, op)
	for _, a := range p.Attrs {
		if v, _ := op.Attrs.Get(a.Key); !reflect.DeepEqual(v, a.Val) {
			return fmt.Sprintf("%s of %s is %v, want %v", a.Key, op.Def.Name, v, a.Val)
		}
	}
	// The conditions decide on the walk, not what the op has: one on an operand of a
	// repeated group that the op lacks does not hold.
	for _, i := range slices.Sorted(maps.Keys(p.DType)) {
		if why := hasOperand(op, i); why != "" {
			return why
		}
		if dt, v := p.DType[i], op.Args[i]; v.Type.DType != dt {
			return fmt.Sprintf("operand %d of %s is %s, want %s", i, op.Def.Name, v.Type, dt)
		}
	}
	for _, i := range p.Weight {
		if why := hasOperand(op, i); why != "" {
			return why
		}
		if op.Args[i].Kind != ir.WeightValue {
			return fmt.Sprintf("operand %d of %s is no weight", i, op.Def.Name)
		}
	}
	for _, around := range []struct {
		list  map[int]Pattern
		has   func(*ir.Op, int) string
		match func(*Pattern, *ir.Op, int) string
	}{
		{p.Args, hasOperand, m.matchArg}, {p.User, hasResult, m.matchUser},
		{p.Reader, hasResult, m.matchReader}, {p.Sibling, hasOperand, m.matchSibling},
	} {
		for _, i := range slices.Sorted(maps.Keys(around.list)) {
			if why := around.has(op, i); why != "" {
				return why
			}
			q := around.list[i]
			if why := around.match(&q, op, i); why != "" {
				return why
			}
		}
	}
	if p.Where != nil {
		return p.Where(m, op)
	}
	return ""
}

func hasOperand(op *ir.Op, i int) string {
	if i < 0 || i >= len(op.Args) {
		return fmt.Sprintf("%s has no operand %d", op.Def.Name, i)
	}
	return ""
}

func hasResult(op *ir.Op, i int) string {
	if i < 0 || i >= len(op.Results) {
		return fmt.Sprintf("%s has no result %d", op.Def.Name, i)
	}
	return ""
}

func (m *Match) matchArg(p *Pattern, op *ir.Op, i int) string {
	def := op.Args[i].Op
	if def == nil {
		return fmt.Sprintf("operand %d of %s is %s, not a result of %s", i, op.Def.Name, op.Args[i], p.Op)
	}
	if def.Def.Name != p.Op {
		return fmt.Sprintf("operand %d of %s is a result of %s, not of %s", i, op.Def.Name, def.Def.Name, p.Op)
	}
	return m.match(p, def)
}

func (m *Match) matchUser(p *Pattern, op *ir.Op, i int) string {
	us := m.u.of[op.Results[i]]
	if len(us) != 1 {
		return fmt.Sprintf("result %s of %s has %d uses, want one, by %s", op.Def.Results[i], op.Def.Name, len(us), p.Op)
	}
	by := us[0]
	switch {
	case by.op == nil:
		return fmt.Sprintf("result %s of %s is an output", op.Def.Results[i], op.Def.Name)
	case by.op.Def.Name != p.Op || by.arg != p.Arg:
		return fmt.Sprintf("result %s of %s is read by operand %d of %s, not operand %d of %s", op.Def.Results[i], op.Def.Name, by.arg, by.op.Def.Name, p.Arg, p.Op)
	}
	return m.match(p, by.op)
}

func (m *Match) matchReader(p *Pattern, op *ir.Op, i int) string {
	var found *ir.Op
	for _, by := range m.u.of[op.Results[i]] {
		m.c.visit()
		if by.op == nil || by.op.Def.Name != p.Op || by.arg != p.Arg {
			continue
		}
		if found != nil {
			return fmt.Sprintf("more than one %s reads result %s of %s", p.Op, op.Def.Results[i], op.Def.Name)
		}
		found = by.op
	}
	if found == nil {
		return fmt.Sprintf("no %s reads result %s of %s", p.Op, op.Def.Results[i], op.Def.Name)
	}
	return m.match(p, found)
}

// matchSibling looks from op on, up to the second op that fits: of a value that
// every layer reads, each reader looks at its neighbours only.
func (m *Match) matchSibling(p *Pattern, op *ir.Op, i int) string {
	var found *ir.Op
	for _, by := range m.u.after(op.Args[i], op) {
		m.c.visit()
		if by.op == nil || by.op.Def.Name != p.Op || by.arg != p.Arg {
			continue
		}
		if found != nil {
			return fmt.Sprintf("more than two ops %s read %s", p.Op, op.Args[i])
		}
		found = by.op
	}
	if found == nil {
		return fmt.Sprintf("no later %s reads the same operand", p.Op)
	}
	return m.match(p, found)
}
