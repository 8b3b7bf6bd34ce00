package weights

import (
	"strconv"
	"strings"
)

// renames maps the components of the older checkpoint spelling to those used
// here.
var renames = map[string]string{
	"self_attn":                "attn",
	"mlp":                      "ffn",
	"embed_tokens":             "embed",
	"lm_head":                  "head",
	"input_layernorm":          "attn_norm",
	"post_attention_layernorm": "ffn_norm",
	"q_a_proj":                 "wq_a",
	"q_a_layernorm":            "q_norm",
	"q_b_proj":                 "wq_b",
	"gate_proj":                "w1",
	"up_proj":                  "w3",
	"down_proj":                "w2",
	"weight_scale_inv":         "scale",
	"e_score_correction_bias":  "bias",
}

// CanonicalName turns a tensor name of the older checkpoint spelling into the
// current one, for example model.layers.0.mlp.gate_proj.weight_scale_inv into
// layers.0.ffn.w1.scale: a leading "model." goes, and components between dots
// are renamed. Names that need no change are returned as they are, so the
// function may be applied again.
func CanonicalName(name string) string {
	for strings.HasPrefix(name, "model.") && name != "model." {
		name = name[len("model."):]
	}
	parts := strings.Split(name, ".")
	changed := false
	for i, p := range parts {
		if to, ok := renames[p]; ok {
			parts[i], changed = to, true
		}
	}
	if !changed {
		return name
	}
	return strings.Join(parts, ".")
}

// quote quotes a name from a file for an error message: on one line, and not
// longer than a reader can take in.
func quote(name string) string {
	const limit = 200
	if len(name) > limit {
		return strconv.Quote(name[:limit]) + "..."
	}
	return strconv.Quote(name)
}

// nearest returns the name with the fewest edits to target, the first in order
// among equals, or "" if all are too far off to be a likely slip.
func nearest(target string, names []string) string {
	best, limit := "", len(target)/4
	for _, n := range names {
		if d := editDistance(target, n, limit); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of a and b in bytes, or any
// number above limit if it is above limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, smallest := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
			smallest = min(smallest, row[j+1])
		}
		if smallest > limit {
			return limit + 1
		}
	}
	return row[len(b)]
}
