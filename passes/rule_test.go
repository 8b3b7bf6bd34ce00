package passes

import (
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
	// Operands of a repeated group have no last one.
	many := Pattern{Op: "concat", DType: map[int]ir.DType{7: ir.F32}}
	if err := many.check(map[string]*ir.OpDef{}); err != nil {
		t.Error(err)
	}
}
