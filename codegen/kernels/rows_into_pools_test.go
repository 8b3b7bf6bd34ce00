package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// TestRowsIntoPools: rows that are made and written to a pool in one launch have the bits
// that they have apart, and those without a place are written nowhere.
func TestRowsIntoPools(t *testing.T) {
	for _, name := range []string{bothHosts[0], "gfx942", "sm_90"} {
		t.Run(name, func(t *testing.T) {
			const rows, d, pairs = 3, 128, 32
			pools := map[bool]map[string]*eval.Tensor{}
			for _, apart := range []bool{false, true} {
				r := rand.New(rand.NewPCG(2, 9))
				c := newBatch(t)
				x, cos, sin, w := c.input(gauss(t, r, ir.BF16, 1, rows, d)), c.input(gauss(t, r, ir.F32, 1, rows, pairs)), c.input(gauss(t, r, ir.F32, 1, rows, pairs)), c.input(gauss(t, r, ir.BF16, 1, d))
				at := c.input(i32s(t, 4, -1, 0))
				for i, tail := range rowTails(d) {
					attrs, args, op := tail, []*ir.Value{x, cos, sin}, "rope_row"
					if i%2 == 0 {
						attrs, args, op = append(ir.A("eps", 1e-6), tail...), append(args, w), "rms_norm_rope"
					}
					y := c.b.Op1(op, attrs, args...)
					pool := fmt.Sprintf("p%d", i)
					c.states[pool] = random(t, r, patterns, y.Type.DType, 6, intExtent(blank(t, y.Type), 1))
					s := c.b.State(pool, c.states[pool].Type())
					c.b.Update(s, c.b.Op1("scatter_rows", nil, s, at, y))
					if apart {
						c.output(pool, exact, y)
					}
				}
				if !apart {
					c.output("x", exact, c.b.Op1("neg", nil, x))
				}
				g := c.graph()
				u := codegen.NewUnit(mustTarget(t, name))
				p, err := u.Lower(g)
				if err != nil {
					t.Fatal(err)
				}
				want := 1 + len(rowTails(d))
				if apart {
					want = 2 * len(rowTails(d))
				}
				if len(p.Launches) != want {
					t.Errorf("apart %v: %d launches, want %d", apart, len(p.Launches), want)
				}
				dev := buildHost(t, u)
				if recordOnly() {
					continue
				}
				_, pools[apart] = execute(t, dev, p, c.in, c.states)
				dev.Close()
			}
			for pool, want := range pools[true] {
				if d := exact.compare(want, pools[false][pool]); d != "" {
					t.Errorf("%s: %s", pool, d)
				}
			}
		})
	}
}
