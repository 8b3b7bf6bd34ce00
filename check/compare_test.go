package check

import (
	"math"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

func TestCompare(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	bf := ir.Limit{Kind: ir.BF16ULP, Bound: 0.995}
	for _, tc := range []struct {
		name      string
		dt        ir.DType
		want, got []float32
		limit     ir.Limit
		different int
		within    bool
	}{
		{"equal, NaN and infinities too", ir.F32, []float32{1, nan, inf, -inf}, []float32{1, nan, inf, -inf}, ir.Limit{}, 0, true},
		{"zeros of both signs", ir.F32, []float32{0}, []float32{float32(math.Copysign(0, -1))}, ir.Limit{}, 1, false},
		{"NaN for a number", ir.F32, []float32{1, 2}, []float32{1, nan}, ir.Limit{Kind: ir.AbsF32, Bound: 9}, 0, false},
		{"a number for NaN", ir.BF16, []float32{1, nan}, []float32{1, 2}, bf, 1, false},
		{"infinity for a number", ir.BF16, []float32{1, 2}, []float32{1, inf}, bf, 1, false},
		{"within abs", ir.F32, []float32{1}, []float32{1.5}, ir.Limit{Kind: ir.AbsF32, Bound: 0.5}, 0, true},
		{"beyond abs", ir.F32, []float32{1}, []float32{1.5}, ir.Limit{Kind: ir.AbsF32, Bound: 0.4}, 0, false},
		{"one bf16 step", ir.BF16, []float32{1}, []float32{1 + 0x1p-7}, bf, 1, true},
		{"one bf16 step across a power of two", ir.BF16, []float32{1}, []float32{1 - 0x1p-8}, bf, 1, true},
		{"two bf16 steps", ir.BF16, []float32{1}, []float32{1 + 0x1p-6}, bf, 1, false},
		{"f32 in bf16", ir.F32, []float32{1}, []float32{1 + 0x1p-10}, bf, 0, true},
		{"f32, two bf16 steps", ir.F32, []float32{1}, []float32{1 + 0x1p-6}, bf, 1, false},
		{"in the noise of its row", ir.BF16, []float32{64, 0x1p-20}, []float32{64, 0x1p-14}, bf, 1, true},
		{"in the noise of another row", ir.BF16, []float32{64, 0, 0x1p-20, 0}, []float32{64, 0, 0x1p-14, 0}, bf, 1, false},
		{"within abs of bf16", ir.BF16, []float32{1e-6}, []float32{2e-6}, ir.Limit{Kind: ir.BF16ULP, Bound: 1, Abs: 2e-6}, 0, true},
		{"one f32 step", ir.F32, []float32{1}, []float32{1 + 0x1p-23}, ir.Limit{Kind: ir.LastPlace, Bound: 0.9}, 1, true},
		{"two f32 steps", ir.F32, []float32{1}, []float32{1 + 0x1p-22}, ir.Limit{Kind: ir.LastPlace, Bound: 0.9}, 1, false},
		{"angle", ir.F32, []float32{1, 0}, []float32{1, 0.1}, ir.Limit{Kind: ir.OneMinCos, Bound: 0.01}, 0, true},
		{"another length", ir.F32, []float32{1, 1}, []float32{2, 2}, ir.Limit{Kind: ir.OneMinCos, Bound: 0.01}, 0, false},
		{"a length of that angle", ir.F32, []float32{1, 1}, []float32{1.1, 1.1}, ir.Limit{Kind: ir.OneMinCos, Bound: 0.01}, 0, true},
		{"another angle", ir.F32, []float32{1, 0}, []float32{1, 0.1}, ir.Limit{Kind: ir.OneMinCos, Bound: 0.001}, 0, false},
	} {
		shape := []int{len(tc.want)}
		if len(tc.want) == 4 {
			shape = []int{2, 2}
		}
		w, g := &eval.Tensor{DType: tc.dt, Shape: shape, F: tc.want}, &eval.Tensor{DType: tc.dt, Shape: shape, F: tc.got}
		d := compare(w, g, tc.limit, 0, false)
		if d.different != tc.different || (d.beyond == "") != tc.within {
			t.Errorf("%s: %d different, beyond: %q", tc.name, d.different, d.beyond)
		}
	}
	one := &eval.Tensor{DType: ir.I32, Shape: []int{1}, I: []int64{1}}
	two := &eval.Tensor{DType: ir.I32, Shape: []int{1}, I: []int64{2}}
	if compare(one, two, ir.Limit{Kind: ir.AbsF32, Bound: 9}, 0, false).beyond == "" || compare(one, nil, ir.Limit{}, 0, false).beyond == "" {
		t.Error("other integers, or none, are not beyond")
	}
}

// A limit of codes is one code of an element's block, however near zero.
func TestCompareCodes(t *testing.T) {
	const step = 0x1p-9 // between the smallest codes, with scale 1
	l := ir.Limit{Kind: ir.OneCode, Bound: 0.99}
	nan := float32(math.NaN())
	of := func(x ...float32) *eval.Tensor { return &eval.Tensor{DType: ir.BF16, Shape: []int{1, len(x)}, F: x} }
	want := of(416, -step, 2*step, 16*416, nan, 0)
	for _, tc := range []struct {
		got    *eval.Tensor
		beyond string
	}{
		{of(416, -step, 2*step, 16*416, nan, 0), ""},
		{of(416, -2*step, 2*step, 16*416, nan, 0), ""},
		{of(384, 0, 3*step, 16*448, nan, -16*step), ""},
		{of(416, step, 2*step, 16*416, nan, 0), "element 1 of bf16[1,6] is 0.001953125, want -0.001953125"},
		{of(416, -step, 0, 16*416, nan, 0), "element 2 of bf16[1,6] is 0, want 0.00390625"},
		{of(416, -step, 2*step, 16*416, 1, 0), "element 4 of bf16[1,6] is 1, want NaN"},
		{of(416, -step, 2*step, 16*416, nan, 17*step), "element 5 of bf16[1,6] is 0.033203125, want 0"},
	} {
		if d := compare(want, tc.got, l, 3, true); d.beyond != tc.beyond {
			t.Errorf("beyond: %q, want %q", d.beyond, tc.beyond)
		}
	}
	if shareBreach(l, 11, 1000) == "" {
		t.Error("11 of 1000 are not too many")
	}
}

func TestShare(t *testing.T) {
	l := ir.Limit{Kind: ir.BF16ULP, Bound: 0.995}
	for _, tc := range []struct {
		different, count int
		ok               bool
	}{{1, 128, true}, {5, 1000, true}, {6, 1000, false}, {6, 10, false}, {50, 10000, true}, {51, 10000, false}} {
		if text := shareBreach(l, tc.different, tc.count); (text == "") != tc.ok {
			t.Errorf("%d of %d: %q", tc.different, tc.count, text)
		}
	}
}

// A rounding inside of an op explains a few elements that are a step of their row's
// largest number off, and no more.
func TestFlips(t *testing.T) {
	bf := ir.Limit{Kind: ir.BF16ULP, Bound: 0.995}
	w := &eval.Tensor{DType: ir.BF16, Shape: []int{3}, F: []float32{4, 1, 1}}
	g := &eval.Tensor{DType: ir.BF16, Shape: []int{3}, F: []float32{4, 1 + 0x1p-5, 1 + 0x1p-4}}
	if d := compare(w, g, bf, 0, true); d.flips != 1 || d.beyond != "element 2 of bf16[3] is 1.0625, want 1" {
		t.Errorf("%d flips, beyond: %q", d.flips, d.beyond)
	}
	if d := compare(w, g, bf, 0, false); d.flips != 0 || d.beyond == "" {
		t.Errorf("%d flips, beyond: %q", d.flips, d.beyond)
	}
	for _, tc := range []struct {
		name   string
		t      tally
		inside bool
		ok     bool
	}{
		{"none", tally{count: 100, rows: 10}, true, true},
		{"a row that differs", tally{different: 90, count: 1000, flips: 30, differentRows: 1, rows: 2}, true, true},
		{"the same, of an op without", tally{different: 90, count: 1000, differentRows: 1, rows: 2}, false, false},
		{"two rows of few", tally{different: 90, count: 1000, flips: 30, differentRows: 2, rows: 10}, true, false},
		{"two rows of many", tally{different: 900, count: 100000, flips: 300, differentRows: 2, rows: 200}, true, true},
		{"single elements of long rows", tally{different: 20, count: 100000, flips: 10, differentRows: 20, rows: 20}, true, true},
		{"too many of them", tally{different: 20, count: 100000, flips: 11, differentRows: 20, rows: 20}, true, false},
	} {
		if text := tc.t.breach(bf, tc.inside); (text == "") != tc.ok {
			t.Errorf("%s: %q", tc.name, text)
		}
	}
}

func TestRoundsInside(t *testing.T) {
	s := subject(t, "prefill", prefill)
	list, err := s.versions()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	var ones oneOps
	for _, op := range list[len(list)-1].graph.Ops {
		if skipped(op) {
			continue
		}
		o, err := ones.of(op)
		if err != nil {
			t.Fatal(err)
		}
		got[o.def.Name] = o.roundsInside
	}
	for name, want := range map[string]bool{
		"expert": true, "moe_experts_add": true, "indexer_scores": true,
		"linear": false, "block_linear": false, "rms_norm": false, "sparse_attention": false, "hc_post": false,
	} {
		if have, ok := got[name]; !ok || have != want {
			t.Errorf("%s rounds inside: %t (in the model: %t), want %t", name, have, ok, want)
		}
	}
}
