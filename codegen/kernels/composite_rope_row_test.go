package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// rowTails are ways to end a row op of width d.
func rowTails(d int) []ir.Attrs {
	tails := []ir.Attrs{{}, ir.A("to", ir.F8E4M3, "block", 8, "floor", 1e-4, "dims", d/16*8),
		ir.A("to", ir.F8E4M3, "block", 8, "floor", 1e-4, "dims", d/16*8, "packed", true)}
	if d&(d-1) == 0 {
		tails = append(tails, ir.A("hadamard", true), ir.A("hadamard", true, "to", ir.F4E2M1, "block", 8, "floor", 6*0x1p-126, "dims", d),
			ir.A("hadamard", true, "to", ir.F4E2M1, "block", 8, "floor", 6*0x1p-126, "dims", d, "packed", true))
	}
	return tails
}

func ropeRowCases(c *cases) {
	norm := strings.Contains(c.def.Name, "norm")
	for _, s := range []struct{ d, pairs int }{{16, 1}, {17, 8}, {128, 32}, {520, 32}, {512, 32}} {
		for _, t := range []int{1, 3, 5} {
			for i, tail := range rowTails(s.d) {
				attrs := append(ir.A("inverse", i%2 == 1), tail...)
				if norm {
					attrs = append(ir.A("eps", 1e-6), attrs...)
				}
				for _, x := range []*eval.Tensor{c.bf16(1, t, 3, s.d), c.spoiled(c.bf16(1, t, 2, s.d), t)} {
					args := []*eval.Tensor{x, c.f32(1, t, s.pairs), c.f32(1, t, s.pairs)}
					if c.def.Name == "rms_norm_rope" {
						args = append(args, c.bf16(1, s.d))
					}
					c.add(attrs, args...)
				}
			}
		}
	}
}

// compressRowCases are entries of each way to compress, and of each tail.
func compressRowCases(c *cases) {
	for _, overlap := range []bool{false, true} {
		for _, s := range []struct{ d, members int }{{16, 2}, {17, 8}, {128, 8}, {128, 40}, {520, 4}} {
			w := s.d
			if overlap {
				w *= 2
			}
			kPool, gPool, k, g := c.f32(2, 40, w), c.f32(2, 40, w), c.f32(2, 9, w), c.f32(2, 9, w)
			for i, tail := range rowTails(s.d) {
				const e = 3
				attrs := append(ir.A("overlap", overlap, "eps", 1e-6), tail...)
				cos, sin, weight := c.f32(1, e, 1+i), c.f32(1, e, 1+i), c.bf16(1, s.d)
				old, own := c.rows(40, e, s.members), c.rows(9, e, s.members)
				c.add(attrs, kPool, cos, sin, weight, gPool, k, g, without(old), without(own))
				c.add(attrs, c.spoiled(kPool, 40), cos, sin, weight, gPool, k, g, old, none(own))
			}
		}
	}
}

// TestRowOpsAreTheirSteps: on the host, a row op has the bits of the forms of its
// steps.
func TestRowOpsAreTheirSteps(t *testing.T) {
	for _, name := range []string{"rope_row", "rms_norm_rope", "head_rms_norm_rope", "compress_row"} {
		def, err := ir.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 7)), def: def}
		composites[name](c)
		g := c.graph()
		fused, steps := c.without(g), c.without(g, name)
		for i, what := range c.what {
			y := fmt.Sprintf("y%d", i)
			if diff := exact.compare(steps[y], fused[y]); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
	}
}

// without runs the host's code for g, compiled without some forms.
func (c *cases) without(g *ir.Graph, forms ...string) map[string]*eval.Tensor {
	c.t.Helper()
	u := codegen.NewUnit(mustTarget(c.t, bothHosts[0]))
	for _, f := range forms {
		u.Disable[f] = true
	}
	p, err := u.Lower(g)
	if err != nil {
		c.t.Fatal(err)
	}
	d := buildHost(c.t, u)
	defer d.Close()
	out, _ := execute(c.t, d, p, c.in, nil)
	return out
}
