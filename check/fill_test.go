package check

import (
	"math"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Equal seeds give equal values, others give others, and a case is what it says.
func TestFill(t *testing.T) {
	typ := ir.T(ir.BF16, ir.Int(4), ir.Int(8))
	made := func(c, seed int) *eval.Tensor {
		x, err := Cases[c].fill(source(uint64(seed), "input", "x"), typ, span{})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for c := range Cases {
		a, b := made(c, 1), made(c, 1)
		if compare(a, b, ir.Limit{}, 0, false).beyond != "" {
			t.Errorf("case %s: equal seeds differ", Cases[c].Name)
		}
		finite := !slices.ContainsFunc(a.F, func(x float32) bool { return x != x || math.IsInf(float64(x), 0) })
		if finite == Cases[c].spoils {
			t.Errorf("case %s: all finite: %t", Cases[c].Name, finite)
		}
		if last := a.F[24:]; slices.ContainsFunc(last, func(x float32) bool { return x != x }) {
			t.Errorf("case %s spoils the last row", Cases[c].Name)
		}
	}
	if compare(made(0, 1), made(0, 2), ir.Limit{}, 0, false).beyond == "" {
		t.Error("two seeds give equal values")
	}
}

// Random block-scaled weights hold no NaN and have rows of length about 1.
func TestRandomWeights(t *testing.T) {
	s := NewRandom(3)
	for _, typ := range []ir.Type{
		ir.Scaled(ir.F8E4M3, 128, 128, ir.Int(256), ir.Int(256)), ir.Scaled(ir.F4E2M1, 1, 32, ir.Int(64), ir.Int(256)), ir.T(ir.BF16, ir.Int(64), ir.Int(256)),
	} {
		b := ir.NewBuilder("g")
		v := b.Weight("w", typ)
		if typ.Quant != nil {
			v = b.Op1("dequantize", nil, v)
		}
		b.Output("w", v)
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		p, err := eval.Compile(g, eval.NewConsts(s))
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Run(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum, w := 0.0, out["w"]
		for _, x := range w.F {
			sum += float64(x) * float64(x)
		}
		if length := math.Sqrt(sum / float64(w.Shape[0])); !(length > 0.4 && length < 2.5) {
			t.Errorf("%s: rows have length %g", typ, length)
		}
	}
}

// Indices stay in what they index; those of a scatter are distinct.
func TestSpans(t *testing.T) {
	gs, err := ir.Parse("t.kir", `graph @g
input %a : i32[6]
input %slots : i32[6]
input %t : i32[5]
input %x : f32[7,2]
state !p : f32[9,2]
%0 = gather_rows %x, %a : f32[6,2]
%1 = gather_rows %t, %a : i32[6]
%2 = gather_rows %x, %1 : f32[6,2]
%3 = add %0, %2 : f32[6,2]
%4 = scatter_rows !p, %slots, %3 : f32[9,2]
output y = %3
update !p = %4
`)
	if err != nil {
		t.Fatal(err)
	}
	g := gs[0]
	for seed := range 20 {
		v, err := Fill(g, &Cases[0], uint64(seed))
		if err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]int64{"a": 5, "slots": 9, "t": 7} {
			for _, i := range v.Inputs[name].I {
				if i < -1 || i >= end {
					t.Errorf("%s holds %d, want below %d", name, i, end)
				}
			}
		}
		p, err := eval.Compile(g, eval.NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(v.Inputs, v.States); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	v, err := Fill(g, &Cases[len(Cases)-1], 0)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Max(v.Inputs["slots"].I) != -1 {
		t.Errorf("case none: slots %v", v.Inputs["slots"].I)
	}
}
