package passes

import (
	"errors"
	"fmt"

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
		known := false
		for _, have := range d.Attrs {
			known = known || have.Name == a.Key
		}
		if !known {
			return fmt.Errorf("%s has no attribute %q", d.Name, a.Key)
		}
	}
	operands := append([]int{}, p.Weight...)
	for i := range p.DType {
		operands = append(operands, i)
	}
	for _, list := range []map[int]Pattern{p.Args, p.Sibling} {
		for i, q := range list {
			operands = append(operands, i)
			if err := q.check(named); err != nil {
				return err
			}
		}
	}
	last := len(d.Operands) - 1
	for _, i := range operands {
		if i < 0 || i > last && !(last >= 0 && d.Operands[last].Repeat) {
			return fmt.Errorf("%s has no operand %d", d.Name, i)
		}
	}
	for i, q := range p.User {
		if i < 0 || i >= len(d.Results) {
			return fmt.Errorf("%s has no result %d", d.Name, i)
		}
		if err := q.check(named); err != nil {
			return err
		}
	}
	return nil
}
