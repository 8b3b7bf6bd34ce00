package codegen

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// entries are the graphs of a model, prepared for a target.
func entries(t *testing.T, dir string, tg *target.Target) []*ir.Graph {
	t.Helper()
	c, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{FNUZ: tg.FNUZ}
	for _, e := range dsv4.Entries {
		g, err := dsv4.Build(c, e, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	return m.Entries
}

func bucket(entry string, kv ...any) Bucket {
	b := Bucket{Entry: entry, Bind: map[string]int{"R": 4, "P": 2, "N": 8}}
	for i := 0; i < len(kv); i += 2 {
		b.Bind[kv[i].(string)] = kv[i+1].(int)
	}
	return b
}

// TestModelsLower: every entry of tiny, Flash and Pro gets a plan on every GPU
// and host target, the same bytes each time, and no op of the models decomposes
// but those that are meant to.
func TestModelsLower(t *testing.T) {
	buckets := []Bucket{
		bucket("prefill", "T", 16, "B", 1, "O", 1), bucket("decode", "B", 4), bucket("verify", "B", 2, "K", 3),
		bucket("draft", "T", 16, "B", 1, "O", 1),
	}
	for _, model := range []string{"tiny-dsv4", "configs/flash", "configs/pro"} {
		for _, name := range []string{"x86-64-v3", "gfx942", "gfx950"} {
			t.Run(model+" "+name, func(t *testing.T) {
				tg, err := target.Lookup(name)
				if err != nil {
					t.Fatal(err)
				}
				graphs := entries(t, "../testdata/"+model, tg)
				var texts []string
				for range 2 {
					u := NewUnit(tg)
					plans, err := u.LowerAll(graphs, buckets)
					if err != nil {
						t.Fatal(err)
					}
					data, err := json.Marshal(plans)
					if err != nil {
						t.Fatal(err)
					}
					for _, k := range u.Kernels {
						data = append(data, k.IR...)
					}
					texts = append(texts, string(data))
					for _, w := range slices.Concat(plans[0].Weights, plans[3].Weights) {
						if tg.FNUZ && strings.HasPrefix(w.Type, ir.F8E4M3.String()+"[") {
							t.Errorf("weight %s is %s, which %s decodes in software", w.Name, w.Type, name)
						}
					}
					for _, l := range plans[0].Launches {
						if l.Op == "reduce_sum" || l.Op == "dot" || l.Op == "exp" {
							t.Errorf("%s: a composite was decomposed: launch of %s", l.Loc, l.Op)
						}
					}
				}
				if texts[0] != texts[1] {
					t.Error("two lowerings differ")
				}
			})
		}
	}
}

// TestBucketsShareKernels: a bucket changes grids and integers, not code, but
// for the tile height of products.
func TestBucketsShareKernels(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	graphs := entries(t, "../testdata/tiny-dsv4", tg)
	u := NewUnit(tg)
	if _, err := u.LowerAll(graphs, []Bucket{bucket("prefill", "T", 16, "B", 1, "O", 1)}); err != nil {
		t.Fatal(err)
	}
	before := len(u.Kernels)
	if _, err := u.LowerAll(graphs, []Bucket{bucket("prefill", "T", 128, "B", 1, "O", 1), bucket("prefill", "T", 512, "B", 4, "O", 1)}); err != nil {
		t.Fatal(err)
	}
	if n := len(u.Kernels) - before; n != 0 {
		t.Errorf("two larger buckets need %d more kernels: %s", n, u.Kernels[before].Spec)
	}
}

func TestPlanCheck(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	graphs := entries(t, "../testdata/tiny-dsv4", tg)
	good, err := NewUnit(tg).LowerAll(graphs, []Bucket{bucket("decode", "B", 2)})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(good[0])
	if err != nil {
		t.Fatal(err)
	}
	writes := slices.IndexFunc(good[0].Launches[0].Args, func(a plan.Arg) bool { return a.Mode == plan.Write })
	for _, tc := range []struct {
		want string
		edit func(p *plan.Plan)
	}{
		{"version 9", func(p *plan.Plan) { p.Version = 9 }},
		{"outside arena", func(p *plan.Plan) { p.Launches[0].Args[writes].Buf.Offset = p.Arena }},
		{"outside arena", func(p *plan.Plan) { p.Launches[0].Args[writes].Buf.Offset = -64 }},
		{"outside arena", func(p *plan.Plan) { p.Arena = 64 }},
		{"grid 0", func(p *plan.Plan) { p.Launches[0].Grid = 0 }},
		{`mode "x"`, func(p *plan.Plan) { p.Launches[0].Args[writes].Mode = "x" }},
		{"no weight", func(p *plan.Plan) { p.Weights = p.Weights[1:] }},
		{"writes weight", func(p *plan.Plan) {
			i := slices.IndexFunc(p.Launches[0].Args, func(a plan.Arg) bool { return a.Buf != nil && a.Buf.Space == plan.Weight })
			p.Launches[0].Args[i].Mode = plan.Update
		}},
		{"declared twice", func(p *plan.Plan) { p.States = append(p.States, p.States[0]) }},
	} {
		p := &plan.Plan{}
		if err := json.Unmarshal(data, p); err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Fatalf("a good plan: %v", err)
		}
		tc.edit(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q in it", err, tc.want)
		}
	}
}
