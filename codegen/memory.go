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
	if err := l.build(); err != nil {
		return fmt.Errorf("graph @%s: %w", s.Graph.Name, err)
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
	p.Arena = layout(l.bufs)
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

// layout gives every arena buffer an offset and returns the arena's size. Two
// buffers share bytes only if no launch needs both: a buffer's first and last
// launch are both inside its life.
func layout(bufs []buffer) int64 {
	var order []int
	for i := range bufs {
		if bufs[i].space == plan.Arena && bufs[i].last >= bufs[i].first {
			order = append(order, i)
		}
	}
	// Large first; ties by first use, then by id, so that the result is one.
	slices.SortFunc(order, func(a, b int) int {
		x, y := &bufs[a], &bufs[b]
		switch {
		case x.bytes != y.bytes:
			return int(min(1, max(-1, y.bytes-x.bytes)))
		case x.first != y.first:
			return x.first - y.first
		}
		return a - b
	})
	type place struct { // what of a buffer the search looks at, side by side in memory
		offset, end int64
		first, last int
	}
	var size int64
	placed := make([]place, 0, len(order)) // by offset
	for _, i := range order {
		b := &bufs[i]
		need := (b.bytes + plan.Align - 1) / plan.Align * plan.Align
		b.offset = 0
		for j := range placed {
			o := &placed[j]
			if o.last < b.first || b.last < o.first {
				continue
			}
			if b.offset+need <= o.offset {
				break // fits in the gap before o
			}
			b.offset = max(b.offset, o.end)
		}
		at, _ := slices.BinarySearchFunc(placed, b.offset, func(o place, off int64) int { return cmp.Compare(o.offset, off) })
		placed = slices.Insert(placed, at, place{b.offset, b.offset + need, b.first, b.last})
		size = max(size, b.offset+need)
	}
	return size
}
