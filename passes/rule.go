package passes

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// Rewrite applies rules to a graph, for passes in this package and elsewhere. It
// returns g itself if nothing fits, else a new version of it.
//
// Every op is looked at once, in order, and takes part in one match at most; of
// several rules for an op the first that fits wins, so larger patterns go first.
// What a rule makes is not matched again. A match is left alone, with a remark,
// if Gate says so, or if the replacement has no place: a result that is not
// replaced has another use, a pool may be written in between, or an operand is
// made too late.
//
// A rule that could never fit, such as one that names an op or an attribute that
// does not exist, is an error: else its absence would be silent.
func Rewrite(c *Context, g *ir.Graph, rules ...Rule) (*ir.Graph, error) {
	for i := range rules {
		if err := rules[i].check(); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i, err)
		}
	}
	return rewrite(c, g, rules...)
}

// check finds what is wrong with a rule, whatever the graph.
func (r *Rule) check() error {
	named := map[string]*ir.OpDef{}
	if err := r.Pattern.check(named); err != nil {
		return err
	}
	switch {
	case r.Build == nil:
		return errors.New("has no Build")
	case r.Says == "":
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
		if !slices.ContainsFunc(d.Attrs, func(have ir.AttrDef) bool { return have.Name == a.Key }) {
			return fmt.Errorf("%s has no attribute %q", d.Name, a.Key)
		}
	}
	if err := p.checkOperands(d); err != nil {
		return err
	}
	for _, list := range []map[int]Pattern{p.Args, p.User, p.Reader, p.Sibling} {
		for _, i := range slices.Sorted(maps.Keys(list)) {
			q := list[i]
			if err := q.check(named); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOperands finds indices that the op does not have.
func (p *Pattern) checkOperands(d *ir.OpDef) error {
	operands := slices.Concat(p.Weight, slices.Sorted(maps.Keys(p.DType)), slices.Sorted(maps.Keys(p.Args)), slices.Sorted(maps.Keys(p.Sibling)))
	repeats := len(d.Operands) > 0 && d.Operands[len(d.Operands)-1].Repeat
	for _, i := range operands {
		if i < 0 || i >= len(d.Operands) && !repeats {
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
