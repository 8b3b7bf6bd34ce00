package plan

import (
	"fmt"
	"strings"
)

// Text lists a plan of the module for people and tests: inputs, launches with
// their arguments, outputs, and what the arena holds when.
func (m *Module) Text(p *Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan @%s", p.Entry)
	for _, s := range p.Binding {
		fmt.Fprintf(&b, " %s=%d", s.Symbol, s.Value)
	}
	fmt.Fprintf(&b, " : %s, arena of %d bytes\n", m.Target, p.Arena)
	for i, s := range m.States {
		fmt.Fprintf(&b, "state s%d !%s : %s\n", i, s.Name, s.Type)
	}
	for i, s := range m.Weights {
		fmt.Fprintf(&b, "weight w%d @%s : %s\n", i, s.Name, s.Type)
	}
	tensors := func(what string, list []Tensor) {
		for _, t := range list {
			fmt.Fprintf(&b, "%s %s : %s at %s", what, t.Name, t.Type, t.Data.append(nil))
			if t.Scales != nil {
				fmt.Fprintf(&b, ", scales at %s", t.Scales.append(nil))
			}
			b.WriteByte('\n')
		}
	}
	tensors("input", p.Inputs)
	for i, l := range p.Launches {
		k := m.Kernels[l.Kernel]
		fmt.Fprintf(&b, "%d %s by %s, grid %d", i, l.Op, k.Form, l.Grid)
		for _, n := range l.Choices {
			c := m.Choices[n]
			fmt.Fprintf(&b, ", %s by %s", c.Taken, c.By)
		}
		b.WriteByte(':')
		sep := " "
		for _, a := range l.Args {
			text, _ := a.MarshalText()
			fmt.Fprintf(&b, "%s%s", sep, text)
			sep = ", "
		}
		if l.Loc != "" {
			fmt.Fprintf(&b, " loc(%q)", l.Loc)
		}
		b.WriteByte('\n')
	}
	tensors("output", p.Outputs)
	for _, v := range p.Values {
		text, _ := v.MarshalText()
		fmt.Fprintf(&b, "value %s\n", text)
	}
	return b.String()
}
