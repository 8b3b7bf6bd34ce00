package check

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

func TestValidChoice(t *testing.T) {
	low, nan := float32(math.Inf(-1)), float32(math.NaN())
	near := float32(1 - 1e-6)
	for _, tc := range []struct {
		name      string
		scores    []float32
		ids       []int64
		tolerance float64
		why       string // part of it; "": valid
	}{
		{"the largest", []float32{1, 3, 2}, []int64{1, 2}, 0, ""},
		{"in another order", []float32{1, 3, 2}, []int64{2, 1}, 0, "id 2 (score 2) comes before id 1 (score 3)"},
		{"not the largest", []float32{1, 3, 2}, []int64{1, 0}, 0, "id 0 (score 1) is chosen before id 2 (score 2)"},
		{"equal ones, the lower", []float32{2, 2, 2}, []int64{0, 1}, 0, ""},
		{"equal ones, not the lower", []float32{2, 2, 2}, []int64{0, 2}, 0, "is chosen before id 1"},
		{"equal ones, not the lower, whatever the tolerance", []float32{2, 2, 2}, []int64{1, 0}, 1, "comes before"},
		{"within the tolerance", []float32{near, 1}, []int64{0}, 2e-6, ""},
		{"beyond the tolerance", []float32{near, 1}, []int64{0}, 1e-7, "is chosen before"},
		{"within it of large scores", []float32{1000, 1000.001}, []int64{0}, 2e-6, ""},
		{"fewer than places", []float32{low, 3, nan}, []int64{1, -1}, 0, ""},
		{"a place left empty", []float32{0, 3, nan}, []int64{1, -1}, 0, "place 1 is empty, 2 scores can be chosen"},
		{"-inf", []float32{low, 3}, []int64{1, 0}, 0, "the score of id 0 is -Inf"},
		{"NaN", []float32{nan, 3}, []int64{1, 0}, 0, "the score of id 0 is NaN"},
		{"twice", []float32{1, 3}, []int64{1, 1}, 0, "twice"},
		{"outside", []float32{1, 3}, []int64{2}, 0, "outside"},
	} {
		why := validRow(tc.scores, tc.ids, tc.tolerance)
		if (why == "") != (tc.why == "") || !strings.Contains(why, tc.why) {
			t.Errorf("%s: %q, want %q", tc.name, why, tc.why)
		}
	}
}

// Another valid choice brings its own weights; an invalid one is told.
func TestChoiceOfTheGate(t *testing.T) {
	b := ir.NewBuilder("g")
	x, w, bias := b.Input("x", ir.T(ir.BF16, ir.Int(1), ir.Int(2))), b.Input("w", ir.T(ir.BF16, ir.Int(3), ir.Int(2))), b.Input("bias", ir.T(ir.F32, ir.Int(3)))
	op := b.Op("gate", ir.A("k", 1, "scale", 2.0), x, w, bias)[0].Op
	var list oneOps
	o, err := list.of(op)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(dt ir.DType, v []float32, shape ...int) *eval.Tensor {
		x, err := eval.FromF32(dt, v, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	args := []*eval.Tensor{tensor(ir.BF16, []float32{1, 1}, 1, 2), tensor(ir.BF16, []float32{1, 1, 1, 1, 0, 0}, 3, 2), tensor(ir.F32, []float32{1, 1 + 1e-6, 1}, 3)}
	want, err := o.evaluate(args)
	if err != nil || want[0].I[0] != 1 {
		t.Fatalf("chosen %v, error %v", want, err)
	}
	for id, valid := range []bool{true, true, false} {
		got := want[0].Clone()
		got.I[0] = int64(id)
		forced, why, err := o.choice(args, got)
		if err != nil {
			t.Fatal(err)
		}
		if (why == "") != valid {
			t.Errorf("id %d: %q", id, why)
		}
		if valid && (!slices.Equal(forced[0].I, got.I) || forced[1].F[0] != 2) {
			t.Errorf("id %d: forced %v", id, forced)
		}
	}
}

// A choice of linear_argmax is held to the scores of its rows; flags do not depend
// on it.
func TestChoiceOfTheGreedyHead(t *testing.T) {
	b := ir.NewBuilder("g")
	x, w := b.Input("x", ir.T(ir.BF16, ir.Int(4), ir.Int(2))), b.Input("w", ir.T(ir.BF16, ir.Int(4), ir.Int(2)))
	var list oneOps
	o, err := list.of(b.Op("linear_argmax", ir.A("valid", 3), x, w)[0].Op)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(v []float32, shape ...int) *eval.Tensor {
		x, err := eval.FromF32(ir.BF16, v, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	nan := float32(math.NaN())
	// Scores 1, 1 + 2^-20, 0; then all the same; then none. The fourth column, which
	// pads the others, has greater ones.
	args := []*eval.Tensor{tensor([]float32{1, 1, 0, 0, nan, nan, 1, 0}, 4, 2), tensor([]float32{1, 0, 1, 1.0 / (1 << 20), 0, 0, 9, 9}, 4, 2)}
	want, err := o.evaluate(args)
	if err != nil || !slices.Equal(want[0].I, []int64{1, 0, 0, 0}) || !slices.Equal(want[1].I, []int64{0, 0, ir.ArgmaxNaN | ir.ArgmaxAllNaN, 0}) {
		t.Fatalf("chosen %v, error %v", want, err)
	}
	for _, tc := range []struct {
		ids []int64
		why string // part of it; "": valid
	}{
		{[]int64{1, 0, 0, 0}, ""},
		{[]int64{0, 0, 0, 0}, ""}, // within the tolerance
		{[]int64{2, 0, 0, 0}, "id 2 (score 0) is chosen before"},
		{[]int64{1, 1, 0, 0}, "is chosen before id 0"}, // a tie
		{[]int64{1, 0, 1, 0}, "the score of id 1 is NaN"},
		{[]int64{1, 0, 0, 3}, "outside"}, // where padding is
		{[]int64{1, 0, 0, -1}, "is empty"},
	} {
		got := want[0].Clone()
		copy(got.I, tc.ids)
		forced, why, err := o.choice(args, got)
		if err != nil {
			t.Fatal(err)
		}
		if (why == "") != (tc.why == "") || !strings.Contains(why, tc.why) {
			t.Errorf("ids %v: %q, want %q", tc.ids, why, tc.why)
		}
		if tc.why == "" && (!slices.Equal(forced[0].I, tc.ids) || !slices.Equal(forced[1].I, want[1].I)) {
			t.Errorf("ids %v: forced %v", tc.ids, forced)
		}
	}
}

// What is left out names ops and cases that there are.
func TestUnfair(t *testing.T) {
	for op, cases := range unfair {
		if _, err := ir.Lookup(op); err != nil {
			t.Error(err)
		}
		for name, why := range cases {
			if why == "" || !slices.ContainsFunc(Cases, func(c Case) bool { return c.Name == name }) {
				t.Errorf("%s: case %q, reason %q", op, name, why)
			}
		}
	}
}
