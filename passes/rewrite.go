package passes

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// Rule rewrites the places where a pattern fits.
type Rule struct {
	Pattern Pattern
	// Anchor says that the pattern's first op is reported as missed when the rest
	// does not fit; without it only a failed Gate is.
	Anchor bool
	// Gate returns why a place that fits is left alone, or "".
	Gate func(*Context, *Match) string
	// Results are the values of matched ops that Build replaces, "name.index" each.
	// All other results of matched ops must have no use outside of the match.
	Results []Result
	// Build makes the replacements, in the order of Results. Operands of matched
	// ops are read through e.Value.
	Build func(e *ir.Edit, m *Match) []*ir.Value
	// Says is the text of the remark, e.g. "as hc_fused".
	Says string
	// Tells makes the text where it names something of the match.
	Tells func(*Match) string
}

// Result names a result of a matched op.
type Result struct {
	As    string
	Index int
}

// place is a match with where its replacement goes: before the op at that index.
type place struct {
	rule *Rule
	m    *Match
	at   int
}

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
	u := usesOf(g)
	defer u.drop()
	taken := map[*ir.Op]int{} // where the replacement of its match goes
	at := map[int][]place{}
	for _, op := range g.Ops {
		c.visit()
		for i := range rules {
			r := &rules[i]
			if _, gone := taken[op]; gone || op.Def.Name != r.Pattern.Op {
				continue
			}
			m := &Match{ops: map[string]*ir.Op{}, u: u, c: c}
			why, anchored := m.match(&r.Pattern, op), r.Anchor
			if why == "" {
				anchored = true
				why = overlaps(m, taken)
			}
			if why == "" && r.Gate != nil {
				why = r.Gate(c, m)
			}
			where := 0
			if why == "" {
				where, why = r.fits(m, taken)
			}
			if why != "" {
				if anchored {
					c.Remark(Missed, op, "%s", why)
				}
				continue
			}
			for _, o := range m.list {
				taken[o] = where
			}
			at[where] = append(at[where], place{r, m, where})
			says := r.Says
			if r.Tells != nil {
				says = r.Tells(m)
			}
			c.Remark(Applied, op, "%s", says)
		}
	}
	if len(at) == 0 {
		return g, nil
	}
	e := ir.NewEdit(g)
	for i, op := range g.Ops {
		c.visit()
		for _, p := range at[i] {
			if err := p.build(e); err != nil {
				return nil, err
			}
		}
		if _, gone := taken[op]; !gone {
			e.Copy(op)
		}
	}
	return e.Finish()
}

func overlaps(m *Match, taken map[*ir.Op]int) string {
	for _, o := range m.list {
		if _, gone := taken[o]; gone {
			return fmt.Sprintf("%s at %s is part of another match", o.Def.Name, o.Where())
		}
	}
	return ""
}

// fits finds where the replacement can stand: after all operands from outside of
// the match, before all uses outside, and as late as that allows. Ops of other
// matches stand where their replacement does. The second result is what is in the
// way.
func (r *Rule) fits(m *Match, taken map[*ir.Op]int) (at int, why string) {
	u := m.u
	inside := map[*ir.Op]bool{}
	for _, o := range m.list {
		inside[o] = true
		at = max(at, u.index[o])
	}
	// Replacements at one index are built in the order of matching, this one last.
	behind := func(o *ir.Op) int {
		if i, gone := taken[o]; gone {
			return i
		}
		return u.index[o] + 1
	}
	before := func(o *ir.Op) int {
		if i, gone := taken[o]; gone {
			return i - 1
		}
		return u.index[o]
	}
	replaced := map[*ir.Value]bool{}
	for _, res := range r.Results {
		replaced[m.ops[res.As].Results[res.Index]] = true
	}
	after := 0
	var read, write *ir.Op // the last reader outside of a pool that the match writes
	for _, o := range m.list {
		for _, a := range o.Args {
			if a.Kind == ir.OpResult && !inside[a.Op] {
				after = max(after, behind(a.Op))
			}
			if isPool(a) { // another op may write the pool later on
				at = min(at, u.index[o])
			}
		}
		if o.Def.Name == "scatter_rows" && isPool(o.Args[0]) {
			for _, by := range u.of[o.Args[0]] {
				m.c.visit()
				if by.op != nil && !inside[by.op] && (read == nil || behind(by.op) > behind(read)) {
					read, write = by.op, o
				}
			}
		}
		for i, v := range o.Results {
			for _, by := range u.of[v] {
				m.c.visit()
				switch {
				case inside[by.op] && by.op != nil:
				case !replaced[v]:
					return 0, fmt.Sprintf("result %s of %s at %s has another use%s", o.Def.Results[i], o.Def.Name, o.Where(), whose(by))
				case by.op != nil:
					at = min(at, before(by.op))
				}
			}
		}
	}
	if after > at {
		return 0, "an operand is made after the first use of a result"
	}
	if read != nil && behind(read) > at {
		return 0, fmt.Sprintf("%s at %s reads the pool that %s at %s writes, and comes first", read.Def.Name, read.Where(), write.Def.Name, write.Where())
	}
	return at, ""
}

func whose(by use) string {
	if by.op == nil {
		return ", an output or update of the graph"
	}
	return fmt.Sprintf(", by %s at %s", by.op.Def.Name, by.op.Where())
}

// build emits a replacement.
func (p place) build(e *ir.Edit) error {
	e.AtOp(p.m.list[0])
	out := p.rule.Build(e, p.m)
	if err := e.Err(); err != nil {
		return err
	}
	if len(out) != len(p.rule.Results) {
		return fmt.Errorf("a rule replaces %d values by %d", len(p.rule.Results), len(out))
	}
	for i, res := range p.rule.Results {
		e.Replace(p.m.ops[res.As].Results[res.Index], out[i])
	}
	return e.Err()
}
