package passes

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// fuseQKV makes one product of two that multiply the same activations with fp8
// weights: wq_a and wkv of every layer, and the two wq_b of layers with an
// indexer. It looks at all entries first: the pack graph gets the joined weight
// instead of both, not beside them.
func fuseQKV(c *Context) error {
	rule := twoProducts(readersOf(c.Module.Entries))
	for i, g := range c.Module.Entries {
		c.graph = g.Name
		out, err := Rewrite(c, g, rule)
		if err != nil {
			return err
		}
		c.Module.Entries[i] = out
	}
	return nil
}

func twoProducts(readers []weightReaders) Rule {
	return Rule{
		Pattern: Pattern{Op: "block_linear", As: "a", Sibling: map[int]Pattern{0: {Op: "block_linear", As: "b"}}},
		Anchor:  true,
		Gate: func(c *Context, m *Match) string {
			a, b := byWeight(m)
			for _, op := range []*ir.Op{a, b} {
				if why := wholeFP8(op); why != "" {
					return why
				}
			}
			if a.Args[1].Type.Quant.Block != b.Args[1].Type.Quant.Block {
				return fmt.Sprintf("blocks of %s and %s differ", a.Args[1], b.Args[1])
			}
			if a.Int("act_block") != b.Int("act_block") {
				return fmt.Sprintf("products with %s and %s quantise their operand in other blocks", a.Args[1], b.Args[1])
			}
			for _, r := range readers {
				if why := r.disagree(c, a.Args[1].Name, b.Args[1].Name, a.Int("act_block")); why != "" {
					return why
				}
			}
			return ""
		},
		Results: []Result{{"a", 0}, {"b", 0}},
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			a, b := byWeight(m)
			rows := func(op *ir.Op) int { n, _ := op.Args[1].Type.Dims[0].Const(); return n }
			w := e.Concat(0, e.Value(a.Args[1]), e.Value(b.Args[1]))
			y := e.Op("split_linear", ir.A("sizes", []int{rows(a), rows(b)}, "act_block", a.Int("act_block")), e.Value(a.Args[0]), w)
			if a != m.Op("a") {
				return []*ir.Value{y[1], y[0]}
			}
			return y
		},
		Tells: func(m *Match) string {
			a, b := byWeight(m)
			return fmt.Sprintf("one product with %s and %s", a.Args[1], b.Args[1])
		},
	}
}

// byWeight puts the two products in the order of their weights' names: entries
// whose ops stand in another order pack the same tensor.
func byWeight(m *Match) (a, b *ir.Op) {
	a, b = m.Op("a"), m.Op("b")
	if a.Args[1].Name > b.Args[1].Name {
		return b, a
	}
	return a, b
}

// wholeFP8 says what keeps the weight of a product from being joined, or "".
func wholeFP8(op *ir.Op) string {
	w := op.Args[1]
	if w.Kind != ir.WeightValue {
		return fmt.Sprintf("operand w is %s, no weight of the model", w)
	}
	if w.Type.DType != ir.F8E4M3 {
		return fmt.Sprintf("%s is %s, want f8e4m3", w, w.Type)
	}
	if n, ok := w.Type.Dims[0].Const(); !ok || n%w.Type.Quant.Block[0] != 0 {
		return fmt.Sprintf("partial block: %s is %s", w, w.Type)
	}
	return ""
}

// weightReaders knows who reads the weights of one entry.
type weightReaders struct {
	entry string
	uses  *uses
	named map[string]*ir.Value
}

func readersOf(entries []*ir.Graph) []weightReaders {
	list := make([]weightReaders, len(entries))
	for i, g := range entries {
		list[i] = weightReaders{entry: g.Name, uses: usesOf(g), named: map[string]*ir.Value{}}
		for _, w := range g.Weights {
			list[i].named[w.Name] = w
		}
	}
	return list
}

// disagree says why an entry would go on to read one of two weights by itself,
// or "". An entry that reads neither has no say.
func (r weightReaders) disagree(c *Context, a, b string, actBlock int) string {
	of := [2][]use{r.uses.of[r.named[a]], r.uses.of[r.named[b]]}
	if len(of[0])+len(of[1]) == 0 {
		return ""
	}
	for i, name := range []string{a, b} {
		if n, other := len(of[i]), len(of[1-i]); other > 0 && n > other {
			return fmt.Sprintf("@%s has %d uses in @%s, want %d as of @%s", name, n, r.entry, other, []string{b, a}[i])
		}
		for _, u := range of[i] {
			switch {
			case u.op == nil || u.op.Def.Name != "block_linear" || u.arg != 1:
				return fmt.Sprintf("@%s is no block_linear's weight in @%s%s", name, r.entry, whose(u))
			case u.op.Int("act_block") != actBlock:
				return fmt.Sprintf("@%s multiplies activations in blocks of %d in @%s", name, u.op.Int("act_block"), r.entry)
			}
		}
	}
	for _, u := range of[0] {
		x := u.op.Args[0]
		if !slices.ContainsFunc(of[1], func(v use) bool { return v.op.Args[0] == x }) {
			return fmt.Sprintf("@%s and @%s multiply two operands in @%s", a, b, r.entry)
		}
		n := 0
		for _, v := range r.uses.of[x] {
			c.visit()
			if v.op != nil && v.op.Def.Name == "block_linear" && v.arg == 0 {
				n++
			}
		}
		if n != 2 {
			return fmt.Sprintf("%d products in @%s read what @%s and @%s multiply, want two", n, r.entry, a, b)
		}
	}
	return ""
}
