package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// TestChoicesWarps: no bit of a result depends on a choice. Each candidate runs on
// simulated warps.
func TestChoicesWarps(t *testing.T) {
	for _, m := range []int{3, 20, 70} {
		for _, op := range []string{"linear", "grouped_linear", "block_linear", "expert", "one step"} {
			t.Run(fmt.Sprintf("%s/%d", op, m), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, uint64(m)))}
				const n, k = 72, 640
				attrs := ir.A("act_block", 128)
				switch op {
				case "linear":
					c.batch.op(op, nil, exact, c.bf16(1, m, k), c.bf16(1, n, k))
				case "grouped_linear":
					c.batch.op(op, nil, exact, c.bf16(1, m, 2, k), c.bf16(1, 2, n, k))
				case "block_linear":
					c.batch.op(op, attrs, exact, c.bf16(1, m, k), c.w8(n, k))
				case "one step": // of few rows, in tiles of several widths
					c.batch.op("block_linear", ir.A("act_block", 0), exact, c.bf16(1, m, 1024), c.w8(n, 1024))
				case "expert":
					c.batch.op(op, append(ir.A("limit", 10.0), attrs...), exact, c.bf16(1, m, 256), c.w4(128, 256), c.w4(128, 256), c.w4(256, 128), c.f32(1, m, 1))
				}
				if len(candidatesOf(t, c.graph())) == 0 {
					t.Fatal("no choice")
				}
				for _, d := range candidatesOf(t, c.graph()) {
					sameBitsOf(t, c, d)
				}
			})
		}
	}
}

// candidatesOf are the choices of a graph on sm_90.
func candidatesOf(t *testing.T, g *ir.Graph) []codegen.Decision {
	t.Helper()
	var list []codegen.Decision
	u := codegen.NewUnit(mustTarget(t, "sm_90"))
	u.Ask = func(d codegen.Decision) string {
		list = append(list, d)
		return ""
	}
	if _, err := u.Lower(g); err != nil {
		t.Fatal(err)
	}
	return list
}

// sameBitsOf runs all candidates of a choice.
func sameBitsOf(t *testing.T, c *cases, d codegen.Decision) {
	t.Helper()
	if len(d.Candidates) < 2 || !slices.Contains(d.Candidates, d.Model) {
		t.Errorf("choice %+v", d)
	}
	var first map[string]*eval.Tensor
	specs := map[string]bool{}
	for _, candidate := range d.Candidates {
		u := codegen.NewUnit(mustTarget(t, "sm_90"))
		u.Ask = func(x codegen.Decision) string {
			if x.Key == d.Key {
				return candidate
			}
			return x.Model
		}
		p, err := u.Lower(c.graph())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(u.Module.Kernels)
		for _, l := range p.Launches {
			text += fmt.Sprint(" ", l.Grid, l.Args)
		}
		specs[text] = true
		m := buildWarps(t, u)
		if m == nil { // recorded, to run elsewhere
			continue
		}
		out, _ := execute(t, m, p, c.in, nil)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = out
			continue
		}
		for name, want := range first {
			if diff := exact.compare(want, out[name]); diff != "" {
				t.Errorf("%s, %d rows: %s and %s: %s", d.Key, d.Rows, d.Candidates[0], candidate, diff)
			}
		}
	}
	if len(specs) != len(d.Candidates) {
		t.Errorf("%s: %d candidates are %d kinds of launches", d.Key, len(d.Candidates), len(specs))
	}
}
