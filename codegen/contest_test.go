package codegen

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// A decision's candidates are plans of the same copies with the same weights, and differ
// in that choice alone.
func TestContest(t *testing.T) {
	c := newCompiler(t)
	tg, err := target.Lookup("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	b := ir.NewBuilder("g")
	rows := b.Sym("B")
	x, w := b.Input("x", ir.T(ir.BF16, rows, ir.Int(512))), b.Weight("w", ir.T(ir.BF16, ir.Int(4096), ir.Int(512)))
	b.Output("y", b.Op1("linear", nil, b.Op1("linear", nil, x, w), b.Weight("v", ir.T(ir.BF16, ir.Int(8192), ir.Int(4096)))))
	b.Output("z", b.Op1("linear", nil, x, w))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses()}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	var buckets []passes.Bucket
	for _, n := range []int{64, 8, 64} {
		buckets = append(buckets, passes.Bucket{Entry: "g", Bind: map[string]int{"B": n}})
	}
	decisions, err := c.Decisions(t.Context(), tg, m, buckets)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range decisions {
		got = append(got, fmt.Sprintf("%s %d %s %d", d.Form, d.Rows, d.Key, d.Requests))
		if len(d.Candidates) < 2 || !slices.Contains(d.Candidates, d.Model) {
			t.Errorf("decision %+v", d)
		}
	}
	want := []string{
		"linear_mma 8 n4096 k512 bf16 8",
		"linear_mma 64 n4096 k512 bf16 64",
		"linear_mma 8 n8192 k4096 bf16 8",
		"linear_mma 64 n8192 k4096 bf16 64",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("decisions (-want +got):\n%s", d)
	}
	for _, d := range decisions[:1] {
		x, err := c.Contest(t.Context(), tg, d)
		if err != nil {
			t.Fatal(err)
		}
		mod := x.Code.Module
		if err := mod.Check(); err != nil {
			t.Error(err)
		}
		if x.Copies != mostCopies || len(mod.Plans) != len(d.Candidates) || len(mod.Weights) != x.Copies+2 || len(x.Code.Object) == 0 {
			t.Errorf("%d copies, %d plans, %d weights, %d bytes of code", x.Copies, len(mod.Plans), len(mod.Weights), len(x.Code.Object))
		}
		for i, p := range mod.Plans {
			if len(p.Launches) != x.Copies || len(p.Inputs) != 0 || len(p.Outputs) != 2 {
				t.Errorf("candidate %d: %d launches, %d inputs, %d outputs", i, len(p.Launches), len(p.Inputs), len(p.Outputs))
			}
			read := map[plan.Slice]bool{}
			for _, l := range p.Launches {
				if c := mod.Choices[l.Choices[0]]; c.Taken != d.Candidates[i] || c.By != plan.ByTuning {
					t.Errorf("candidate %d is %+v", i, c)
				}
				read[l.Args[1].Buf] = true
			}
			if len(read) != x.Copies {
				t.Errorf("candidate %d: %d copies read %d different weights", i, x.Copies, len(read))
			}
		}
		again, err := c.Contest(t.Context(), tg, d)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(x, again); d != "" {
			t.Errorf("the second time:\n%s", d)
		}
	}
}

// How many copies there are follows from the weights that they own; integers that are no
// weights are inputs.
func TestContestCopies(t *testing.T) {
	b := ir.NewBuilder("g")
	x := b.Input("x", ir.T(ir.BF16, ir.Int(1), ir.Int(4096)))
	for _, tc := range []struct{ n, want int }{{64, mostCopies}, {4096, 8}, {129280, leastCopies}} {
		op := b.Op1("linear", nil, x, b.Weight(fmt.Sprint("w", tc.n), ir.T(ir.BF16, ir.Int(tc.n), ir.Int(4096)))).Op
		if n := (Decision{Op: op}).copies(); n != tc.want {
			t.Errorf("%d rows of weights: %d copies, want %d", tc.n, n, tc.want)
		}
	}
	op := b.Op1("gather_rows", nil, b.Weight("w", ir.T(ir.BF16, ir.Int(9), ir.Int(4096))), b.Input("at", ir.T(ir.I32, ir.Int(3)))).Op
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	g, err := (Decision{Op: op}).graph("g", 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Weights) != 5 || len(g.Inputs) != 2 || g.Inputs[1].Name != "operand1.1" || len(g.Ops) != 5 || len(g.Outputs) != 2 {
		t.Errorf("graph\n%s", ir.Text(g))
	}
}
