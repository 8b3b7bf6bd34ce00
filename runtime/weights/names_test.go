package weights

import "testing"

var canonicalNames = []struct{ in, want string }{
	{"layers.0.attn.wq_a.weight", "layers.0.attn.wq_a.weight"},
	{"model.embed_tokens.weight", "embed.weight"},
	{"lm_head.weight", "head.weight"},
	{"model.norm.weight", "norm.weight"},
	{"model.layers.3.input_layernorm.weight", "layers.3.attn_norm.weight"},
	{"model.layers.3.post_attention_layernorm.weight", "layers.3.ffn_norm.weight"},
	{"model.layers.3.self_attn.q_a_proj.weight", "layers.3.attn.wq_a.weight"},
	{"model.layers.3.self_attn.q_a_proj.weight_scale_inv", "layers.3.attn.wq_a.scale"},
	{"model.layers.3.self_attn.q_a_layernorm.weight", "layers.3.attn.q_norm.weight"},
	{"model.layers.3.self_attn.q_b_proj.weight", "layers.3.attn.wq_b.weight"},
	{"model.layers.3.mlp.experts.17.gate_proj.weight", "layers.3.ffn.experts.17.w1.weight"},
	{"model.layers.3.mlp.experts.17.up_proj.weight", "layers.3.ffn.experts.17.w3.weight"},
	{"model.layers.3.mlp.experts.17.down_proj.weight_scale_inv", "layers.3.ffn.experts.17.w2.scale"},
	{"model.layers.3.mlp.gate.e_score_correction_bias", "layers.3.ffn.gate.bias"},
	{"mtp.0.mlp.gate.weight", "mtp.0.ffn.gate.weight"},
	{"model.model.norm.weight", "norm.weight"},
	{"my_lm_head.weight", "my_lm_head.weight"},
	{"layers.0.mlp_extra.weight", "layers.0.mlp_extra.weight"},
	{"model", "model"},
	{"model.", "model."},
	{"..", ".."},
	{"", ""},
}

func TestCanonicalName(t *testing.T) {
	for _, c := range canonicalNames {
		if got := CanonicalName(c.in); got != c.want {
			t.Errorf("CanonicalName(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"embed.weight", "head.weight", "layers.0.attn.wq_a.weight", "layers.0.attn.wq_b.weight", "norm.weight"}
	for _, c := range []struct{ in, want string }{
		{"heads.weight", "head.weight"},
		{"layers.0.attn.wq_c.weight", "layers.0.attn.wq_a.weight"}, // first of two equals
		{"layers.0.attn.wqb.weight", "layers.0.attn.wq_b.weight"},
		{"layers.10.attn.wq_b.weight", "layers.0.attn.wq_b.weight"},
		{"tokenizer", ""},
		{"x", ""},
		{"", ""},
	} {
		if got := nearest(c.in, names); got != c.want {
			t.Errorf("nearest(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		limit int
		want  int // limit+1 stands for anything above limit
	}{
		{"", "", 5, 0}, {"abc", "", 5, 3}, {"", "abc", 5, 3}, {"kitten", "sitting", 5, 3},
		{"abc", "abc", 0, 0}, {"abc", "abd", 0, 1}, {"flaw", "lawn", 2, 2}, {"abcdef", "ghijkl", 3, 4},
	} {
		if got := min(editDistance(c.a, c.b, c.limit), c.limit+1); got != c.want {
			t.Errorf("editDistance(%q, %q, %d) = %d, want %d", c.a, c.b, c.limit, got, c.want)
		}
	}
}
