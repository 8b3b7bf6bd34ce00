package codegen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/codegen/tune"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// productOf is a graph of two equal products of some rows: two launches of one choice.
func productOf(t *testing.T, name string, rows int) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder(name)
	for i := range 2 {
		x, w := b.Input(fmt.Sprintf("x%d", i), ir.T(ir.BF16, ir.Int(rows), ir.Int(512))), b.Weight(fmt.Sprintf("w%d", i), ir.T(ir.BF16, ir.Int(4096), ir.Int(512)))
		b.Output(fmt.Sprintf("y%d", i), b.Op1("linear", nil, x, w))
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// unitWith is a unit for sm_90 with a table.
func unitWith(t *testing.T, table *tune.Table) *Unit {
	t.Helper()
	tg, err := target.Lookup("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	u := NewUnit(tg)
	u.table = func() (*tune.Table, error) { return table, nil }
	return u
}

func row(from, to int, choice string) tune.Row {
	return tune.Row{Form: "linear_mma", From: from, To: to, Key: "n4096 k512 bf16", Times: []tune.Time{{Choice: choice, Us: 1}}}
}

// decisionOf is what is asked of a product of some rows: its cost model's choice, and
// another one that it offers.
func decisionOf(t *testing.T, rows int) (model, other string, candidates []string) {
	t.Helper()
	u := unitWith(t, nil)
	u.Ask = func(d Decision) string {
		model, candidates = d.Model, d.Candidates
		return ""
	}
	if _, err := u.Lower(productOf(t, "g", rows)); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(candidates, func(c string) bool { return c != model })
	if at < 0 {
		t.Fatalf("%d rows: candidates %v", rows, candidates)
	}
	return model, candidates[at], candidates
}

// By the table within its rows, and else by the cost model, which says why.
func TestChoose(t *testing.T) {
	model, other := map[int]string{}, map[int]string{}
	for _, rows := range []int{1, 2, 8, 9, 64, 65} {
		model[rows], other[rows], _ = decisionOf(t, rows)
	}
	if other[2] != other[8] {
		t.Fatalf("2 and 8 rows have other tiles to choose from: %v", other)
	}
	table := &tune.Table{Rows: []tune.Row{row(2, 8, other[2]), row(64, 64, other[64]), row(65, 65, "none"), {Form: "linear_mma", From: 1, To: 9, Key: "n1 k1 bf16"}}}
	byModel := func(rows int, why string) plan.Choice {
		return plan.Choice{Taken: model[rows], By: plan.ByModel, Why: why}
	}
	const outside = "not in the table"
	for _, tc := range []struct {
		table *tune.Table
		rows  int
		want  plan.Choice
	}{
		{table, 1, byModel(1, outside)},
		{table, 2, plan.Choice{Taken: other[2], By: plan.ByTable}},
		{table, 8, plan.Choice{Taken: other[2], By: plan.ByTable}},
		{table, 9, byModel(9, outside)},
		{table, 64, plan.Choice{Taken: other[64], By: plan.ByTable}},
		{table, 65, byModel(65, "the table has none, which the form does not offer")},
		{nil, 2, byModel(2, "the target has no table")},
	} {
		u := unitWith(t, tc.table)
		p, err := u.Lower(productOf(t, "g", tc.rows))
		if err != nil {
			t.Fatal(err)
		}
		tc.want.Form, tc.want.Key, tc.want.Rows = "linear_mma", "n4096 k512 bf16", tc.rows
		if d := cmp.Diff([]plan.Choice{tc.want}, u.Module.Choices); d != "" {
			t.Errorf("%d rows (-want +got):\n%s", tc.rows, d)
			continue
		}
		want := Stats{Choices: 1}
		if tc.want.By == plan.ByModel {
			want.Modelled = 1
		}
		var st Stats
		if st.choices(u.Module); st != want {
			t.Errorf("%d rows: %+v, want %+v", tc.rows, st, want)
		}
		for i, l := range p.Launches {
			if !slices.Equal(l.Choices, []int{0}) {
				t.Errorf("%d rows: launch %d has choices %v", tc.rows, i, l.Choices)
			}
		}
		if text := u.Module.Text(p); strings.Count(text, ", "+tc.want.Taken+" by "+tc.want.By+": ") != 2 {
			t.Errorf("%d rows: the plan's text does not say the choice:\n%s", tc.rows, text)
		}
	}
}

// A joined launch has the choices of its parts, each once.
func TestChooseJoined(t *testing.T) {
	b := ir.NewBuilder("g")
	x := b.Input("x", ir.T(ir.BF16, ir.Int(2), ir.Int(512)))
	for i, n := range []int{4096, 64, 4096} {
		b.Output(fmt.Sprintf("y%d", i), b.Op1("linear", nil, x, b.Weight(fmt.Sprintf("w%d", i), ir.T(ir.BF16, ir.Int(n), ir.Int(512)))))
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	u := unitWith(t, nil)
	plans, err := u.LowerAll([]*ir.Graph{g}, []passes.Bucket{{Entry: "g"}})
	if err != nil {
		t.Fatal(err)
	}
	if l := plans[0].Launches; len(l) != 1 || !slices.Equal(l[0].Choices, []int{0, 1}) || len(u.Module.Choices) != 2 {
		t.Errorf("launches %+v, choices %+v", l, u.Module.Choices)
	}
}

// Equal graphs and tables give equal modules; a choice is listed once for all plans.
func TestChooseDeterministic(t *testing.T) {
	_, other, _ := decisionOf(t, 3)
	var before *plan.Module
	for range 2 {
		u := unitWith(t, &tune.Table{Rows: []tune.Row{row(1, 8, other)}})
		for i, rows := range []int{64, 3, 64, 1} {
			if _, err := u.Lower(productOf(t, fmt.Sprintf("g%d", i), rows)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(u.Module.Choices); n != 3 || u.Module.Plans[2].Launches[0].Choices[0] != 0 {
			t.Errorf("%d choices, want 3: %+v", n, u.Module.Choices)
		}
		if before != nil {
			if d := cmp.Diff(before, u.Module); d != "" {
				t.Errorf("the second time:\n%s", d)
			}
		}
		before = u.Module
	}
}

// What is asked for is taken before the table; what no form offers is an error.
func TestChooseAsked(t *testing.T) {
	model, other, candidates := decisionOf(t, 2)
	for _, tc := range []struct{ asked, want, err string }{
		{"", other, ""},
		{model, model, ""},
		{"none", "", fmt.Sprintf("form linear_mma, n4096 k512 bf16, 2 rows: asked to take none, which is none of %v", candidates)},
	} {
		u := unitWith(t, &tune.Table{Rows: []tune.Row{row(1, 8, other)}})
		u.Ask = func(d Decision) string {
			if d.Op.Def.Name != "linear" || d.Model != model || d.Rows != 2 {
				t.Errorf("asked %+v", d)
			}
			return tc.asked
		}
		_, err := u.Lower(productOf(t, "g", 2))
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("asked for %s: error %v, want %s", tc.asked, err, tc.err)
			}
		case err != nil || u.Module.Choices[0].Taken != tc.want || (u.Module.Choices[0].By == plan.ByTuning) != (tc.asked != ""):
			t.Errorf("asked for %s: error %v, choices %+v", tc.asked, err, u.Module.Choices)
		}
	}
	u := unitWith(t, nil)
	if _, err := u.choose(Decision{Form: "f", Key: "k", Candidates: []string{"a", "b"}, Model: "c"}); err == nil {
		t.Error("a cost model takes what is no candidate")
	}
	broken := fmt.Errorf("tables/sm_90.txt:3: broken")
	u.table = func() (*tune.Table, error) { return nil, broken }
	if _, err := u.Lower(productOf(t, "g", 2)); err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

// A launch with a choice that its module lacks is found when it is read.
func TestCheckChoice(t *testing.T) {
	u := unitWith(t, nil)
	if _, err := u.Lower(productOf(t, "g", 2)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, 1} {
		u.Module.Plans[0].Launches[0].Choices = []int{n}
		if err := u.Module.Check(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("choice %d of 1", n)) {
			t.Errorf("choice %d: error %v", n, err)
		}
	}
}
