package passes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

const rowsOp = `graph @step
sym T
input %x : f32[T,2]
%0 = neg %x : f32[T,2]
output y = %0
`

// withPass has a pass in the table for one test.
func withPass(t *testing.T, p Pass, next string) {
	t.Helper()
	table, orders := Table, Orders
	t.Cleanup(func() { Table, Orders = table, orders })
	if err := Register(p, next); err != nil {
		t.Fatal(err)
	}
}

// Optimize runs what stands before select-kernels: on the entries as they are, or
// bound, also when some symbols stay.
func TestOptimize(t *testing.T) {
	var saw []string
	withPass(t, Pass{Name: "look", Doc: "Looks.", On: Steps, Graph: func(c *Context, g *ir.Graph) (*ir.Graph, error) {
		saw = append(saw, g.Inputs[0].Type.String())
		return g, nil
	}}, "select-kernels")
	for _, tc := range []struct {
		buckets []Bucket
		want    string
	}{
		{nil, "f32[T,2]"},
		{[]Bucket{{"step", map[string]int{"T": 3}}}, "f32[3,2]"},
		{[]Bucket{{"step", map[string]int{"B": 3}}}, "f32[T,2]"},
		{[]Bucket{{"step", map[string]int{"T": 3}}, {"step", map[string]int{"T": 4}}}, "f32[3,2] f32[4,2]"},
	} {
		saw = nil
		m := module(t, "step.kir", rowsOp)
		var events []string
		m.Config.Trace = func(e Event) { events = append(events, fmt.Sprintf("%s %d", e.Pass.Name, e.N)) }
		if err := Run(m); err != nil {
			t.Fatal(err)
		}
		if err := Optimize(m, tc.buckets); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(saw, " "); got != tc.want {
			t.Errorf("%v: the pass saw %s, want %s", tc.buckets, got, tc.want)
		}
		if slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "select-kernels") }) {
			t.Errorf("events %v", events)
		}
		if bound := slices.Contains(events, "bind 0"); bound != (tc.buckets != nil) {
			t.Errorf("%v: bind ran: %v", tc.buckets, bound)
		}
	}
}

// Applications are numbered through both stages, as Bisect counts them.
func TestEventNumbers(t *testing.T) {
	withPass(t, Pass{Name: "look", Doc: "Looks.", On: Steps, Graph: func(c *Context, g *ir.Graph) (*ir.Graph, error) { return g, nil }}, "select-kernels")
	m := module(t, "step.kir", rowsOp)
	m.Config.Only = []string{"cse", "look"}
	two := 2
	m.Config.Bisect = &two
	var got []string
	m.Config.Trace = func(e Event) {
		if e.N > 0 {
			got = append(got, fmt.Sprintf("%d %s %d %v", e.N, e.Pass.Name, e.Step, e.Skipped))
		}
	}
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	if err := Optimize(m, []Bucket{{"step", map[string]int{"T": 3}}, {"step", map[string]int{"T": 4}}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 cse -1 false", "2 look 0 false", "3 look 1 true"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// A pass that changes the graph that it was given is named, whatever it returns, whether
// somebody listens or not; the graph is again what it was.
func TestInPlace(t *testing.T) {
	for name, change := range map[string]func(g *ir.Graph){
		"ops":       func(g *ir.Graph) { g.Ops = g.Ops[:len(g.Ops)-1] },
		"an op":     func(g *ir.Graph) { op := *g.Ops[0]; g.Ops[0] = &op },
		"operand":   func(g *ir.Graph) { v := *g.Inputs[0]; g.Ops[0].Args[0] = &v },
		"operands":  func(g *ir.Graph) { op := g.Ops[len(g.Ops)-1]; op.Args = []*ir.Value{g.Inputs[0]} },
		"attribute": func(g *ir.Graph) { g.Ops[0].Attrs = ir.Attrs{{Key: "x", Val: 1}} },
		"loc":       func(g *ir.Graph) { g.Ops[0].Loc = "elsewhere" },
		"input":     func(g *ir.Graph) { g.Inputs[0].Name += "_" },
		"output":    func(g *ir.Graph) { g.Outputs[0].Name = "z" },
		"name":      func(g *ir.Graph) { g.Name = "z" },
		"nothing":   func(*ir.Graph) {},
	} {
		for _, other := range []bool{false, true} {
			for _, listen := range []bool{false, true} {
				t.Run(fmt.Sprint(name, other, listen), func(t *testing.T) {
					withPass(t, Pass{Name: "p", Doc: "Changes it.", Graph: func(_ *Context, g *ir.Graph) (*ir.Graph, error) {
						out := g
						if other {
							e := ir.NewEdit(g)
							for _, op := range g.Ops {
								e.Copy(op)
							}
							var err error
							if out, err = e.Finish(); err != nil {
								return nil, err
							}
						}
						change(g)
						return out, nil
					}}, "dce")
					m := module(t, "step.kir", rowsOp)
					m.Config.Only = []string{"p"}
					if listen {
						m.Config.Trace = func(Event) {}
					}
					given := m.Entries[0]
					before := ir.Text(given)
					err := Run(m)
					if name == "nothing" {
						if err != nil {
							t.Error(err)
						}
						return
					}
					var e *Error
					if !errors.As(err, &e) || err.Error() != "pass p: changed the graph that it was given" || !e.Bug || e.Before != given {
						t.Errorf("%s: error %v", name, err)
					}
					if after := ir.Text(given); after != before {
						t.Errorf("%s: the graph is now\n%s", name, after)
					}
				})
			}
		}
	}
}

// With VerifyEach a pass that changes the graph that it was given is found; what a
// panic says goes out to the pass.
func TestBugs(t *testing.T) {
	inPlace := func(_ *Context, g *ir.Graph) (*ir.Graph, error) {
		g.Outputs[0].Name = "z"
		return g, nil
	}
	for _, tc := range []struct {
		graph func(*Context, *ir.Graph) (*ir.Graph, error)
		want  string
		bug   bool
		stack int
	}{
		{inPlace, "pass p: changed the graph that it was given", true, 0},
		{func(*Context, *ir.Graph) (*ir.Graph, error) { return nil, errors.New("no") }, "pass p: no", false, 0},
		{func(*Context, *ir.Graph) (*ir.Graph, error) { panic("oh") }, "pass p: panic: oh", true, 1},
	} {
		m := module(t, "step.kir", rowsOp)
		m.Config.VerifyEach = true
		var failed error
		m.Config.Trace = func(e Event) { failed = e.Err }
		err := runOne(&Pass{Name: "p", Graph: tc.graph}, m)
		var e *Error
		if !errors.As(err, &e) || err.Error() != tc.want || e.Bug != tc.bug || len(e.Stack) < tc.stack || e.Module != m || failed == nil {
			t.Errorf("error %v (%+v), event %v, want %s", err, e, failed, tc.want)
			continue
		}
		if tc.stack > 0 && !strings.HasPrefix(e.Stack[0], "passes.TestBugs") {
			t.Errorf("stack %q", e.Stack)
		}
	}
}
