package eval

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// normQuantProp: the norm, then its values through f8e4m3 in blocks; the norm
// itself comes first if it is a result.
func normQuantProp(name string) func(t *rapid.T) {
	return func(t *rapid.T) {
		block := rapid.SampledFrom([]int{1, 32, 128}).Draw(t, "block")
		d := block * rapid.IntRange(1, 3).Draw(t, "blocks")
		x, w := drawNormal(t, ir.BF16, append(drawShape(t, 1, 2), d)...), drawNormal(t, ir.BF16, d)
		v, wv := floats(x), floats(w)
		var y, q []float64
		for row := 0; row < len(v); row += d {
			n := rmsNormRef(v[row:row+d], wv, 1e-6)
			y, q = append(y, n...), append(q, throughFormat(ir.F8E4M3, n, block, 1e-4)...)
		}
		want := [][]float64{y, q}
		if name == "rms_norm_quant" {
			want = want[1:]
		}
		got, err := apply(t, name, ir.A("act_block", block, "eps", 1e-6), x, w)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			wantShape(t, name, got[i], ir.BF16, x.Shape...)
			wantFloats(t, name, got[i], want[i])
		}
	}
}

// A product of activations that were rounded before has the bits of one that
// rounds them itself, at all magnitudes, NaN and infinities included.
func TestRoundedBeforeTheProduct(t *testing.T) {
	check(t, "act_block", func(t *rapid.T) {
		x := drawTensor(t, ir.BF16, rapid.IntRange(1, 3).Draw(t, "T"), 128)
		rounded := apply1(t, "fake_quant", ir.A("to", ir.F8E4M3, "block", 128, "floor", 1e-4, "dims", 128), x)
		n := x.Shape[0]
		w1, w3, w2 := drawExperts(t, 0)
		e1, e3, e2 := drawExperts(t, 2)
		weight, weights := drawNormal(t, ir.F32, n, 1), drawNormal(t, ir.F32, n, 1)
		ids, err := New(ir.T(ir.I32, ir.Int(n), ir.Int(1)))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			op    string
			attrs ir.Attrs
			rest  []*Tensor
		}{
			{"block_linear", nil, []*Tensor{w1}},
			{"split_linear", ir.A("sizes", []int{w1.Shape[0] - 1, 1}), []*Tensor{w1}},
			{"expert", ir.A("limit", 1.0), []*Tensor{w1, w3, w2, weight}},
			{"moe_experts", ir.A("limit", 1.0), []*Tensor{e1, e3, e2, ids, weights}},
		} {
			want, err := apply(t, c.op, c.attrs, append([]*Tensor{x}, c.rest...)...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := apply(t, c.op, append(slices.Clone(c.attrs), ir.A("act_block", 0)...), append([]*Tensor{rounded}, c.rest...)...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				wantFloats(t, c.op, got[i], floats(want[i]))
			}
		}
	})
}
