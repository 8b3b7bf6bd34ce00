package plan

import (
	"fmt"
	"slices"
)

// Spread returns a plan with the same launches in which no two values of the arena
// share bytes: each has a place of its own for the whole run, with at least redZone
// unused bytes before and after it. It is for devices that look for accesses
// outside of values; its arena is as large as all values together.
//
// The plan must have passed CheckPlan, and the result passes it.
func Spread(p *Plan, redZone int64) (*Plan, error) {
	if redZone < 0 {
		return nil, fmt.Errorf("plan %s: red zones of %d bytes", p.Entry, redZone)
	}
	out := *p
	out.Values = slices.Clone(p.Values)
	gap := up(redZone)
	out.Arena = gap
	for i := range out.Values {
		v := &out.Values[i]
		v.Offset = out.Arena
		out.Arena += up(v.Bytes) + gap
	}
	lives := p.Lives()
	var err error
	move := func(s Slice) Slice {
		if s.Space != Arena {
			return s
		}
		v := lives.Find(s)
		if v < 0 {
			err = fmt.Errorf("plan %s: no value has bytes %s", p.Entry, s.append(nil))
			return s
		}
		s.Offset += out.Values[v].Offset - p.Values[v].Offset
		return s
	}
	tensors := func(list []Tensor) []Tensor {
		list = slices.Clone(list)
		for i := range list {
			t := &list[i]
			t.Data = move(t.Data)
			if t.Scales != nil {
				s := move(*t.Scales)
				t.Scales = &s
			}
		}
		return list
	}
	lives.At(-1)
	out.Inputs = tensors(p.Inputs)
	out.Launches = slices.Clone(p.Launches)
	for i := range out.Launches {
		lives.At(i)
		l := &out.Launches[i]
		l.Args = slices.Clone(l.Args)
		for j := range l.Args {
			if l.Args[j].Mode != "" {
				l.Args[j].Buf = move(l.Args[j].Buf)
			}
		}
	}
	lives.At(len(p.Launches))
	out.Outputs = tensors(p.Outputs)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Spread returns a module with the same memory and kernels whose plans are spread.
func (m *Module) Spread(redZone int64) (*Module, error) {
	out := *m
	out.Plans = make([]*Plan, len(m.Plans))
	for i, p := range m.Plans {
		var err error
		if out.Plans[i], err = Spread(p, redZone); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// up rounds up to the alignment.
func up(bytes int64) int64 { return (bytes + Align - 1) / Align * Align }
