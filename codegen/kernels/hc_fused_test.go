package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// hcBorder adds hc_fused, or with apart the three ops, to a graph, and returns the
// first of its four outputs: residual, hidden, post, comb.
func (c *cases) hcBorder(apart bool, args []*eval.Tensor) int {
	var in []*ir.Value
	for _, a := range args {
		in = append(in, c.input(a))
	}
	var out []*ir.Value
	if apart {
		h := c.b.Op1("hc_post", nil, in[:4]...)
		pre := c.b.Op("hc_pre", ir.A("eps", 1e-3, "norm_eps", 1e-2), h, in[4], in[5], in[6])
		out = []*ir.Value{h, c.b.Op1("rms_norm", ir.A("eps", 0.1), pre[0], in[7]), pre[1], pre[2]}
	} else {
		out = c.b.Op("hc_fused", hcFusedAttrs, in...)
	}
	first := len(c.what)
	for i, v := range out {
		c.output(fmt.Sprintf("result %d of %s", i, args[1].Type()), exact, v)
	}
	return first
}

// TestHCFusedIsTheThree: the bits of hc_fused are those of the launches that it
// replaces, NaN and infinities included, and those of a row do not depend on the
// rows beside it.
func TestHCFusedIsTheThree(t *testing.T) {
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(5, 3))}
	const tokens = 5
	type border struct {
		fused, apart int // first outputs
		alone        [tokens]int
	}
	var borders []border
	for _, sh := range append(hcShapes(), struct{ s, d int }{4, 4096}) {
		if sh.s > kernels.MaxStreams {
			continue // decomposed
		}
		n, m := sh.s*sh.d, (2+sh.s)*sh.s
		shared := []*eval.Tensor{c.f32(1/math.Sqrt(float64(n)), m, n), c.f32(1, 3), c.f32(1, m), c.bf16(1, sh.d)}
		for _, bad := range []bool{false, true} {
			own := []*eval.Tensor{c.bf16(1, tokens, sh.d), c.bf16(1, tokens, sh.s, sh.d), c.f32(1, tokens, sh.s), c.f32(1, tokens, sh.s, sh.s)}
			if bad {
				own[0], own[3] = c.spoiled(own[0], tokens), c.spoiled(own[3], tokens)
			}
			whole := slices.Concat(own, shared)
			b := border{fused: c.hcBorder(false, whole), apart: c.hcBorder(true, whole)}
			for i := range tokens {
				var one []*eval.Tensor
				for _, x := range own {
					one = append(one, row(t, x, i))
				}
				b.alone[i] = c.hcBorder(false, append(one, shared...))
			}
			borders = append(borders, b)
		}
	}
	for _, host := range bothHosts {
		out := c.outputs(host)
		y := func(i int) *eval.Tensor { return out[fmt.Sprintf("y%d", i)] }
		for _, b := range borders {
			for i := range 4 {
				got := y(b.fused + i)
				if d := exact.compare(y(b.apart+i), got); d != "" {
					t.Errorf("%s: %s: fused and apart: %s", host, c.what[b.fused+i], d)
				}
				for j, at := range b.alone {
					if d := exact.compare(y(at+i), row(t, got, j)); d != "" {
						t.Errorf("%s: %s: row %d alone: %s", host, c.what[b.fused+i], j, d)
					}
				}
			}
		}
	}
}

// row is row i of a tensor of floats, as one row.
func row(t *testing.T, x *eval.Tensor, i int) *eval.Tensor {
	t.Helper()
	shape := append([]int{1}, x.Shape[1:]...)
	n := len(x.F) / x.Shape[0]
	return floatsOf(t, x.DType, x.F[i*n:(i+1)*n], shape...)
}

func hcFusedQuantCases(c *cases) {
	for _, sh := range []struct{ s, d, block int }{{4, 256, 128}, {1, 128, 128}, {2, 40, 8}, {4, 72, 72}} {
		n, m := sh.s*sh.d, (2+sh.s)*sh.s
		attrs := append(ir.A("act_block", sh.block), hcFusedAttrs...)
		shared := []*eval.Tensor{c.f32(1/math.Sqrt(float64(n)), m, n), c.f32(1, 3), c.f32(1, m), c.bf16(1, sh.d)}
		for _, t := range []int{1, 3, 5} {
			own := []*eval.Tensor{c.bf16(1, t, sh.d), c.bf16(1, t, sh.s, sh.d), c.f32(1, t, sh.s), c.f32(1, t, sh.s, sh.s)}
			c.add(attrs, slices.Concat(own, shared)...)
			own[0] = c.spoiled(own[0], t)
			c.add(attrs, slices.Concat(own, shared)...)
		}
	}
}

// TestHCFusedQuantIsItsSteps: the bits of hc_fused_quant are those of the ops that
// it stands for.
func TestHCFusedQuantIsItsSteps(t *testing.T) {
	def, err := ir.Lookup("hc_fused_quant")
	if err != nil {
		t.Fatal(err)
	}
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 3)), def: def}
	hcFusedQuantCases(c)
	g := c.graph()
	fused, steps := c.without(g), c.without(g, "hc_fused_quant")
	for i, what := range c.what {
		y := fmt.Sprintf("y%d", i)
		if diff := exact.compare(steps[y], fused[y]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
