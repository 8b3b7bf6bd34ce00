package ir

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// brokenGraph is a legal graph to break: a state that is read, then written.
func brokenGraph(t *testing.T) *Graph {
	t.Helper()
	g, err := ParseOne("", `graph @g
sym T
let E = T/4+1
input %x : f32[T]
input %slots : i32[T]
weight @w.* : f32[4]
state !s : f32[E]
%0 = gather_rows !s, %slots : f32[T]
%1 = add %0, %x : f32[T]
%2 = scatter_rows !s, %slots, %1 : f32[E]
output y = %1
output w = @w.*
update !s = %2
`)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// brokenGraphs break a rule each in a way that only Go code can: a pass that
// goes wrong. The graph has no positions, like a graph that was built.
var brokenGraphs = []struct {
	name string
	do   func(g *Graph)
	want string // the first breach
}{
	{"symbol is no name", func(g *Graph) { g.Syms[0] = "a-b" }, `graph @g: symbol "a-b" is not a name [symbol]`},
	{"symbol without a name", func(g *Graph) { g.Syms = append(g.Syms, "") }, `graph @g: symbol "" is not a name [symbol]`},
	{"symbol twice", func(g *Graph) { g.Syms = append(g.Syms, "T") }, "graph @g: symbol T is declared twice [symbol]"},
	{"symbol gone", func(g *Graph) { g.Syms = nil }, "graph @g: let E uses undeclared symbol T [symbol]"},
	{"symbol of a type gone", func(g *Graph) { g.Syms, g.Lets = nil, nil }, "graph @g: %x uses undeclared symbol T [symbol]"},
	{"let of a symbol's name", func(g *Graph) { g.Lets[0].Name = "T" }, `graph @g: derived symbol "T" is not a name or is declared twice [symbol]`},
	{"let twice", func(g *Graph) { g.Lets = append(g.Lets, g.Lets[0]) }, `graph @g: derived symbol "E" is not a name or is declared twice [symbol]`},
	{"symbol in an attribute", func(g *Graph) {
		addOp(g, "iota", A("axis", 0, "shape", []Dim{Sym("U")}))
	}, "graph @g: iota attribute shape uses undeclared symbol U [symbol]"},

	{"graph without a name", func(g *Graph) { g.Name = "" }, `graph @: graph name "" is not a name [name]`},
	{"input twice", func(g *Graph) { g.Inputs = append(g.Inputs, g.Inputs[0]) }, "graph @g: %x is declared twice [name]"},
	{"input with a space", func(g *Graph) { g.Inputs[0].Name = "a b" }, "graph @g: %a b is not a valid name [name]"},
	{"weight without a name", func(g *Graph) { g.Weights[0].Name = "" }, "graph @g: @ is not a valid name [name]"},
	{"meta key", func(g *Graph) { g.Meta = []Meta{{"a b", ""}} }, `graph @g: graph attribute "a b" is not a name or is given twice [name]`},
	{"input in the list of weights", func(g *Graph) { g.Weights = append(g.Weights, &Value{Kind: InputValue, Name: "z", Type: T(F32)}) }, "graph @g: %z is declared as another kind of value than it is [name]"},
	{"nil input", func(g *Graph) { g.Inputs = append(g.Inputs, nil) }, "graph @g: <nil> is declared as another kind of value than it is [name]"},

	{"let out of range", func(g *Graph) { g.Lets[0].Dim = Sym("T").Mul(Int(1 << 40)) }, "graph @g: let E: factor 1099511627776 of T is out of range [type]"},
	{"input without a dtype", func(g *Graph) { g.Inputs[0].Type.DType = Invalid }, "graph @g: %x: type has no dtype [type]"},
	{"dtype outside the table", func(g *Graph) { g.Inputs[0].Type.DType = 200 }, "graph @g: %x: type has no dtype [type]"},
	{"extent out of range", func(g *Graph) { g.Inputs[0].Type.Dims = []Dim{Int(1 << 62).Add(Int(1))} }, "graph @g: %x: f32[?]: axis 0: the expression is out of range [type]"},
	{"stacked over a symbol", func(g *Graph) { g.Weights[0].Type = T(F32, Sym("T")) }, "graph @g: @w.* : f32[T]: one * stands for a constant first axis [stacked]"},

	{"op of another table", func(g *Graph) { d := *g.Ops[1].Def; g.Ops[1].Def = &d }, "graph @g: add: not the op table's row of that name [op]"},
	{"op of no table", func(g *Graph) { g.Ops[1].Def = &OpDef{Name: "nosuch"} }, "graph @g: nosuch: not the op table's row of that name [op]"},
	{"op without a row", func(g *Graph) { g.Ops[1].Def = nil }, "graph @g: an op has no row of the op table [op]"},
	{"nil op", func(g *Graph) { g.Ops = append(g.Ops, nil) }, "graph @g: an op has no row of the op table [op]"},
	{"operand lost", func(g *Graph) { g.Ops[1].Args = g.Ops[1].Args[:1] }, "graph @g: add: has 1 operands, want 2 [arity]"},
	{"result lost", func(g *Graph) { g.Ops[0].Results = nil }, "graph @g: gather_rows: has 0 results, want 1 [arity]"},
	{"attribute unknown", func(g *Graph) { g.Ops[1].Attrs = A("axis", 1) }, `graph @g: add: has no attribute "axis" [attr]`},
	{"attribute of the wrong kind", func(g *Graph) { addOp(g, "reduce_sum", A("axis", 0.0, "to", F32), g.Inputs[0]) }, "graph @g: reduce_sum: attribute axis: 0 (Go type float64) is not a valid int [attr]"},
	{"attribute default left out", func(g *Graph) { addOp(g, "reduce_sum", A("axis", 0), g.Inputs[0]) }, "graph @g: reduce_sum: attributes are incomplete [attr]"},
	{"attribute missing", func(g *Graph) { addOp(g, "reduce_sum", A("to", F32), g.Inputs[0]) }, "graph @g: reduce_sum: attribute axis is missing [attr]"},
	{"attribute nil", func(g *Graph) { addOp(g, "reduce_sum", A("axis", nil, "to", F32), g.Inputs[0]) }, "graph @g: reduce_sum: attribute axis: <nil> (Go type <nil>) is not a valid int [attr]"},
	{"attribute not a dtype", func(g *Graph) {
		addOp(g, "quantize", A("to", DType(99), "block", 1, "floor", 1.0), g.Inputs[0])
	}, "graph @g: quantize: to is invalid, want f8e4m3 or f8e4m3fnuz or f4e2m1 [infer]"},

	{"operand of another graph", func(g *Graph) { g.Ops[1].Args[1] = &Value{Kind: InputValue, Name: "x", Type: g.Inputs[0].Type} }, "graph @g: add: operand 1 (%x) is not defined before its use in this graph [dominance]"},
	{"operand nil", func(g *Graph) { g.Ops[1].Args[1] = nil }, "graph @g: add: operand 1 (<nil>) is not defined before its use in this graph [dominance]"},
	{"operand without an op", func(g *Graph) { g.Ops[2].Args[0] = &Value{Type: g.States[0].Type} }, "graph @g: scatter_rows: operand 0 (%0) is not defined before its use in this graph [dominance]"},
	{"order of ops", func(g *Graph) { g.Ops[0], g.Ops[1] = g.Ops[1], g.Ops[0] }, "graph @g: add: operand 0 (%1) is not defined before its use in this graph [dominance]"},
	{"op twice", func(g *Graph) { g.Ops = append(g.Ops, g.Ops[1]) }, "graph @g: add: result %3 is defined twice [dominance]"},
	{"op of its own result", func(g *Graph) { g.Ops[1].Args[0] = g.Ops[1].Results[0] }, "graph @g: add: operand 0 (%1) is not defined before its use in this graph [dominance]"},
	{"scatter of its own result", func(g *Graph) { g.Ops[2].Args[0] = g.Ops[2].Results[0] }, "graph @g: scatter_rows: operand 0 (%2) is not defined before its use in this graph [dominance]"},
	{"result of another op", func(g *Graph) { g.Ops[1].Results[0].Op = g.Ops[0] }, "graph @g: add: result 0 is not marked as that result of this op [dominance]"},
	{"result at another index", func(g *Graph) { g.Ops[1].Results[0].Index = 1 }, "graph @g: add: result 0 is not marked as that result of this op [dominance]"},
	{"result that is an input", func(g *Graph) { g.Ops[1].Results[0] = g.Inputs[0] }, "graph @g: add: result 0 is not marked as that result of this op [dominance]"},
	{"nil result", func(g *Graph) { g.Ops[1].Results[0] = nil }, "graph @g: add: result 0 is not marked as that result of this op [dominance]"},
	{"output of another graph", func(g *Graph) { g.Outputs[0].Value = &Value{Kind: InputValue, Name: "x"} }, "graph @g: output y is not a value of this graph [dominance]"},
	{"output nil", func(g *Graph) { g.Outputs[0].Value = nil }, "graph @g: output y is not a value of this graph [dominance]"},
	{"update by another graph", func(g *Graph) { g.Updates[0].Value = &Value{Type: g.States[0].Type} }, "graph @g: update of !s by a value that is not of this graph [dominance]"},
	{"update by nil", func(g *Graph) { g.Updates[0].Value = nil }, "graph @g: update of !s by a value that is not of this graph [dominance]"},
	{"result type", func(g *Graph) { g.Ops[1].Results[0].Type = T(F32) }, "graph @g: add: result z is declared f32[], inferred f32[T] [infer]"},
	{"operand type", func(g *Graph) { g.Inputs[0].Type = T(BF16, Sym("T")) }, "graph @g: add: dtypes differ: f32[T] and bf16[T] [infer]"},

	{"output named like a result", func(g *Graph) { g.Outputs[0].Name = "0a" }, `graph @g: output "0a" is not a valid name or is given twice [output]`},
	{"output without a name", func(g *Graph) { g.Outputs[0].Name = "" }, `graph @g: output "" is not a valid name or is given twice [output]`},
	{"no result", func(g *Graph) { g.Ops, g.Outputs, g.Updates = nil, nil, nil }, "graph @g: there is no output and no state update [output]"},
	{"update of nil", func(g *Graph) { g.Updates[0].State = nil }, "graph @g: update of <nil>, which is not a state of this graph [update]"},
	{"update of an input", func(g *Graph) { g.Updates[0].State = g.Inputs[0] }, "graph @g: update of %x, which is not a state of this graph [update]"},
	{"update of another graph", func(g *Graph) { g.Updates[0].State = &Value{Kind: StateValue, Name: "s"} }, "graph @g: update of !s, which is not a state of this graph [update]"},
	{"update lost", func(g *Graph) { g.Updates = nil }, "graph @g: scatter_rows writes !s, but no update keeps the result [update]"},
	{"read moved after the write", func(g *Graph) {
		addOp(g, "neg", nil, g.States[0])
		g.Ops[len(g.Ops)-1].Results[0].Type = g.States[0].Type
	}, "graph @g: neg uses !s after op wrote that pool [state-use]"},
}

// addOp appends an op without any check. Its result has some type.
func addOp(g *Graph, name string, attrs Attrs, args ...*Value) {
	o := &Op{Def: table[name], Args: args, Attrs: attrs}
	o.Results = []*Value{{Type: T(F32), Op: o}}
	g.Ops = append(g.Ops, o)
}

func TestVerifyBrokenGraphs(t *testing.T) {
	for _, c := range brokenGraphs {
		t.Run(c.name, func(t *testing.T) {
			g := brokenGraph(t)
			stripPositions(g)
			c.do(g)
			errs := verifyErrors(Verify(g))
			if len(errs) == 0 {
				t.Fatalf("no error, want %s", c.want)
			}
			if got := errs[0].Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			// Whatever takes a graph refuses it, too.
			if _, err := Expand(g); err == nil {
				t.Error("Expand takes it")
			}
		})
	}
}

func stripPositions(g *Graph) {
	g.Pos = Pos{}
	for _, list := range [][]*Value{g.Inputs, g.Weights, g.States} {
		for _, v := range list {
			v.Pos = Pos{}
		}
	}
	for i := range g.Lets {
		g.Lets[i].Pos = Pos{}
	}
	for _, op := range g.Ops {
		op.Pos = Pos{}
	}
	for i := range g.Outputs {
		g.Outputs[i].Pos = Pos{}
	}
	for i := range g.Updates {
		g.Updates[i].Pos = Pos{}
	}
}

// Every rule has a case, in text if text can break it.
func TestEveryRuleHasACase(t *testing.T) {
	covered := map[Rule]bool{}
	for _, c := range brokenGraphs {
		open, shut := strings.LastIndexByte(c.want, '['), strings.LastIndexByte(c.want, ']')
		covered[Rule(c.want[open+1:shut])] = true
	}
	inText := map[Rule]bool{}
	for _, kind := range []string{"verify-error", "parse-error"} {
		for _, path := range glob(t, "testdata/"+kind+"/*.txtar") {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range a.Files {
				if !strings.HasSuffix(f.Name, ".want") {
					continue
				}
				for _, r := range Rules {
					if strings.Contains(string(f.Data), " ["+string(r)+"]\n") {
						inText[r] = true
					}
				}
			}
		}
	}
	if len(Rules) != 12 {
		t.Errorf("%d rules: is this test complete?", len(Rules))
	}
	for _, r := range Rules {
		if !covered[r] {
			t.Errorf("rule %s has no case in Go", r)
		}
		if !inText[r] {
			t.Errorf("rule %s has no case in text", r)
		}
	}
}

// An op's loc and place stand in its errors.
func TestVerifyErrorPlace(t *testing.T) {
	g := brokenGraph(t)
	stripPositions(g)
	g.Ops[1].Loc = "layers.0"
	g.Ops[1].Args = nil
	const want = "graph @g: layers.0: add: has 0 operands, want 2 [arity]"
	if got := verifyErrors(Verify(g))[0].Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	g.Ops[1].Pos = Pos{"f.kir", 3, 4}
	if got := verifyErrors(Verify(g))[0].Error(); got != "f.kir:3:4: "+want {
		t.Errorf("got %s", got)
	}
	for _, c := range []struct {
		op   Op
		want string
	}{
		{Op{}, "op"},
		{Op{Loc: "a"}, "a"},
		{Op{Pos: Pos{"f", 1, 2}}, "f:1:2"},
		{Op{Pos: Pos{"f", 1, 2}, Loc: "a"}, "f:1:2 (a)"},
	} {
		if got := c.op.Where(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A pass that registers an op whose inference is wrong is told so.
func TestVerifyInferCount(t *testing.T) {
	register(t, &OpDef{Name: "two", Group: "test", Doc: "d.", Results: []string{"a"},
		Infer: func(o *Op) ([]Type, error) { return []Type{T(F32), T(F32)}, nil }})
	g := brokenGraph(t)
	stripPositions(g)
	addOp(g, "two", nil)
	const want = "graph @g: two: inference gave 2 results, the op table declares 1 [infer]"
	if got := verifyErrors(Verify(g)); len(got) != 1 || got[0].Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	b := NewBuilder("g")
	b.Op("two", nil)
	if err := b.Err(); err == nil || err.Error() != "g: two: inference gave 2 results, the op table declares 1" {
		t.Errorf("got %v", err)
	}
}
