package codegen

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// PlanMemory implements passes.Backend: it lays out the arena of a step whose
// kernels are selected, and adds its plan to the module.
func (u *Unit) PlanMemory(s *passes.Step) error {
	l := u.steps[s]
	if l == nil {
		return fmt.Errorf("graph @%s: no kernels are selected", s.Graph.Name)
	}
	delete(u.steps, s)
	if err := l.build(s.Graph.Name); err != nil {
		return err
	}
	p := &plan.Plan{Entry: s.Graph.Name, Binding: []plan.Binding{}, States: []int{}}
	for _, sym := range slices.Sorted(maps.Keys(s.Bind)) {
		p.Binding = append(p.Binding, plan.Binding{Symbol: sym, Value: s.Bind[sym]})
	}
	l.finish(s.Graph, p)
	if err := u.Module.CheckPlan(p); err != nil {
		return err
	}
	if !u.encode {
		u.Module.Plans = append(u.Module.Plans, p)
		return nil
	}
	u.text = bundle.AppendPlan(u.text[:0], p)
	u.plans, u.spare = append(u.plans, bytes.Clone(u.text)), l
	return nil
}

// finish lays out the arena and fills in the plan. Outputs live to the end, and
// inputs from before the first launch on.
func (l *lowerer) finish(g *ir.Graph, p *plan.Plan) {
	end := len(l.launches)
	for _, o := range g.Outputs {
		s := l.operand(o.Value)
		for _, id := range []int{s.data, s.scales} {
			if id >= 0 {
				l.bufs[id].last = end
			}
		}
	}
	for _, in := range g.Inputs {
		for _, id := range []int{l.values[in].data, l.values[in].scales} {
			if id >= 0 {
				l.bufs[id].first = -1
			}
		}
	}
	p.Arena = l.u.arena.layout(l.bufs)
	p.Values = l.held(g)
	tensor := func(name string, v *ir.Value) plan.Tensor {
		s := l.values[v]
		t := plan.Tensor{Name: name, Type: v.Type.String(), Data: l.slice(s.data)}
		if s.scales >= 0 {
			sc := l.slice(s.scales)
			t.Scales = &sc
		}
		return t
	}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, tensor(v.Name, v))
	}
	for _, o := range g.Outputs {
		p.Outputs = append(p.Outputs, tensor(o.Name, o.Value))
	}
	for _, v := range g.States {
		p.States = append(p.States, l.bufs[l.values[v].data].index)
	}
	for i := range l.launches {
		for j, r := range l.args[i] {
			if r.buf >= 0 {
				l.launches[i].Args[j].Buf = l.slice(r.buf)
			}
		}
	}
	p.Launches = l.launches
}

// held lists what the arena holds, by name.
func (l *lowerer) held(g *ir.Graph) []plan.Value {
	tensors := map[int]string{} // by buffer
	name := func(s value, as string) {
		tensors[s.data] = as
		if s.scales >= 0 {
			tensors[s.scales] = as + " scales"
		}
	}
	for _, o := range g.Outputs {
		name(l.values[o.Value], o.Name)
	}
	for _, v := range g.Inputs {
		name(l.values[v], v.Name)
	}
	out := []plan.Value{}
	for id, b := range l.bufs {
		if b.space != plan.Arena || b.last < b.first {
			continue
		}
		as, ok := tensors[id]
		if !ok {
			as = b.name(&l.launches[b.first])
		}
		out = append(out, plan.Value{Name: as, Offset: b.offset, Bytes: b.bytes, First: b.first, Last: b.last})
	}
	plan.Sort(out)
	return out
}

// name is what the launch that writes a buffer calls it.
func (b *buffer) name(writer *plan.Launch) string {
	text := writer.Op
	for _, s := range []string{writer.Loc, b.what} {
		if s != "" {
			text += " " + s
		}
	}
	return text
}

func (l *lowerer) slice(id int) plan.Slice {
	b := &l.bufs[id]
	return plan.Slice{Space: b.space, Index: b.index, Part: b.part, Offset: b.offset, Bytes: b.bytes}
}

// arena lays out buffers; its lists are used again for the next step.
type arena struct {
	order []int
	// What is placed, by offset: with a short life, in the list of each launch of it, from
	// before the first launch on; with a long one, in a list of its own.
	short [][]extent
	long  []lasting
}

// extent is a run of bytes.
type extent struct{ offset, end int64 }

// lasting is an extent from one launch to another.
type lasting struct {
	extent
	first, last int
}

// longLife is how many launches a buffer must live for to have a long life.
const longLife = 24

// layout gives every arena buffer an offset and returns the arena's size. Two
// buffers share bytes only if no launch needs both: a buffer's first and last
// launch are both inside its life. Each, the largest first, goes to the lowest bytes that
// are free all its life.
func (a *arena) layout(bufs []buffer) int64 {
	order, end := a.order[:0], 0
	for i := range bufs {
		if b := &bufs[i]; b.space == plan.Arena && b.last >= b.first {
			order, end = append(order, i), max(end, b.last+2)
		}
	}
	a.order = order
	// Large first; ties by first use, then by id, so that the result is one.
	slices.SortFunc(order, func(a, b int) int {
		x, y := &bufs[a], &bufs[b]
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), x.first-y.first, a-b)
	})
	for len(a.short) < end {
		a.short = append(a.short, nil)
	}
	for i := range a.short {
		a.short[i] = a.short[i][:0]
	}
	a.long = a.long[:0]
	var size int64
	for _, i := range order {
		b := &bufs[i]
		need := (b.bytes + plan.Align - 1) / plan.Align * plan.Align
		b.offset = a.free(b, need)
		x := extent{b.offset, b.offset + need}
		if b.last-b.first >= longLife {
			at := 0
			for at < len(a.long) && a.long[at].offset <= x.offset {
				at++
			}
			a.long = slices.Insert(a.long, at, lasting{x, b.first, b.last})
		} else {
			for t := b.first + 1; t <= b.last+1; t++ {
				a.short[t] = slices.Insert(a.short[t], after(a.short[t], x.offset), x)
			}
		}
		size = max(size, x.end)
	}
	return size
}

// free is the lowest offset of so many bytes that are free all the life of a buffer.
func (a *arena) free(b *buffer, need int64) int64 {
	var offset int64
	for moved := true; moved; {
		moved = false
		for i := range a.long {
			o := &a.long[i]
			if o.offset >= offset+need {
				break
			}
			if o.end > offset && o.first <= b.last && b.first <= o.last {
				offset, moved = o.end, true
			}
		}
		for _, list := range a.short[b.first+1 : b.last+2] { // those of one list do not meet each other
			at := after(list, offset)
			if at > 0 && list[at-1].end > offset {
				at--
			}
			for ; at < len(list) && list[at].offset < offset+need; at++ {
				offset, moved = list[at].end, true
			}
		}
	}
	return offset
}

// after counts the extents of a list that begin at or below an offset.
func after(list []extent, offset int64) int {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].offset <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
