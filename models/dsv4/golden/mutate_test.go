package golden

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

var update = flag.Bool("update", false, "rewrite docs/mutations.md")

// The specification whose section 8 is broken rule by rule, and the table that
// the test writes.
const (
	specFile      = "../../../docs/dsv4.md"
	mutationsFile = "../../../docs/mutations.md"
)

// mutation breaks one rule. The checks run in order, with their ordinary limits,
// until one notices; those before it are known to be blind to this mistake.
type mutation struct {
	rule     string // as section 8 words it
	how      string // what is done instead
	numerics dsv4.Numerics
	checks   []string
	breaks   func(t *testing.T) Maker
}

// swap replaces what an op means while the test runs.
func swap(op string, decompose func(b *ir.Builder, o *ir.Op, right decomposition) []*ir.Value) func(*testing.T) Maker {
	return func(t *testing.T) Maker {
		d, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		right := d.Decompose
		if right == nil {
			t.Fatalf("op %s is a primitive: it has no decomposition to replace", op)
		}
		d.Decompose = func(b *ir.Builder, o *ir.Op) []*ir.Value { return decompose(b, o, right) }
		t.Cleanup(func() { d.Decompose = right })
		return oracle
	}
}

type decomposition = func(*ir.Builder, *ir.Op) []*ir.Value

// with is o with other operands.
func with(o *ir.Op, args ...*ir.Value) *ir.Op {
	c := *o
	c.Args = args
	return &c
}

// set is a with one value replaced.
func set(a ir.Attrs, key string, val any) ir.Attrs {
	out := slices.Clone(a)
	for i := range out {
		if out[i].Key == key {
			out[i].Val = val
		}
	}
	return out
}

// rewriter returns what stands for op, whose operands in the new graph are args;
// nil keeps the op.
type rewriter func(b *ir.Builder, op *ir.Op, args []*ir.Value) []*ir.Value

// rewrite changes every graph that reaches the executor.
func rewrite(f rewriter) func(*testing.T) Maker { return rewriteGraph("", f) }

// rewriteGraph changes the graphs of one name; "" is every name. The pack graph
// is changed with them, unless it packs for another entry too.
func rewriteGraph(name string, f rewriter) func(*testing.T) Maker {
	return func(*testing.T) Maker {
		return func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
			alone := true
			var err error
			for i, g := range entries {
				if name != "" && g.Name != name {
					alone = false
					continue
				}
				if entries[i], err = rewritten(g, f); err != nil {
					return nil, err
				}
			}
			if alone && pack != nil {
				if pack, err = rewritten(pack, f); err != nil {
					return nil, err
				}
			}
			return oracle(entries, pack, w)
		}
	}
}

func rewritten(g *ir.Graph, f rewriter) (*ir.Graph, error) {
	b := ir.NewBuilder(g.Name, g.Meta...)
	for _, s := range g.Syms {
		b.Sym(s)
	}
	for _, l := range g.Lets {
		b.Let(l.Name, l.Dim)
	}
	moved := map[*ir.Value]*ir.Value{}
	for _, v := range g.Inputs {
		moved[v] = b.Input(v.Name, v.Type)
	}
	for _, v := range g.Weights {
		moved[v] = b.Weight(v.Name, v.Type)
	}
	for _, v := range g.States {
		moved[v] = b.State(v.Name, v.Type)
	}
	for _, op := range g.Ops {
		args := make([]*ir.Value, len(op.Args))
		for i, a := range op.Args {
			args[i] = moved[a]
		}
		b.At(op.Loc)
		results := f(b, op, args)
		if results == nil {
			results = b.Op(op.Def.Name, op.Attrs, args...)
		}
		if err := b.Err(); err != nil {
			return nil, err
		}
		for i, r := range op.Results {
			moved[r] = results[i]
		}
	}
	for _, o := range g.Outputs {
		b.Output(o.Name, moved[o.Value])
	}
	for _, u := range g.Updates {
		b.Update(moved[u.State], moved[u.Value])
	}
	return b.Finish()
}

// outcome is what the checks said about a mutation.
type outcome struct {
	blind  []string // checks that passed
	caught *Miss    // the first comparison beyond its limit
}

// try runs a mutation's checks until one fails, without optional passes: what a
// mutation breaks may be in no graph after them. A check that fails without a
// comparison (a graph that does not build, say) has not noticed anything.
func (m mutation) try(t *testing.T) outcome {
	t.Helper()
	cfg := config(m.numerics)
	cfg.Executor, cfg.Passes.Pipeline = m.breaks(t), "required"
	s := open(t, cfg)
	byName := map[string]Check{}
	for _, c := range s.Checks() {
		byName[c.Name] = c
	}
	var o outcome
	for _, name := range m.checks {
		c, ok := byName[name]
		if !ok {
			t.Fatalf("no check %s in the suite", name)
		}
		err := c.Run()
		if err == nil {
			o.blind = append(o.blind, name)
			continue
		}
		if !errors.As(err, &o.caught) {
			t.Fatalf("the mutation does not run: %v", err)
		}
		return o
	}
	return o
}

// TestMutations breaks every rule of section 8 and requires that a check of the
// ordinary suite notices, with its ordinary limit. That the same checks pass
// when nothing is broken is TestSuite.
func TestMutations(t *testing.T) {
	var rows [][]string
	for i, m := range mutations {
		t.Run(fmt.Sprintf("%02d %s", i+1, m.how), func(t *testing.T) {
			o := m.try(t)
			if o.caught == nil {
				t.Fatalf("none of %v noticed", m.checks)
			}
			r := o.caught.Result
			t.Logf("%s; not noticed by %v", r, o.blind)
			blind := strings.Join(o.blind, ", ")
			if blind == "" {
				blind = "-"
			}
			rows = append(rows, []string{m.rule, m.how, string(m.numerics), r.Check + ": " + r.What,
				fmt.Sprintf("%s %.3g", r.Bound.Metric, r.Got), r.Bound.String(), blind})
		})
	}
	if t.Failed() || len(rows) != len(mutations) {
		return // some failed or were not selected: the table would be incomplete
	}
	text := mutationTable(rows)
	if *update {
		if err := os.WriteFile(mutationsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(mutationsFile)
	if err != nil {
		t.Fatal(err)
	}
	// Measured numbers may differ by rounding from one processor to another.
	if d := cmp.Diff(withoutMeasured(string(have)), withoutMeasured(text)); d != "" {
		t.Errorf("%s is out of date; run this test with -update (-have +want):\n%s", mutationsFile, d)
	}
}

const mutationIntro = `# Mutations: does anything notice when a rule is broken?

Written by ` + "`go test ./models/dsv4/golden -run TestMutations -update`" + `; the same test without the flag compares.

Each row breaks one rule of dsv4.md section 8 in the graph, the op table or the weights that the reference evaluator
works on, and runs checks of the ordinary golden suite with their ordinary limits, in order, until one fails. Checks under
"not noticed by" ran before it and passed: they are blind to this mistake. A NaN is a result that is not a number or is missing.

`

var mutationHead = []string{"rule", "what is done instead", "numerics", "noticed by", "measured", "limit", "not noticed by"}

const measuredColumn = 4

func mutationTable(rows [][]string) string {
	var b strings.Builder
	b.WriteString(mutationIntro)
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(mutationHead)
	rule := make([]string, len(mutationHead))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// withoutMeasured splits the text into lines and blanks the measured numbers.
func withoutMeasured(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if cells := strings.Split(l, " | "); len(cells) == len(mutationHead) {
			cells[measuredColumn] = ""
			lines[i] = strings.Join(cells, " | ")
		}
	}
	return lines
}

// notRules are clauses of section 8 that state nothing one could break.
var notRules = []string{
	"the routed part of the tiny model is small against the shared expert, so test moe at operator level",
}

// TestMutationsCoverSection8 requires a mutation for every row of the table of
// pitfalls and for every clause of the sentence below it, and no mutation for
// anything else.
func TestMutationsCoverSection8(t *testing.T) {
	data, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## 8. Pitfalls\n")
	section, _, ok2 := strings.Cut(section, "\n## 9.")
	if !ok || !ok2 {
		t.Fatalf("%s has no section 8 between its headings", specFile)
	}
	var rules []string
	for _, l := range strings.Split(section, "\n") {
		if cells := strings.Split(l, "|"); len(cells) == 4 && strings.TrimSpace(cells[1]) != "mistake" && !strings.HasPrefix(cells[1], "---") {
			rules = append(rules, strings.TrimSpace(cells[1]))
		}
	}
	if len(rules) != 17 {
		t.Errorf("section 8 has %d table rows, want 17", len(rules))
	}
	_, also, ok := strings.Cut(section, "\nAlso: ")
	if !ok {
		t.Fatal(`section 8 has no sentence "Also: .."`)
	}
	also = strings.TrimSuffix(strings.Join(strings.Fields(also), " "), ".")
	rules = append(rules, strings.Split(also, "; ")...)
	var got []string
	for _, m := range mutations {
		if !slices.Contains(got, m.rule) {
			got = append(got, m.rule)
		}
	}
	if d := cmp.Diff(rules, append(got, notRules...)); d != "" {
		t.Errorf("rules of section 8 and rules of the mutations, in order (-section +mutations):\n%s", d)
	}
}
