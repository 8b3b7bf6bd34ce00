package kernels_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
)

// joiningOps are ops whose launches join others, with and without shared memory and
// reductions.
var joiningOps = []string{"rms_norm", "rms_norm_quant", "rms_norm_rope", "head_rms_norm_rope", "rope_row", "rope", "compress", "history_rows", "entry_rows", "fake_quant"}

// TestJoinedLaunches: launches that were joined give the bits that they give apart, and
// a pool is read before and after it is written as the graph says.
func TestJoinedLaunches(t *testing.T) {
	for _, chip := range []string{"gfx942", "sm_90"} {
		t.Run(chip, func(t *testing.T) {
			c := newBatch(t)
			r := rand.New(rand.NewPCG(3, 5))
			ops, products := joiningOps, chip == "sm_90"
			if products {
				ops = slices.Concat(ops, []string{"linear", "block_linear", "grouped_linear", "gate"})
			}
			for i, op := range ops {
				def, err := ir.Lookup(op)
				if err != nil {
					t.Fatal(err)
				}
				some := &cases{batch: c, r: r, def: def, every: 11 + i%3}
				composites[op](some)
			}
			c.states["pool"] = random(t, r, patterns, ir.BF16, 9, 24)
			pool := c.b.State("pool", c.states["pool"].Type())
			at := c.input(intsOf(t, ir.I32, []int64{3, -1, 8}, 3))
			c.output("before", exact, c.b.Op1("gather_rows", nil, pool, at))
			written := c.b.Op1("scatter_rows", nil, pool, at, c.b.Op1("neg", nil, c.input(random(t, r, patterns, ir.BF16, 3, 24))))
			c.b.Update(pool, written)
			c.output("after", exact, c.b.Op1("gather_rows", nil, written, at))
			g := c.graph()

			runs := map[bool]map[string]*eval.Tensor{}
			count := map[bool]int{}
			for _, join := range []bool{false, true} {
				u := codegen.NewUnit(mustTarget(t, chip))
				s := &passes.Step{Graph: g}
				if err := u.SelectKernels(s); err != nil {
					t.Fatal(err)
				}
				if join {
					if err := u.JoinLaunches(s); err != nil {
						t.Fatal(err)
					}
				}
				if err := u.PlanMemory(s); err != nil {
					t.Fatal(err)
				}
				for what, wanted := range map[string]bool{"compress": true, "matrix_product": products} {
					joined := slices.ContainsFunc(u.Module.Kernels, func(k plan.Kernel) bool { return k.Form == "joined" && strings.Contains(k.Spec, what) })
					if joined != (join && wanted) {
						t.Fatalf("launches of %s were joined: %v", what, joined)
					}
				}
				p := u.Module.Plans[0]
				count[join] = len(p.Launches)
				d := buildHost(t, u)
				if recordOnly() {
					continue
				}
				var after map[string]*eval.Tensor
				runs[join], after = execute(t, d, spread(t, p)[0], c.in, c.states)
				runs[join]["pool"] = after["pool"]
				d.Close()
			}
			if 3*count[true] > count[false] {
				t.Errorf("%d launches, %d apart", count[true], count[false])
			}
			for name, want := range runs[false] {
				if d := exact.compare(want, runs[true][name]); d != "" {
					t.Errorf("%s: %s", name, d)
				}
			}
		})
	}
}
