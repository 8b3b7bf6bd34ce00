package dsv4

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	tinyDir  = "../../testdata/tiny-dsv4"
	flashDir = "../../testdata/configs/flash"
	proDir   = "../../testdata/configs/pro"
)

// alternate returns head, then n times (4, 128), then 4 and the MTP block's 0.
func alternate(head []int, n int) []int {
	return slices.Concat(head, slices.Repeat([]int{4, 128}, n), []int{4, 0})
}

func TestLoadConfig(t *testing.T) {
	flash := Config{
		Vocab: 129280, Hidden: 4096, Layers: 43, HashLayers: 3, NextN: 1,
		Heads: 64, HeadDim: 512, RopeDim: 64, QRank: 1024, OGroups: 8, ORank: 1024,
		Window: 128, Ratios: alternate([]int{0, 0}, 20),
		IndexHeads: 64, IndexDim: 128, IndexTopK: 512,
		Experts: 256, TopK: 6, Inter: 2048, RouteScale: 1.5, SwigluLimit: 10,
		HC: 4, SinkhornIters: 20, HCEps: 1e-6, Eps: 1e-6,
		RopeTheta: 10000, CompressRopeTheta: 160000,
		Yarn:         Yarn{Factor: 16, Orig: 65536, BetaFast: 32, BetaSlow: 1},
		MaxPositions: 1048576, BOS: 0, EOS: []int32{1},
	}
	pro := flash
	pro.Hidden, pro.Layers, pro.Heads, pro.QRank, pro.OGroups = 7168, 61, 128, 1536, 16
	pro.Ratios = alternate([]int{128, 128}, 29)
	pro.IndexTopK, pro.Experts, pro.Inter, pro.RouteScale = 1024, 384, 3072, 2.5
	tiny := flash
	tiny.Vocab, tiny.Hidden, tiny.Layers, tiny.HashLayers = 2048, 256, 6, 1
	tiny.Heads, tiny.HeadDim, tiny.QRank, tiny.OGroups, tiny.ORank = 4, 128, 128, 2, 128
	tiny.Window, tiny.Ratios = 64, []int{0, 0, 4, 128, 4, 128, 0}
	tiny.IndexHeads, tiny.IndexTopK = 4, 32
	tiny.Experts, tiny.TopK, tiny.Inter = 8, 2, 128
	tiny.Yarn.Factor, tiny.Yarn.Orig, tiny.MaxPositions = 4, 1024, 4096

	for _, tc := range []struct {
		dir  string
		want Config
	}{{flashDir, flash}, {proDir, pro}, {tinyDir, tiny}} {
		got, err := LoadConfig(tc.dir)
		if err != nil {
			t.Errorf("LoadConfig(%s): %v", tc.dir, err)
			continue
		}
		if diff := cmp.Diff(&tc.want, got); diff != "" {
			t.Errorf("LoadConfig(%s), -want +got:\n%s", tc.dir, diff)
		}
	}
}

func TestLoadConfigWithoutFile(t *testing.T) {
	dir := t.TempDir()
	_, err := LoadConfig(dir)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), filepath.Join(dir, "config.json")) {
		t.Errorf("LoadConfig without a file: error %v, want not-exist naming the file", err)
	}
}

// flashTree returns the Flash config as a tree to edit.
func flashTree(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(flashDir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]any{}
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// remove, as a value for edited, deletes the field.
type remove struct{}

// edited returns the Flash config with the field at a dotted path set to v.
func edited(t *testing.T, path string, v any) []byte {
	t.Helper()
	tree := flashTree(t)
	at := tree
	names := strings.Split(path, ".")
	for _, n := range names[:len(names)-1] {
		at = at[n].(map[string]any)
	}
	last := names[len(names)-1]
	if v == (any)(remove{}) {
		delete(at, last)
	} else {
		at[last] = v
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// wantFieldError checks that err stands for the file and the field and says all of parts.
func wantFieldError(t *testing.T, err error, field string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one naming %q", field)
		return
	}
	prefix := `dir/config.json: field "` + field
	if !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("error %q, want it to begin with %q", err, prefix)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	ratios := func(edit func(r []int) []int) []int { return edit(alternate([]int{0, 0}, 20)) }
	for _, tc := range []struct {
		field string // set to value
		value any
		named string // the field in the error, "" for field
		says  string
	}{
		// Other models and what is not covered, by name.
		{"model_type", "deepseek_v3", "", `"deepseek_v3", want "deepseek_v4"`},
		{"expert_dtype", remove{}, "", "absent, which means fp8 experts"},
		{"expert_dtype", "fp8", "", "fp8 experts are not covered"},
		{"scoring_func", "sigmoid", "", "sigmoid"},
		{"scoring_func", "softmax", "", "softmax"},
		{"topk_method", "group_limited_greedy", "", "noaux_tc"},
		{"norm_topk_prob", false, "", "unnormalised"},
		{"hidden_act", "gelu", "", "silu"},
		{"attention_bias", true, "", "want false"},
		{"attention_dropout", 0.1, "", "want 0"},
		{"tie_word_embeddings", true, "", "want false"},
		{"num_key_value_heads", 2, "", "want 1"},
		{"n_shared_experts", 2, "", "want 1"},
		{"num_nextn_predict_layers", 2, "", "0 to 1"},
		{"rope_scaling.type", "linear", "", "yarn"},
		{"rope_scaling.mscale", 1, "", "unknown"},
		{"rope_scaling.beta_slow", remove{}, "", "missing"},
		{"quantization_config", remove{}, "", "missing"},
		{"quantization_config.fmt", "e5m2", "", "e4m3"},
		{"quantization_config.scale_fmt", "float32", "", "ue8m0"},
		{"quantization_config.activation_scheme", "static", "", "dynamic"},
		{"quantization_config.quant_method", "awq", "", "fp8"},
		{"quantization_config.weight_block_size", []int{128, 64}, "", "[128 64], only [128 128]"},
		{"quantization_config.weight_block_size", []int{128}, "", "only [128 128]"},
		{"quantization_config.weight_block_size", []any{128, "128"}, "quantization_config.weight_block_size[1]", "integer"},
		{"quantization_config.ignored_layers", []string{}, "", "unknown"},

		// Names.
		{"n_group", 1, "", "unknown"},
		{"Hidden_Size", 4096, "", "unknown"},
		{"dspark_block_size", 4, "", "unknown"},

		// Ranges.
		{"hidden_size", 0, "", "want 1 to"},
		{"hidden_size", -128, "", "want 1 to"},
		{"vocab_size", 1 << 40, "", "want 1 to"},
		{"hc_mult", 0, "", "want 1 to"},
		{"hc_sinkhorn_iters", 0, "", "want 1 to"},
		{"index_topk", 0, "", "want 1 to"},
		{"sliding_window", 0, "", "want 1 to"},
		{"rms_norm_eps", 0, "", "above 0"},
		{"hc_eps", -1e-6, "", "above 0"},
		{"swiglu_limit", -1, "", "0 or more"},
		{"routed_scaling_factor", 0, "", "above 0"},
		{"rope_theta", 1, "", "above 1"},
		{"compress_rope_theta", 0.5, "", "above 1"},
		{"rope_scaling.factor", 0.5, "", "1 or more"},
		{"rope_scaling.original_max_position_embeddings", 0, "", "want 1 to"},
		{"hidden_size", json.RawMessage("4096.0"), "", "integer"},
		{"hidden_size", json.RawMessage("4e3"), "", "integer"},
		{"hidden_size", json.RawMessage("99999999999999999999"), "", "want 1 to"},
		{"rope_theta", json.RawMessage("1e999"), "", "beyond float64"},
		{"eos_token_id", []int{}, "", "empty"},
		{"eos_token_id", []any{1, "2"}, "eos_token_id[1]", "integer"},
		{"eos_token_id", -1, "", "want 0 to"},

		// Rules between fields.
		{"hidden_size", 4100, "", "not a multiple of 128"},
		{"q_lora_rank", 1000, "", "not a multiple of 128"},
		{"moe_intermediate_size", 2000, "", "not a multiple of 128"},
		{"o_lora_rank", 1001, "", "times o_groups is 8008"},
		{"o_groups", 48, "", "does not divide num_attention_heads, 64"},
		{"num_hash_layers", 44, "", "above num_hidden_layers, 43"},
		{"num_experts_per_tok", 257, "", "above n_routed_experts, 256"},
		{"compress_ratios", ratios(func(r []int) []int { return r[1:] }), "", "43 entries, want 44"},
		{"compress_ratios", ratios(func(r []int) []int { return append(r, 0, 0) }), "", "46 entries, want 44"},
		{"compress_ratios", ratios(func(r []int) []int { r[7] = 8; return r }), "compress_ratios[7]", "want 0, 4 or 128"},
		{"compress_ratios", ratios(func(r []int) []int { r[43] = 4; return r }), "", "MTP"},
		{"num_nextn_predict_layers", 0, "compress_ratios", "want 43"},
		{"qk_rope_head_dim", 63, "", "odd"},
		{"qk_rope_head_dim", 514, "", "above head_dim, 512"},
		{"head_dim", 500, "", "less qk_rope_head_dim is 436, not a multiple of 64"},
		{"index_head_dim", 96, "", "power of two"},
		{"index_head_dim", 32, "", "below qk_rope_head_dim, 64"},
		{"rope_scaling.beta_slow", 33, "", "above beta_fast, 32"},
		{"bos_token_id", 129280, "", "above vocab_size - 1, 129279"},
		{"eos_token_id", []int{1, 129280}, "", "above vocab_size - 1, 129279"},
	} {
		named := tc.named
		if named == "" {
			named = tc.field
		}
		_, err := ParseConfig(edited(t, tc.field, tc.value), "dir/config.json")
		wantFieldError(t, err, named, tc.says)
	}
}

func TestIndexBlock(t *testing.T) {
	// index_head_dim 16 passes the other two rules only with a small rope.
	tree := flashTree(t)
	tree["qk_rope_head_dim"], tree["head_dim"], tree["index_head_dim"] = 16, 528, 16
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ParseConfig(data, "dir/config.json")
	wantFieldError(t, err, "index_head_dim", "not a multiple of 32")
}

// Every field that decides something is required (attention_dropout can only
// be absent or 0), and refuses every JSON kind that is not its own.
func TestEveryFieldIsRequiredAndTyped(t *testing.T) {
	var paths []string
	for _, table := range []struct {
		prefix string
		fields []jsonField[Config]
	}{{"", configFields}, {"rope_scaling.", yarnFields}, {"quantization_config.", quantFields}} {
		for _, f := range table.fields {
			path := table.prefix + f.name
			paths = append(paths, path)
			_, err := ParseConfig(edited(t, path, remove{}), "dir/config.json")
			switch {
			case !f.optional:
				wantFieldError(t, err, path)
			case err != nil:
				t.Errorf("without optional %s: %v", path, err)
			}
		}
	}
	for _, path := range paths {
		for _, v := range []any{nil, "text", true, 2.5, []any{nil}, map[string]any{"x": 1}} {
			if _, isFloat := v.(float64); isFloat && takesFloat[path] {
				continue
			}
			_, err := ParseConfig(edited(t, path, v), "dir/config.json")
			if err == nil && !(path == "norm_topk_prob" && v == true) {
				t.Errorf("%s = %v was accepted", path, v)
			}
			if err != nil {
				wantFieldError(t, err, path)
			}
		}
	}
}

// takesFloat are the fields for which 2.5 is a value like any other.
var takesFloat = map[string]bool{
	"routed_scaling_factor": true, "swiglu_limit": true, "hc_eps": true, "rms_norm_eps": true,
	"rope_theta": true, "compress_rope_theta": true, "rope_scaling.factor": true,
	"rope_scaling.beta_fast": true, "rope_scaling.beta_slow": true,
}

func TestParseConfigAccepts(t *testing.T) {
	for _, tc := range []struct {
		field string
		value any
		check func(c *Config) bool
	}{
		{"eos_token_id", []int{1, 128805}, func(c *Config) bool { return slices.Equal(c.EOS, []int32{1, 128805}) }},
		{"rope_theta", json.RawMessage("1e4"), func(c *Config) bool { return c.RopeTheta == 10000 }},
		{"swiglu_limit", 0, func(c *Config) bool { return c.SwigluLimit == 0 }},
		{"num_hash_layers", 0, func(c *Config) bool { return c.HashLayers == 0 }},
	} {
		c, err := ParseConfig(edited(t, tc.field, tc.value), "dir/config.json")
		if err != nil || !tc.check(c) {
			t.Errorf("%s = %v: error %v, config %+v", tc.field, tc.value, err, c)
		}
	}
	for _, f := range configIgnored {
		if f.reason == "" {
			t.Errorf("ignored field %s states no reason", f.name)
		}
		if _, err := ParseConfig(edited(t, f.name, "anything"), "dir/config.json"); err != nil {
			t.Errorf("ignored field %s: %v", f.name, err)
		}
	}
}

func TestParseConfigText(t *testing.T) {
	for _, tc := range []struct{ name, text, says string }{
		{"empty", ``, "unexpected end"},
		{"array", `[]`, "text is an array, want an object"},
		{"null", `null`, "text is null, want an object"},
		{"cut off", `{"model_type": "deepseek_v4",`, "offset 29"},
		{"trailing", `{} {}`, "offset 4"},
		{"bad token", `{"a": tru}`, "offset 10"},
		{"bad utf-8", "{\"model_type\": \"\xff\"}", "UTF-8"},
		{"repeated", `{"vocab_size": 1, "vocab_size": 1}`, `"vocab_size" stands twice, again at offset 30`},
		{"repeated, escaped", `{"vocab_size": 1, "vocab\u005fsize": 1}`, `"vocab_size" stands twice`},
		{"repeated below", `{"rope_scaling": {"type": 1, "type": 1}}`, `"rope_scaling.type" stands twice`},
		{"repeated in ignored", `{"torch_dtype": [{"x": 1, "x": 1}]}`, `"torch_dtype.x" stands twice`},
		{"too deep", strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20000), "depth"},
	} {
		_, err := ParseConfig([]byte(tc.text), "dir/config.json")
		if err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: ") || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one naming the file and saying %q", tc.name, err, tc.says)
		}
	}
}

func TestGeneration(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       Generation
	}{
		{"empty", `{}`, Generation{Temperature: 1, TopP: 1}},
		{"published", `{"_from_model_config": true, "bos_token_id": 0, "eos_token_id": 1, "do_sample": true,
			"temperature": 0.6, "top_p": 0.95, "top_k": 40, "transformers_version": "4.46.3"}`,
			Generation{EOS: []int32{1}, DoSample: true, Temperature: 0.6, TopP: 0.95, TopK: 40}},
		{"list", `{"eos_token_id": [1, 7], "pad_token_id": null}`, Generation{EOS: []int32{1, 7}, Temperature: 1, TopP: 1}},
	} {
		got, err := ParseGeneration([]byte(tc.text), "f")
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(&tc.want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", tc.name, diff)
		}
	}
	for _, tc := range []struct{ text, says string }{
		{`[]`, "want an object"},
		{`{"do_sample": 1}`, `field "do_sample" is the number 1`},
		{`{"temperature": -1}`, `field "temperature" is -1, want a number 0 or more`},
		{`{"temperature": "1"}`, `field "temperature"`},
		{`{"top_p": 0}`, `field "top_p"`},
		{`{"top_p": 1.5}`, `field "top_p"`},
		{`{"top_k": -1}`, `field "top_k"`},
		{`{"eos_token_id": "1"}`, `field "eos_token_id"`},
		{`{"eos_token_id": null}`, `field "eos_token_id" is null`},
		{`{"num_beams": 4}`, `field "num_beams" is unknown`},
		{`{"top_k": 1, "top_k": 2}`, `field "top_k" stands twice`},
	} {
		_, err := ParseGeneration([]byte(tc.text), "f")
		if err == nil || !strings.HasPrefix(err.Error(), "f: ") || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one saying %q", tc.text, err, tc.says)
		}
	}
	for _, f := range generationIgnored {
		if f.reason == "" {
			t.Errorf("ignored field %s states no reason", f.name)
		}
	}
}

func TestLoadGeneration(t *testing.T) {
	got, err := LoadGeneration(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Generation{EOS: []int32{1}, Temperature: 1, TopP: 1}, got); diff != "" {
		t.Errorf("tiny, -want +got:\n%s", diff)
	}

	dir := t.TempDir()
	got, err = LoadGeneration(dir)
	if err != nil {
		t.Fatalf("folder without the file: %v", err)
	}
	want := DefaultGeneration()
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("folder without the file, -want +got:\n%s", diff)
	}

	file := filepath.Join(dir, "generation_config.json")
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadGeneration(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("unreadable file: error %v, want one naming %s", err, file)
	}
}

// FuzzParseConfig: whatever the text, ParseConfig returns an error naming the
// file, or a config that gives every tensor a shape without overflow.
func FuzzParseConfig(f *testing.F) {
	for _, dir := range []string{tinyDir, flashDir, proDir} {
		data, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{`{}`, `{"model_type": "deepseek_v4"}`, `{"model_type": "deepseek_v4", "vocab_size": 1e3}`, `{"a": {"a": [1, {"b": null}]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data, "name")
		if err != nil {
			if c != nil || !strings.HasPrefix(err.Error(), "name: ") {
				t.Fatalf("config %v with error %q", c, err)
			}
			return
		}
		if c.Experts*(c.Layers+c.NextN) > 1<<14 {
			return // the shapes are the same, only more of them
		}
		for _, s := range Tensors(c) {
			if s.Bytes() <= 0 {
				t.Fatalf("tensor %s %v has %d bytes", s.Name, s.Shape, s.Bytes())
			}
		}
	})
}

// FuzzParseGeneration: an error naming the file, or values in their ranges.
func FuzzParseGeneration(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"bos_token_id": 0, "eos_token_id": 1, "do_sample": false}`,
		`{"eos_token_id": [1, 2], "temperature": 0.5, "top_p": 1e-3, "top_k": 3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGeneration(data, "name")
		if err != nil {
			if g != nil || !strings.HasPrefix(err.Error(), "name: ") {
				t.Fatalf("generation %v with error %q", g, err)
			}
			return
		}
		if !(g.Temperature >= 0) || !(g.TopP > 0 && g.TopP <= 1) || g.TopK < 0 || (g.EOS != nil && len(g.EOS) == 0) {
			t.Fatalf("out of range: %+v", g)
		}
	})
}
