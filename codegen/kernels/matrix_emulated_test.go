package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/emu"
)

// Forms for matrix units, executed by the emulator and compared with the evaluator.

// matrixFormCases has the cases of ops with such forms, and the forms that take them all.
var matrixFormCases = []struct {
	op, form string
	fill     func(c *cases)
	set      []map[string]int // settings of what decides between ways to run the op
}{
	{"sparse_attention", "sparse_attention_mfma", matrixAttentionCases, []map[string]int{
		{passes.NoSplitTokens: 0}, {passes.NoSplitTokens: 1 << 30}, {passes.NoSplitTokens: 0, passes.AttentionGroups: 1},
	}},
	{"gate", "gate_mfma", matrixGateCases, asTheyAre},
	{"hash_gate", "hash_gate_mfma", matrixGateCases, asTheyAre},
	{"indexer_scores", "indexer_scores_mfma", matrixScoresCases, asTheyAre},
	{"hc_pre", "hc_pre_mfma", matrixHCCases, asTheyAre},
	{"hc_fused", "hc_fused_mfma", matrixHCCases, asTheyAre},
	{"hc_fused_quant", "hc_fused_quant_mfma", matrixHCCases, asTheyAre},
}

// asTheyAre are thresholds that nobody set.
var asTheyAre = []map[string]int{nil}

// TestMatrixFormsEmulated: each form is within the limits of the op table, or of its
// liberty, and thresholds do not change a bit.
func TestMatrixFormsEmulated(t *testing.T) {
	for _, chip := range emu.Chips {
		for _, m := range matrixFormCases {
			t.Run(chip+"/"+m.op, func(t *testing.T) {
				def, err := ir.Lookup(m.op)
				if err != nil {
					t.Fatal(err)
				}
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def}
				m.fill(c)
				c.takeLiberty(m.form)
				c.runEmulated(chip, m.form, m.set)
			})
		}
	}
}

// takeLiberty has the cases held to the limits of the liberty that a form takes.
func (c *cases) takeLiberty(form string) {
	c.t.Helper()
	for _, f := range kernels.For(c.def.Name) {
		if f.Name == form {
			c.liberty(f, 0)
		}
	}
}

// liberty has the results from one on held to the limits of a form's liberty, if it
// takes one.
func (c *cases) liberty(f *kernels.Form, from int) {
	c.t.Helper()
	if y := c.def.Liberty(f.Liberty); y != nil {
		for i := from; i < len(c.limit); i++ {
			c.limit[i] = fromTable(c.t, y.LimitOf((i-from)%len(c.def.Results)), c.value[i].Op)
		}
	}
}

// runEmulated compares a chip's code with the evaluator, and that for all thresholds,
// which change no bit.
func (c *cases) runEmulated(chip, form string, thresholds []map[string]int) {
	c.t.Helper()
	g := c.graph()
	var want map[string]*eval.Tensor
	if !recordOnly() {
		want, _ = c.want(g)
	}
	var first map[string]*eval.Tensor
	for _, set := range thresholds {
		u := codegen.NewUnit(mustTarget(c.t, chip))
		s := &passes.Step{Graph: g, Set: set}
		if err := u.SelectKernels(s); err != nil {
			c.t.Fatal(err)
		}
		if err := u.PlanMemory(s); err != nil {
			c.t.Fatal(err)
		}
		for _, k := range u.Module.Kernels {
			if k.Form != form {
				c.t.Errorf("kernel of form %s", k.Form)
			}
		}
		d := buildHost(c.t, u)
		if recordOnly() {
			continue
		}
		got, _ := execute(c.t, d, u.Module.Plans[0], c.in, c.states)
		d.Close()
		if first == nil {
			first = got
		}
		want := c.wantRest(want, got)
		for i, what := range c.what {
			y := fmt.Sprintf("y%d", i)
			if d := c.limit[i].compare(want[y], got[y]); d != "" {
				c.t.Errorf("%v: %s: %s", set, what, d)
			}
			if d := exact.compare(first[y], got[y]); d != "" {
				c.t.Errorf("%v and %v: %s: %s", thresholds[0], set, what, d)
			}
		}
	}
}

// TestLiberties: a form takes liberties that its op has.
func TestLiberties(t *testing.T) {
	taken := map[string]bool{}
	for _, op := range kernels.Ops() {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range kernels.For(op) {
			if f.Liberty == "" {
				continue
			}
			if taken[op+" "+f.Liberty] = true; def.Liberty(f.Liberty) == nil {
				t.Errorf("form %s takes liberty %s, which %s does not have", f.Name, f.Liberty, op)
			}
		}
	}
	for _, d := range ir.Ops() {
		for _, y := range d.Liberties {
			if !taken[d.Name+" "+y.Name] {
				t.Errorf("no form of %s takes liberty %s", d.Name, y.Name)
			}
		}
	}
}

func matrixScoresCases(c *cases) {
	for _, s := range []struct {
		t, h, d int
		entries []int
	}{
		{2, 64, 128, []int{1, 15, 17, 64, 255, 257}}, {3, 4, 128, []int{33, 300}}, {1, 17, 64, []int{20}}, {1, 16, 32, []int{16}},
	} {
		q, w, keys := c.bf16(1, s.t, s.h, s.d), c.bf16(1, s.t, s.h), c.bf16(1, 50, s.d)
		for _, n := range s.entries {
			rows := c.rows(50, s.t, n)
			c.add(nil, q, w, keys, rows)
			c.add(nil, q, w, keys, without(rows))
			c.add(nil, q, w, keys, none(rows))
			c.addPacked(nil, indexFormat(s.d), 6*0x1p-126, []int{2}, q, w, keys, rows)
			c.addPacked(nil, indexFormat(s.d), 6*0x1p-126, []int{2}, q, w, c.spoiled(keys, 50), without(rows))
		}
		rows := c.rows(50, s.t, 40)
		c.add(nil, c.spoiled(q, s.t), w, keys, rows)
		c.add(nil, q, c.spoiled(w, s.t), keys, rows)
		c.add(nil, q, w, c.spoiled(keys, 50), rows)
	}
	// Equal keys have equal scores, wherever they stand.
	keys := c.bf16(1, 50, 128)
	for i := range keys.F {
		keys.F[i] = keys.F[i%128]
	}
	c.add(nil, c.bf16(1, 2, 64, 128), c.bf16(1, 2, 64), keys, without(c.rows(50, 2, 277)))
}

// matrixGateCases are those of both gates.
func matrixGateCases(c *cases) {
	attrs := ir.A("k", 3, "scale", 1.5)
	for _, s := range []struct{ t, d, e int }{{1, 256, 8}, {15, 256, 33}, {17, 128, 8}} {
		x, w := c.bf16(1, s.t, s.d), c.bf16(1/math.Sqrt(float64(s.d)), s.e, s.d)
		same := w.Clone() // equal scores: the lower id is chosen
		for i := range same.F {
			same.F[i] = same.F[i%s.d]
		}
		for _, w := range []*eval.Tensor{w, same} {
			for _, x := range []*eval.Tensor{x, c.spoiled(x, s.t)} {
				if c.def.Name == "gate" {
					c.add(attrs, x, w, c.f32(0, s.e))
					continue
				}
				table := blank(c.t, ir.T(ir.I64, ir.Int(5), ir.Int(3)))
				for i := range table.I {
					table.I[i] = int64(c.r.IntN(s.e))
				}
				c.add(attrs, x, w, table, c.rows(5, s.t))
			}
		}
	}
}

// matrixHCCases are those of hc_pre and of the ops that it is fused in.
func matrixHCCases(c *cases) {
	for _, s := range []struct {
		streams, d int
		tokens     []int
	}{
		{4, 256, []int{1, 15, 17}},
		{1, 128, []int{3}}, {2, 128, []int{3}}, {3, 256, []int{3}}, {4, 640, []int{2}},
	} {
		c.hcTokens(s.streams, s.d, s.tokens...)
	}
}

// hcTokens has cases of so many tokens each, without and with numbers that spoil rows.
func (c *cases) hcTokens(streams, d int, tokens ...int) {
	n, m := streams*d, (2+streams)*streams
	shared := []*eval.Tensor{c.f32(1/math.Sqrt(float64(n)), m, n), c.f32(1, 3), c.f32(1, m)}
	fused, attrs := c.def.Name != "hc_pre", hcAttrs
	if fused {
		shared, attrs = append(shared, c.bf16(1, d)), hcFusedAttrs
	}
	if c.def.Name == "hc_fused_quant" {
		attrs = append(ir.A("act_block", 128), attrs...)
	}
	for _, t := range tokens {
		for _, spoil := range []bool{false, true} {
			h := c.bf16(1, t, streams, d)
			if spoil {
				h = c.spoiled(h, t)
			}
			args := []*eval.Tensor{h}
			if fused {
				args = []*eval.Tensor{c.bf16(1, t, d), h, c.f32(1, t, streams), c.f32(1, t, streams, streams)}
			}
			c.add(attrs, append(args, shared...)...)
		}
	}
}

func matrixAttentionCases(c *cases) {
	for _, s := range []struct {
		t, h, d int
		columns []int
	}{
		{1, 4, 128, []int{1, 15, 16, 17, 33, 63, 64, 65, 129, 300}},
		{3, 17, 128, []int{100}},
		{2, 1, 256, []int{70}},
		{2, 16, 512, []int{64, 131}},
		{1, 64, 256, []int{140}},
	} {
		attrs := ir.A("scale", math.Pow(float64(s.d), -0.5))
		q, sink := c.bf16(1, s.t, s.h, s.d), c.f32(1, s.h)
		kv, own := c.bf16(1, 90, s.d), c.bf16(1, 5, s.d)
		for _, n := range s.columns {
			rows := c.rows(90, s.t, n)
			c.add(attrs, q, sink, kv, rows)
			few := c.rows(5, s.t, 1+c.r.IntN(9))
			c.add(attrs, q, sink, own, few, kv, rows, own, none(few))
			c.add(attrs, q, sink, kv, without(rows), own, without(few))
			c.add(attrs, q, sink, kv, none(rows))
			c.add(attrs, q, sink, kv, evenRows(rows))
			format := kvFormat(s.d)
			c.addPacked(attrs, format, 1e-4, []int{2, 4, 6}, q, sink, own, few, kv, rows, own, none(few))
			c.addPacked(attrs, format, 1e-4, []int{2, 4}, q, sink, c.spoiled(kv, 90), without(rows), own, without(few))
		}
	}
	attrs := ir.A("scale", math.Pow(128, -0.5))
	q, sink, kv, rows := c.bf16(1, 4, 4, 128), c.f32(1, 4), c.bf16(1, 90, 128), c.rows(90, 4, 150)
	c.add(attrs, c.spoiled(q, 4), sink, kv, rows)
	c.add(attrs, q, sink, c.spoiled(kv, 90), rows)
	c.add(attrs, q, sink, c.spoiled(kv, 90), without(none(rows)))
	infinite := kv.Clone()
	for i := range infinite.F {
		infinite.F[i] = float32(math.Inf(-1))
	}
	positive := q.Clone()
	for i, x := range positive.F {
		positive.F[i] = float32(math.Abs(float64(x)))
	}
	c.add(attrs, positive, sink, infinite, rows) // scores that are all -inf
	for _, x := range bad {
		odd := sink.Clone()
		odd.F[0] = x
		c.add(attrs, q, odd, kv, rows)
		c.add(attrs, q, odd, kv, none(rows))
	}
	// All the weight is on one row, or all rows have the same.
	c.add(ir.A("scale", 100.0), q, sink, kv, rows)
	c.add(ir.A("scale", 1.0), c.bf16(0, 4, 4, 128), sink, kv, rows)
}

// TestMatrixHCFusedIsTheThree: the bits of hc_fused on matrix units are those of
// hc_post, hc_pre and rms_norm, and those of a row do not depend on the rows beside it.
func TestMatrixHCFusedIsTheThree(t *testing.T) {
	const tokens = 17
	for _, chip := range emu.Chips {
		c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(5, 3))}
		shared := []*eval.Tensor{c.f32(1.0/32, 24, 1024), c.f32(1, 3), c.f32(1, 24), c.bf16(1, 256)}
		own := []*eval.Tensor{c.bf16(1, tokens, 256), c.bf16(1, tokens, 4, 256), c.f32(1, tokens, 4), c.f32(1, tokens, 4, 4)}
		var one []*eval.Tensor
		for _, x := range own {
			one = append(one, row(t, x, tokens-1))
		}
		fused, apart, alone := c.hcBorder(false, append(own, shared...)), c.hcBorder(true, append(own, shared...)), c.hcBorder(false, append(one, shared...))
		out := c.outputs(chip)
		y := func(i int) *eval.Tensor { return out[fmt.Sprintf("y%d", i)] }
		for i := range 4 {
			got := y(fused + i)
			if d := exact.compare(y(apart+i), got); d != "" {
				t.Errorf("%s: %s: fused and apart: %s", chip, c.what[fused+i], d)
			}
			if d := exact.compare(y(alone+i), row(t, got, tokens-1)); d != "" {
				t.Errorf("%s: %s: a row alone: %s", chip, c.what[fused+i], d)
			}
		}
	}
}

// evenRows is a copy of row indices with a gap after each: the same rows in other
// columns.
func evenRows(x *eval.Tensor) *eval.Tensor {
	y := x.Clone()
	for i := range y.I {
		if i%2 == 1 {
			y.I[i] = -1
		}
	}
	return y
}

// TestAttentionColumns: the bits of a result follow from the rows that are there, not
// from the sets and columns that they are in.
func TestAttentionColumns(t *testing.T) {
	def, err := ir.Lookup("sparse_attention")
	if err != nil {
		t.Fatal(err)
	}
	for _, chip := range emu.Chips {
		c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(3, 5)), def: def}
		attrs := ir.A("scale", math.Pow(128, -0.5))
		q, sink, kv := c.bf16(1, 2, 4, 128), c.f32(1, 4), c.bf16(1, 90, 128)
		rows := c.rows(90, 2, 150)
		c.add(attrs, q, sink, kv, rows)
		// Rows from column 70 on in another set, and with a copy of the pool as theirs.
		before, after := rows.Clone(), rows.Clone()
		for i := range rows.I {
			if i%150 < 70 {
				after.I[i] = -1
			} else {
				before.I[i] = -1
			}
		}
		c.add(attrs, q, sink, kv, before, kv.Clone(), after)
		out := c.outputs(chip)
		if d := exact.compare(out["y0"], out["y1"]); d != "" {
			t.Errorf("%s: %s", chip, strings.TrimSpace(d))
		}
	}
}
