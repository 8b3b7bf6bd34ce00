package passes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// negTwice drops two negations in a row.
func negTwice() Rule {
	return Rule{
		Pattern: Pattern{Op: "neg", As: "outer", Args: map[int]Pattern{0: {Op: "neg", As: "inner"}}},
		Results: []Result{{"outer", 0}},
		Build:   func(e *ir.Edit, m *Match) []*ir.Value { return []*ir.Value{e.Value(m.Arg("inner", 0))} },
		Says:    "two negations are none",
	}
}

func TestRewrite(t *testing.T) {
	const head = "graph @g\ninput %x : f32[2]\n"
	for _, tc := range []struct{ name, text, want, remark string }{
		{"fits",
			head + "%0 = neg %x : f32[2]\n%1 = neg %0 : f32[2]\n%2 = exp %1 : f32[2]\noutput y = %2\n",
			head + "%0 = exp %x : f32[2]\noutput y = %0\n",
			"applied: p @g g.kir:4:1: neg: two negations are none"},
		{"an op takes part once",
			head + "%0 = neg %x : f32[2]\n%1 = neg %0 : f32[2]\n%2 = neg %1 : f32[2]\noutput y = %2\n",
			head + "%0 = neg %x : f32[2]\noutput y = %0\n",
			"missed: p @g g.kir:5:1: neg: neg at g.kir:4:1 is part of another match"},
		{"another use",
			head + "%0 = neg %x : f32[2]\n%1 = neg %0 : f32[2]\noutput y = %1\noutput z = %0\n", "",
			"missed: p @g g.kir:4:1: neg: result y of neg at g.kir:3:1 has another use, an output or update of the graph"},
		{"nothing", head + "%0 = exp %x : f32[2]\noutput y = %0\n", "", ""},
	} {
		m := module(t, "g.kir", tc.text)
		c := &Context{Module: m, pass: "p", graph: "g"}
		g := m.Entries[0]
		got, err := Rewrite(c, g, negTwice())
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if tc.want == "" && got != g || tc.want != "" && ir.Text(got) != tc.want {
			t.Errorf("%s: got\n%s", tc.name, ir.Text(got))
		}
		remarks := ""
		for _, r := range m.Remarks {
			remarks += r.String() + "\n"
		}
		if !strings.Contains(remarks, tc.remark) || tc.remark == "" && remarks != "" {
			t.Errorf("%s: remarks %q, want %q", tc.name, remarks, tc.remark)
		}
	}
}

// What a rule makes stands, for later remarks, where the op did that it replaces.
func TestRewriteKeepsThePlace(t *testing.T) {
	m := module(t, "g.kir", "graph @g\ninput %x : f32[4]\n%0 = reshape %x {shape = [2, 2]} : f32[2,2]\n%1 = reshape %0 {shape = [1, 4]} : f32[1,4] loc(\"a\")\noutput y = %1\n")
	out, err := fold(&Context{Module: m}, m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	if last := out.Ops[len(out.Ops)-1]; last.Where() != "g.kir:4:1 (a)" {
		t.Errorf("the op stands at %q", last.Where())
	}
}

// A rule that can never fit is an error, not a pass that does nothing.
func TestRewriteChecksRules(t *testing.T) {
	for want, change := range map[string]func(*Rule){
		`rule 1: unknown op "nag"`:             func(r *Rule) { r.Pattern.Op = "nag" },
		`unknown op "nug"`:                     func(r *Rule) { r.Pattern.Args[0] = Pattern{Op: "nug"} },
		`unknown op "reader"`:                  func(r *Rule) { r.Pattern.Reader = map[int]Pattern{0: {Op: "reader"}} },
		"neg has no result 2":                  func(r *Rule) { r.Pattern.Reader = map[int]Pattern{2: {Op: "neg"}} },
		`unknown op "user"`:                    func(r *Rule) { r.Pattern.User = map[int]Pattern{0: {Op: "user"}} },
		`"outer" names two ops of the pattern`: func(r *Rule) { r.Pattern.Args[0] = Pattern{Op: "neg", As: "outer"} },
		`neg has no attribute "to"`:            func(r *Rule) { r.Pattern.Attrs = ir.A("to", ir.BF16) },
		"neg has no operand 1":                 func(r *Rule) { r.Pattern.DType = map[int]ir.DType{1: ir.F32} },
		"neg has no operand -1":                func(r *Rule) { r.Pattern.Weight = []int{-1} },
		"neg has no operand 2":                 func(r *Rule) { r.Pattern.Sibling = map[int]Pattern{2: {Op: "neg"}} },
		"neg has no result 1":                  func(r *Rule) { r.Pattern.User = map[int]Pattern{1: {Op: "neg"}} },
		"has no Build":                         func(r *Rule) { r.Build = nil },
		"has no text for the remark (Says)":    func(r *Rule) { r.Says = "" },
		"replaces no result (Results)":         func(r *Rule) { r.Results = nil },
		`replaces a result of "middle", which the pattern does not name`: func(r *Rule) { r.Results[0].As = "middle" },
		"replaces result 1 of neg, which has 1":                          func(r *Rule) { r.Results[0].Index = 1 },
	} {
		m := module(t, "g.kir", oneOp)
		r := negTwice()
		change(&r)
		_, err := Rewrite(&Context{Module: m, pass: "p", graph: "g"}, m.Entries[0], negTwice(), r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, p := range map[string]Pattern{
		// Operands of a repeated group have no last one.
		"": {Op: "concat", DType: map[int]ir.DType{7: ir.F32}, User: map[int]Pattern{0: {Op: "concat", As: "next", Arg: 7}}},
		`attribute "eps" of rms_norm: 1 (Go type int) is not a valid float`: {Op: "rms_norm", Attrs: ir.A("eps", 1)},
		"fake_quant has no operand 5":                                       {Op: "neg", User: map[int]Pattern{0: {Op: "fake_quant", As: "user", Arg: 5}}},
		"exp has no operand 1":                                              {Op: "neg", Reader: map[int]Pattern{0: {Op: "exp", As: "reader", Arg: 1}}},
		"exp has no operand -1":                                             {Op: "neg", Sibling: map[int]Pattern{0: {Op: "exp", As: "other", Arg: -1}}},
		"neg has no operand 9":                                              {Op: "neg", Args: map[int]Pattern{9: {Op: "exp"}}},
	} {
		if err := p.check(map[string]*ir.OpDef{}); fmt.Sprint(err) != want && (err != nil || want != "") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Passes of this package are held to what Rewrite asks, Reader included.
func TestRulesOfPasses(t *testing.T) {
	rules := slices.Concat(foldRules, ropeRules, normQuantRules, []Rule{hcBorder, moeAdd, topkRows, twoProducts(nil)})
	if _, err := Rewrite(&Context{Module: &Module{}}, &ir.Graph{}, rules...); err != nil {
		t.Error(err)
	}
}

// A condition on an operand or result that an op lacks does not hold.
func TestMatchWithoutOperand(t *testing.T) {
	m := module(t, "g.kir", "graph @g\ninput %x : f32[2]\n%0 = concat %x {axis = 0} : f32[2]\noutput y = %0\n")
	g := m.Entries[0]
	for want, p := range map[string]Pattern{
		"concat has no operand 1": {DType: map[int]ir.DType{1: ir.BF16}},
		"concat has no operand 2": {Args: map[int]Pattern{2: {Op: "neg", As: "arg"}}},
		"concat has no operand 3": {Weight: []int{3}},
		"concat has no operand 4": {Sibling: map[int]Pattern{4: {Op: "neg", As: "other"}}},
		"concat has no result 5":  {User: map[int]Pattern{5: {Op: "neg", As: "user"}}},
		"concat has no result 7":  {Reader: map[int]Pattern{7: {Op: "neg", As: "reader"}}},
	} {
		p.Op, p.As = "concat", "op"
		got := (&Match{ops: map[string]*ir.Op{}, u: usesOf(g), c: &Context{Module: m}}).match(&p, g.Ops[0])
		if got != want {
			t.Errorf("what does not hold is %q, want %q", got, want)
		}
	}
}

// twoOf makes two ops of one name and first operand anew, in one place.
func twoOf(name string) Rule {
	return Rule{
		Pattern: Pattern{Op: name, As: "a", Sibling: map[int]Pattern{0: {Op: name, As: "b"}}},
		Results: []Result{{"a", 0}, {"b", 0}}, Says: "two",
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			made := func(as string) *ir.Value { return e.Bin(name, e.Value(m.Arg(as, 0)), e.Value(m.Arg(as, 1))) }
			return []*ir.Value{made("a"), made("b")}
		},
	}
}

// Replacements stand where what they read and who reads them allow it, other
// replacements included; else the match is missed.
func TestRewriteFindsAPlace(t *testing.T) {
	write := Rule{
		Pattern: Pattern{Op: "gather_rows", As: "read", Sibling: map[int]Pattern{0: {Op: "scatter_rows", As: "write"}}},
		Results: []Result{{"read", 0}, {"write", 0}}, Says: "at once",
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			read, write := m.Op("read"), m.Op("write")
			return []*ir.Value{
				e.Op1("gather_rows", nil, e.Value(read.Args[0]), e.Value(read.Args[1])),
				e.Op1("scatter_rows", nil, e.Value(write.Args[0]), e.Value(write.Args[1]), e.Value(write.Args[2])),
			}
		},
	}
	const pool = "graph @g\ninput %i : i32[2]\ninput %x : f32[2,4]\nstate !s : f32[8,4]\n%0 = gather_rows !s, %i : f32[2,4]\n"
	const head = "graph @g\ninput %x : f32[2]\n"
	const outputs = "output a = %2\noutput b = %3\noutput c = %4\n"
	for _, tc := range []struct {
		name, text string
		rules      []Rule
		remarks    string
	}{
		// The subs are wanted by neg, the muls stand after it.
		{"an operand that another match makes too late", head +
			"%0 = mul %x, %x : f32[2]\n%1 = sub %x, %x : f32[2]\n%2 = neg %1 : f32[2]\n%3 = mul %x, %x : f32[2]\n%4 = sub %x, %0 : f32[2]\n" + outputs,
			[]Rule{twoOf("sub"), twoOf("mul")},
			"applied: p @g g.kir:3:1: mul: two\nmissed: p @g g.kir:4:1: sub: an operand is made after the first use of a result\n"},
		// Here the subs have their place first, and the muls go before it.
		{"a result that another match reads early", head +
			"%0 = sub %x, %x : f32[2]\n%1 = mul %x, %x : f32[2]\n%2 = neg %0 : f32[2]\n%3 = mul %x, %x : f32[2]\n%4 = sub %x, %1 : f32[2]\n" + outputs,
			[]Rule{twoOf("sub"), twoOf("mul")},
			"applied: p @g g.kir:3:1: sub: two\napplied: p @g g.kir:4:1: mul: two\n"},
		{"another reads the pool in between", pool +
			"%1 = gather_rows !s, %i : f32[2,4]\n%2 = scatter_rows !s, %i, %x : f32[8,4]\noutput y = %0\noutput z = %1\nupdate !s = %2\n",
			[]Rule{write},
			"missed: p @g g.kir:5:1: gather_rows: gather_rows at g.kir:6:1 reads the pool that scatter_rows at g.kir:7:1 writes, and comes first\n" +
				"applied: p @g g.kir:6:1: gather_rows: at once\n"},
		{"none reads it in between", pool +
			"%1 = scatter_rows !s, %i, %x : f32[8,4]\noutput y = %0\nupdate !s = %1\n",
			[]Rule{write}, "applied: p @g g.kir:5:1: gather_rows: at once\n"},
	} {
		m := module(t, "g.kir", tc.text)
		out, err := Rewrite(&Context{Module: m, pass: "p", graph: "g"}, m.Entries[0], tc.rules...)
		if err == nil {
			err = ir.Verify(out)
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		remarks := ""
		for _, r := range m.Remarks {
			remarks += r.String() + "\n"
		}
		if remarks != tc.remarks {
			t.Errorf("%s: remarks %q, want %q", tc.name, remarks, tc.remarks)
		}
	}
}
