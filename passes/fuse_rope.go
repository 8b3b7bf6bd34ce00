package passes

import (
	"strings"

	"github.com/kiln-project/kiln/ir"
)

// fuseRope makes one op of a row's way to the cache or to attention: norm, rope,
// Hadamard rotation, cache rounding or packing, as far as they follow each other.
func fuseRope(c *Context, g *ir.Graph) (*ir.Graph, error) { return Rewrite(c, g, ropeRules...) }

// rowNorms are the norms before rope, with the op that has them; "" is none.
var rowNorms = []struct{ norm, fused string }{
	{"rms_norm", "rms_norm_rope"}, {"head_rms_norm", "head_rms_norm_rope"}, {"", "rope_row"},
}

// rowTails are the ops after rope.
var rowTails = [][]string{{"hadamard", "fake_quant"}, {"hadamard", "pack_rows"}, {"fake_quant"}, {"pack_rows"}, {"hadamard"}, {}}

// ropeRules are all ways from a norm to a tail, the longest first; rope alone is
// left alone.
var ropeRules = func() []Rule {
	var rules []Rule
	for _, tail := range rowTails {
		for _, n := range rowNorms {
			if n.norm != "" || len(tail) > 0 {
				rules = append(rules, ropeRule(n.norm, n.fused, tail))
			}
		}
	}
	return rules
}()

func ropeRule(norm, fused string, tail []string) Rule {
	p := Pattern{Op: "rope", As: "rope"}
	if norm != "" {
		p.Args = map[int]Pattern{0: {Op: norm, As: "norm"}}
	}
	says := []string{"rope"}
	if norm != "" {
		says = []string{norm, "rope"}
	}
	last := "rope"
	if len(tail) > 0 {
		says, last = append(says, tail...), tail[len(tail)-1]
		p.User = map[int]Pattern{0: chainOf(tail)}
	}
	return Rule{
		Pattern: p, Results: []Result{{last, 0}}, Says: strings.Join(says, ", ") + " as " + fused,
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			attrs, x := ir.Attrs{}, m.Arg("rope", 0)
			var weight []*ir.Value
			if norm != "" {
				attrs = ir.A("eps", m.Op("norm").Float("eps"))
				x = m.Arg("norm", 0)
				for _, w := range m.Op("norm").Args[1:] {
					weight = append(weight, e.Value(w))
				}
			}
			attrs = append(attrs, ir.A("inverse", m.Op("rope").Bool("inverse"), "hadamard", m.Op("hadamard") != nil)...)
			if q := m.Op("fake_quant"); q != nil {
				attrs = append(attrs, q.Attrs...)
			}
			if q := m.Op("pack_rows"); q != nil {
				attrs = append(append(attrs, q.Attrs...), ir.A("packed", true)...)
			}
			args := append([]*ir.Value{e.Value(x), e.Value(m.Arg("rope", 1)), e.Value(m.Arg("rope", 2))}, weight...)
			return e.Op(fused, attrs, args...)
		},
	}
}

// chainOf is a pattern of ops each of which is the only user of the one before.
func chainOf(ops []string) Pattern {
	p := Pattern{Op: ops[0], As: ops[0]}
	if len(ops) > 1 {
		p.User = map[int]Pattern{0: chainOf(ops[1:])}
	}
	return p
}
