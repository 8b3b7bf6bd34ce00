package passes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
)

// graphsOf keeps the texts of the steps that it is given.
type graphsOf struct {
	noBackend
	texts []string
}

func (b *graphsOf) SelectKernels(s *Step) error {
	b.texts = append(b.texts, ir.Text(s.Graph))
	return nil
}

// Bucket by bucket there are the graphs, the remarks and the numbers of applications
// that there are pass by pass, wherever a bisection ends, and with shuffled ops.
func TestLowerEach(t *testing.T) {
	var buckets []Bucket
	for _, text := range []string{"prefill T=9 B=1 O=9", "decode B=4", "verify B=2 K=3", "draft T=9 B=1 O=9"} {
		buckets = append(buckets, parseBucket(t, text+" R=4 P=2 N=8"))
	}
	bisect := func(n int) Config { return Config{Bisect: &n} }
	configs := []Config{{}, {Shuffle: 7}, {Pipeline: "required"}, {Disable: []string{"join-launches"}}}
	base := tinyModule(t)
	if err := Run(base); err != nil {
		t.Fatal(err)
	}
	for n := range 15 {
		configs = append(configs, bisect(base.applied+n))
	}
	for _, c := range configs {
		got := func(lower func(*Module, []Bucket, Backend) error) string {
			m := &Module{Entries: slices.Clone(base.Entries), Pack: base.Pack, Target: base.Target, Config: c, applied: base.applied}
			b := &graphsOf{}
			if err := lower(m, buckets, b); err != nil {
				t.Fatal(err)
			}
			var remarks []string
			for _, r := range m.Remarks {
				remarks = append(remarks, r.String())
			}
			return fmt.Sprintf("%s\n%s\n%d applications", strings.Join(b.texts, ""), strings.Join(remarks, "\n"), m.applied)
		}
		if diff := cmp.Diff(got(Lower), got(LowerEach)); diff != "" {
			t.Errorf("%+v: -pass by pass +bucket by bucket:\n%s", c, diff)
		}
	}
}

// A pass that needs all steps at once has them.
func TestLowerEachWithAModulePass(t *testing.T) {
	steps := 0
	withPass(t, Pass{Name: "all", Doc: "Counts.", On: Steps, Module: func(c *Context) error { steps = max(steps, len(c.Module.Steps)); return nil }}, "select-kernels")
	m := module(t, "step.kir", rowsOp)
	if err := LowerEach(m, []Bucket{{"step", map[string]int{"T": 3}}, {"step", map[string]int{"T": 4}}}, noBackend{}); err != nil || steps != 2 {
		t.Errorf("%d steps, error %v", steps, err)
	}
}

// What fails is named as it is pass by pass.
func TestLowerEachFails(t *testing.T) {
	withPass(t, Pass{Name: "breaks", Doc: "Breaks.", On: Steps, Graph: func(_ *Context, g *ir.Graph) (*ir.Graph, error) {
		b := *g
		b.Ops = nil
		return &b, nil
	}}, "select-kernels")
	for _, lower := range []func(*Module, []Bucket, Backend) error{Lower, LowerEach} {
		err := lower(module(t, "step.kir", rowsOp), []Bucket{{"step", map[string]int{"T": 3}}}, noBackend{})
		var e *Error
		if !errors.As(err, &e) || e.Pass != "breaks" || !e.Bug || e.Before == nil || len(e.Before.Ops) != 1 {
			t.Errorf("error %v", err)
		}
	}
}
