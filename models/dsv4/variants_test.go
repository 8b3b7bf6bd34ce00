package dsv4_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// randomWeights makes every weight that a graph asks for from its name alone:
// valid codes and scales of moderate size.
type randomWeights struct{}

func (randomWeights) Weight(name string, t ir.Type) (*eval.Tensor, error) {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	w, err := eval.New(t)
	if err != nil {
		return nil, err
	}
	scale, middle := 0.2, 0.0
	switch {
	case strings.HasSuffix(name, "norm"), strings.HasSuffix(name, "_scale"):
		middle = 1
	case name == "embed", strings.HasSuffix(name, "_base"), strings.HasSuffix(name, "attn_sink"):
		scale = 1
	}
	for i := range w.F {
		v := float32(middle + scale*(2*r.Float64()-1))
		if t.DType == ir.BF16 {
			v = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
		}
		w.F[i] = v
	}
	for i := range w.Codes {
		w.Codes[i] = byte(r.IntN(256))
		if t.DType == ir.F8E4M3 { // exponents 4..8 of bias 7: no NaN, at most 3.75
			w.Codes[i] = byte(r.IntN(2)<<7 | (4+r.IntN(5))<<3 | r.IntN(8))
		}
	}
	for i := range w.Scales {
		w.Scales[i] = byte(127 - 5 + r.IntN(3))
	}
	if len(w.I) > 0 { // tid2eid: different experts for each token
		k, _ := t.Dims[1].Const()
		for row := range len(w.I) / k {
			for i := range k {
				w.I[row*k+i] = int64(row+i) % int64(variantExperts)
			}
		}
	}
	return w, nil
}

const variantExperts = 4

// variant is the tiny config, made smaller, with fields changed. ParseConfig
// checks it, so that only legal configs are tried.
func variant(t *testing.T, changes map[string]any) *dsv4.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(modelDirs["tiny"], "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, map[string]any{
		"vocab_size": 64, "hidden_size": 128, "num_hidden_layers": 3, "compress_ratios": []int{4, 128, 0, 0},
		"num_attention_heads": 2, "o_groups": 2, "o_lora_rank": 64, "sliding_window": 8, "index_n_heads": 2, "index_head_dim": 64, "index_topk": 4,
		"n_routed_experts": variantExperts, "max_position_embeddings": 512,
	})
	maps.Copy(fields, changes)
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	c, err := dsv4.ParseConfig(text, "variant")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runner runs one model with random weights.
type runner struct {
	c   *dsv4.Config
	ref *engine.Ref
	l   engine.Layout
}

func newRunner(t *testing.T, c *dsv4.Config, o dsv4.Options) *runner {
	t.Helper()
	m := &passes.Module{}
	for _, e := range dsv4.Entries {
		if e == dsv4.Draft && c.NextN == 0 {
			continue
		}
		g := build(t, c, e, o)
		checkGraph(t, g)
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	ref, err := engine.NewRef(m.Entries, m.Pack, randomWeights{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	return &runner{c, ref, l}
}

// run prefills all but the last 5 ids in chunks, decodes one, and feeds three in
// a verify step, the MTP step beside each; the last id only follows. It returns
// every output row.
func (r *runner) run(t *testing.T, ids []int32, chunk int) map[string][]float32 {
	t.Helper()
	e, err := engine.New(r.ref, r.l, 1, r.l.Pages(len(ids)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSeq(0, r.l.Pages(len(ids)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float32{}
	step := func(entry string, n int) {
		f := engine.Feed{Seq: s, IDs: ids[s.Len : s.Len+n]}
		for i := range n {
			f.Out = append(f.Out, i)
		}
		feeds := []engine.Feed{f}
		out, err := e.Step(entry, feeds, engine.ShapeOf(feeds))
		if err != nil {
			t.Fatal(err)
		}
		if r.c.NextN > 0 {
			ahead := []engine.Feed{{Seq: s, IDs: ids[s.Len+1 : s.Len+1+n], Out: f.Out}}
			draft, err := e.Draft(ahead, engine.ShapeOf(ahead), out[fmt.Sprintf("hidden.%d", r.c.Layers-1)])
			if err != nil {
				t.Fatal(err)
			}
			all["draft"] = append(all["draft"], draft["logits"].F...)
		}
		for name, v := range out {
			all[name] = append(all[name], v.F...)
		}
		engine.Commit(feeds)
	}
	for last := len(ids) - 5; s.Len < last; {
		step("prefill", min(chunk, last-s.Len))
	}
	step("decode", 1)
	step("verify", 3)
	return all
}

// Configs at the edges of what ParseConfig admits build, run in the oracle with
// random weights, and do not depend on the chunking.
func TestVariants(t *testing.T) {
	windowOnly := map[string]any{"compress_ratios": []int{0, 0, 0, 0}}
	for _, tc := range []struct {
		name    string
		changes map[string]any
		n       int  // ids; more than 128 close a group of that size
		both    bool // both numerics; else production, unless exhaustive
	}{
		{"small", nil, 140, false},
		{"window only", windowOnly, 40, true},
		{"ratio 4 only", map[string]any{"compress_ratios": []int{4, 4, 4, 0}}, 40, true},
		{"ratio 128 only", map[string]any{"compress_ratios": []int{128, 128, 128, 0}}, 140, false},
		{"no MTP", map[string]any{"num_nextn_predict_layers": 0, "compress_ratios": []int{4, 128, 0}}, 140, false},
		{"one layer, no MTP", map[string]any{"num_hidden_layers": 1, "num_hash_layers": 0, "num_nextn_predict_layers": 0, "compress_ratios": []int{4}}, 28, true},
		{"no hash layers", map[string]any{"num_hash_layers": 0}, 20, false},
		{"hash layers only", map[string]any{"num_hash_layers": 3}, 20, false},
		{"one stream", map[string]any{"hc_mult": 1}, 20, false},
		{"one Sinkhorn step", map[string]any{"hc_sinkhorn_iters": 1}, 20, false},
		{"window of one", map[string]any{"sliding_window": 1}, 40, false},
		{"window above all", map[string]any{"sliding_window": 50}, 40, false},
		{"all entries picked", map[string]any{"index_topk": 500}, 40, false},
		{"one entry picked", map[string]any{"index_topk": 1}, 40, false},
		{"one expert", map[string]any{"num_experts_per_tok": 1}, 20, false},
		{"every expert", map[string]any{"num_experts_per_tok": variantExperts}, 20, false},
		{"no clamp", map[string]any{"swiglu_limit": 0}, 20, false},
		{"one head", map[string]any{"num_attention_heads": 1, "o_groups": 1, "o_lora_rank": 128, "index_n_heads": 1}, 20, false},
		{"edge blocks", map[string]any{"head_dim": 192, "q_lora_rank": 256, "moe_intermediate_size": 256, "hidden_size": 384}, 20, false},
		{"all dims rotated", map[string]any{"head_dim": 64, "o_lora_rank": 64}, 40, true},
		{"two dims rotated", map[string]any{"qk_rope_head_dim": 2, "head_dim": 66, "index_head_dim": 32}, 40, false},
	} {
		for _, o := range []dsv4.Options{{Numerics: dsv4.Production, MaxDraft: 3}, {Numerics: dsv4.Unrounded, MaxDraft: 2, Taps: true}} {
			if o.Numerics == dsv4.Unrounded && !tc.both && !exhaustive {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", tc.name, o.Numerics), func(t *testing.T) {
				r := newRunner(t, variant(t, tc.changes), o)
				r.check(t, tc.n)
			})
		}
	}
	// Without compressed layers there is nothing to page.
	g := build(t, variant(t, windowOnly), dsv4.Prefill, dsv4.DefaultOptions())
	for _, v := range g.Inputs {
		if v.Name == "pages" || strings.HasPrefix(v.Name, "c4_") || strings.HasPrefix(v.Name, "c128_") {
			t.Errorf("a model with windows only asks for %s", v)
		}
	}
	if slices.Contains(g.Syms, "N") || slices.Contains(g.Syms, "P") {
		t.Errorf("a model with windows only has the symbols %v", g.Syms)
	}
}

func (r *runner) check(t *testing.T, n int) {
	t.Helper()
	ids := make([]int32, n+1)
	for i := range ids {
		ids[i] = int32((i*i + 3*i) % r.c.Vocab)
	}
	whole, chunks := r.run(t, ids, n), r.run(t, ids, (n-4)/4)
	for name, want := range whole {
		got := chunks[name]
		if !slices.EqualFunc(want, got, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			t.Errorf("%s depends on the chunking", name)
		}
		for i, v := range want {
			if v != v || math.IsInf(float64(v), 0) {
				t.Fatalf("%s: value %d is %v", name, i, v)
			}
		}
	}
	logits := whole["logits"]
	if len(logits) != n*r.c.Vocab {
		t.Fatalf("%d logits, want %d rows of %d", len(logits), n, r.c.Vocab)
	}
	first, last := logits[:r.c.Vocab], logits[len(logits)-r.c.Vocab:]
	if slices.Equal(first, last) || slices.Min(last) == slices.Max(last) {
		t.Errorf("logits do not depend on the input: %v and %v", first[:4], last[:4])
	}
}
