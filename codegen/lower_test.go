package codegen

import (
	"encoding/json"
	"errors"
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
	m := &passes.Module{Target: tg.ForPasses()}
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

func bucket(entry string, kv ...any) passes.Bucket {
	b := passes.Bucket{Entry: entry, Bind: map[string]int{"R": 4, "P": 2, "N": 8}}
	for i := 0; i < len(kv); i += 2 {
		b.Bind[kv[i].(string)] = kv[i+1].(int)
	}
	return b
}

// TestModelsLower: every entry of tiny, Flash and Pro gets a plan on every GPU
// and host target, the same bytes each time, and no op of the models decomposes
// but those that are meant to.
func TestModelsLower(t *testing.T) {
	buckets := []passes.Bucket{
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
					data, err := json.Marshal([]any{u.Module, plans})
					if err != nil {
						t.Fatal(err)
					}
					for _, k := range u.Kernels {
						data = append(data, k.IR...)
					}
					texts = append(texts, string(data))
					for _, w := range u.Module.Weights {
						if tg.FNUZ && strings.HasPrefix(w.Type, ir.F8E4M3.String()+"[") {
							t.Errorf("weight %s is %s, which %s decodes in software", w.Name, w.Type, name)
						}
					}
					for _, d := range u.Module.Decomposed {
						if d.Op == "group_start" {
							continue // a few integer ops on one number per request
						}
						t.Errorf("%s: %s was decomposed: %s", d.Loc, d.Op, whyNot(d.Rejected))
					}
				}
				if texts[0] != texts[1] {
					t.Error("two lowerings differ")
				}
			})
		}
	}
}

// TestBordersAreOneLaunch: where two sublayers meet there is one launch, not three; on
// matrix units two, not four, of which the first is their product.
func TestBordersAreOneLaunch(t *testing.T) {
	for _, name := range []string{"x86-64-v3", "x86-64-v2", "gfx942", "gfx950", "sm_90"} {
		tg, err := target.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		u := NewUnit(tg)
		plans, err := u.LowerAll(entries(t, "../testdata/tiny-dsv4", tg), []passes.Bucket{bucket("decode", "B", 4)})
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, l := range plans[0].Launches {
			n[strings.Replace(u.Module.Kernels[l.Kernel].Form, "_quant", "", 1)]++
		}
		want, form := 1, ""
		switch tg.Kind {
		case target.AMDGPU:
			want, form = 2, "_mfma"
		case target.NVPTX:
			want, form = 2, "_mma"
		}
		if fused, pre := n["hc_fused"+form], n["hc_pre"+form]; fused != 11*want || pre != want || n["hc_post"] != 1 {
			t.Errorf("%s: launches of 12 sublayers: %d hc_fused%s, %d hc_pre%s, %d hc_post, want %d, %d and 1", name, fused, form, pre, form, n["hc_post"], 11*want, want)
		}
	}
}

// TestNoSplitTokens: a threshold that the user sets reaches the kernel forms.
func TestNoSplitTokens(t *testing.T) {
	tg, err := target.Lookup("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	launches := func(set map[string]int) int {
		u := NewUnit(tg)
		m := &passes.Module{Entries: entries(t, "../testdata/tiny-dsv4", tg), Target: tg.ForPasses(), Config: passes.Config{Set: set}}
		if err := passes.Lower(m, []passes.Bucket{bucket("decode", "B", 4)}, u); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, l := range u.Module.Plans[0].Launches {
			if u.Module.Kernels[l.Kernel].Form == "sparse_attention_mfma" {
				n++
			}
		}
		return n
	}
	const layers = 6
	for _, tc := range []struct {
		set  map[string]int
		want int
	}{{nil, 2 * layers}, {map[string]int{passes.NoSplitTokens: 4}, layers}, {map[string]int{passes.NoSplitTokens: 5}, 2 * layers}} {
		if got := launches(tc.set); got != tc.want {
			t.Errorf("%v: %d launches of attention, want %d", tc.set, got, tc.want)
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
	if _, err := u.LowerAll(graphs, []passes.Bucket{bucket("prefill", "T", 16, "B", 1, "O", 1)}); err != nil {
		t.Fatal(err)
	}
	before := len(u.Kernels)
	if _, err := u.LowerAll(graphs, []passes.Bucket{bucket("prefill", "T", 128, "B", 1, "O", 1), bucket("prefill", "T", 512, "B", 4, "O", 1)}); err != nil {
		t.Fatal(err)
	}
	if n := len(u.Kernels) - before; n != 0 {
		t.Errorf("two larger buckets need %d more kernels: %s", n, u.Kernels[before].Spec)
	}
}

// TestModuleCheck: what is wrong in a module is found and named.
func TestModuleCheck(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	graphs := entries(t, "../testdata/tiny-dsv4", tg)
	u := NewUnit(tg)
	if _, err := u.LowerAll(graphs, []passes.Bucket{bucket("decode", "B", 2)}); err != nil {
		t.Fatal(err)
	}
	if err := u.Module.Check(); err != nil {
		t.Fatalf("a good module: %v", err)
	}
	// Copies through JSON, as from a bundle.
	module, err := json.Marshal(u.Module)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(u.Module.Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	arg := func(p *plan.Plan, which func(plan.Arg) bool) *plan.Arg {
		for i := range p.Launches {
			if j := slices.IndexFunc(p.Launches[i].Args, which); j >= 0 {
				return &p.Launches[i].Args[j]
			}
		}
		t.Fatal("no such argument")
		return nil
	}
	written := func(p *plan.Plan) *plan.Arg {
		return arg(p, func(a plan.Arg) bool { return a.Mode == plan.Write && a.Buf.Space == plan.Arena })
	}
	weight := func(p *plan.Plan) *plan.Arg {
		return arg(p, func(a plan.Arg) bool { return a.Buf.Space == plan.Weight })
	}
	for _, tc := range []struct {
		want string
		edit func(m *plan.Module, p *plan.Plan)
	}{
		{"plans of version 9", func(m *plan.Module, _ *plan.Plan) { m.Version = 9 }},
		{"outside arena", func(_ *plan.Module, p *plan.Plan) { written(p).Buf.Offset = p.Arena }},
		{"outside arena", func(_ *plan.Module, p *plan.Plan) { written(p).Buf.Offset = -64 }},
		{"outside arena", func(_ *plan.Module, p *plan.Plan) { written(p).Buf.Bytes = 1 << 62 }},
		{"outside arena", func(_ *plan.Module, p *plan.Plan) { p.Arena = 64 }},
		{"arena of -1 bytes", func(_ *plan.Module, p *plan.Plan) { p.Arena = -1 }},
		{"outside weight ", func(_ *plan.Module, p *plan.Plan) { weight(p).Buf.Bytes++ }},
		{"grid 0", func(_ *plan.Module, p *plan.Plan) { p.Launches[0].Grid = 0 }},
		{"kernel -1 of", func(_ *plan.Module, p *plan.Plan) { p.Launches[0].Kernel = -1 }},
		{`mode "x"`, func(_ *plan.Module, p *plan.Plan) { written(p).Mode = "x" }},
		{"writes weight", func(_ *plan.Module, p *plan.Plan) { weight(p).Mode = plan.Update }},
		{"no weight", func(m *plan.Module, _ *plan.Plan) { m.Weights = m.Weights[:1] }},
		{"is unknown or named twice", func(_ *plan.Module, p *plan.Plan) { p.States = append(p.States, p.States[0]) }},
		{"the entry has no state", func(_ *plan.Module, p *plan.Plan) { p.States = nil }},
		{"unknown memory", func(_ *plan.Module, p *plan.Plan) { written(p).Buf.Space = 'x' }},
		{"declared twice", func(m *plan.Module, _ *plan.Plan) { m.States = append(m.States, m.States[0]) }},
		{"declared twice", func(m *plan.Module, _ *plan.Plan) { m.Kernels[1].Symbol = m.Kernels[0].Symbol }},
		{": -1 bytes of shared memory", func(m *plan.Module, _ *plan.Plan) { m.Kernels[0].Shared = -1 }},
		{"not 0 and 0", func(m *plan.Module, _ *plan.Plan) { m.Weights[0].Bytes[0] = 0 }},
		{"unknown dtype", func(m *plan.Module, _ *plan.Plan) { m.Weights[0].Type = "f33[2]" }},
		{"no multiple of 64", func(_ *plan.Module, p *plan.Plan) { p.Inputs[0].Data.Offset++ }},
		{"bytes and 0 of scales", func(_ *plan.Module, p *plan.Plan) { p.Outputs[0].Data.Bytes = 4 }},
		{"bytes and 0 of scales", func(_ *plan.Module, p *plan.Plan) { p.Outputs[0].Type = "f32[999999]" }},
		{"is declared twice", func(_ *plan.Module, p *plan.Plan) { p.Outputs = append(p.Outputs, p.Outputs[0]) }},
		{"arguments, the kernel has", func(_ *plan.Module, p *plan.Plan) { p.Launches[0].Args = p.Launches[0].Args[1:] }},
		{"mode r, the parameter is int", func(m *plan.Module, p *plan.Plan) {
			m.Kernels[p.Launches[0].Kernel].Params[0] = "int"
		}},
		{"mode w, the parameter is", func(m *plan.Module, p *plan.Plan) {
			for j, a := range p.Launches[0].Args {
				if a.Mode == plan.Write {
					m.Kernels[p.Launches[0].Kernel].Params[j] = "f32"
				}
			}
		}},
	} {
		m, p := &plan.Module{}, &plan.Plan{}
		if err := errors.Join(json.Unmarshal(module, m), json.Unmarshal(text, p)); err != nil {
			t.Fatal(err)
		}
		m.Plans = []*plan.Plan{p}
		if err := m.Check(); err != nil {
			t.Fatalf("a good module after JSON: %v", err)
		}
		tc.edit(m, p)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q in it", err, tc.want)
		}
	}
}

// TestOneMemory: steps of one unit that disagree about a pool are refused.
func TestOneMemory(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	b := passes.Bucket{Entry: "decode", Bind: map[string]int{"B": 1, "R": 4, "P": 2, "N": 9}}
	_, err = NewUnit(tg).LowerAll(entries(t, "../testdata/tiny-dsv4", tg), []passes.Bucket{bucket("decode", "B", 2), b})
	if err == nil || !strings.Contains(err.Error(), "pass select-kernels: graph @decode: state !") || !strings.Contains(err.Error(), "in another") {
		t.Errorf("two sizes of one pool: %v", err)
	}
}
