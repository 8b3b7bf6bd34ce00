package passes

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// check finds what is wrong with a rule, whatever the graph.
func (r *Rule) check() error {
	named := map[string]*ir.OpDef{}
	if err := r.Pattern.check(named); err != nil {
		return err
	}
	switch {
	case r.Build == nil:
		return errors.New("has no Build")
	case r.Says == "" && r.Tells == nil:
		return errors.New("has no text for the remark (Says)")
	case len(r.Results) == 0:
		return errors.New("replaces no result (Results)")
	}
	for _, res := range r.Results {
		d, ok := named[res.As]
		if !ok {
			return fmt.Errorf("replaces a result of %q, which the pattern does not name", res.As)
		}
		if res.Index < 0 || res.Index >= len(d.Results) {
			return fmt.Errorf("replaces result %d of %s, which has %d", res.Index, d.Name, len(d.Results))
		}
	}
	return nil
}

// check finds what no op can fulfil, and collects the names that ops have.
func (p *Pattern) check(named map[string]*ir.OpDef) error {
	d, err := ir.Lookup(p.Op)
	if err != nil {
		return err
	}
	if _, dup := named[p.As]; dup && p.As != "" {
		return fmt.Errorf("%q names two ops of the pattern", p.As)
	}
	named[p.As] = d
	for _, a := range p.Attrs {
		i := slices.IndexFunc(d.Attrs, func(have ir.AttrDef) bool { return have.Name == a.Key })
		if i < 0 {
			return fmt.Errorf("%s has no attribute %q", d.Name, a.Key)
		}
		if err := d.Attrs[i].Check(a.Val); err != nil {
			return fmt.Errorf("attribute %q of %s: %w", a.Key, d.Name, err)
		}
	}
	if err := p.checkOperands(d); err != nil {
		return err
	}
	for k, list := range []map[int]Pattern{p.Args, p.User, p.Reader, p.Sibling} {
		for _, i := range slices.Sorted(maps.Keys(list)) {
			q := list[i]
			if err := q.check(named); err != nil {
				return err
			}
			// All but a definition read the value, as their operand Arg.
			if d, err := ir.Lookup(q.Op); err == nil && k > 0 && !mayHaveOperand(d, q.Arg) {
				return fmt.Errorf("%s has no operand %d", d.Name, q.Arg)
			}
		}
	}
	return nil
}

func mayHaveOperand(d *ir.OpDef, i int) bool {
	n := len(d.Operands)
	return i >= 0 && (i < n || n > 0 && d.Operands[n-1].Repeat)
}

// checkOperands finds indices that the op does not have.
func (p *Pattern) checkOperands(d *ir.OpDef) error {
	operands := slices.Concat(p.Weight, slices.Sorted(maps.Keys(p.DType)), slices.Sorted(maps.Keys(p.Args)), slices.Sorted(maps.Keys(p.Sibling)))
	for _, i := range operands {
		if !mayHaveOperand(d, i) {
			return fmt.Errorf("%s has no operand %d", d.Name, i)
		}
	}
	for _, i := range slices.Concat(slices.Sorted(maps.Keys(p.User)), slices.Sorted(maps.Keys(p.Reader))) {
		if i < 0 || i >= len(d.Results) {
			return fmt.Errorf("%s has no result %d", d.Name, i)
		}
	}
	return nil
}
