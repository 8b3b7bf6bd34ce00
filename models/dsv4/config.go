package dsv4

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config holds what the forward pass of DeepSeek-V4 depends on, read from the
// config.json of a Hugging Face model folder. Fields that exist in the file
// but admit a single value (the activation function, say) are checked while
// reading and have no counterpart here; configFields lists every name.
//
// A Config made by ParseConfig or LoadConfig satisfies configRules. Sizes
// count elements unless stated otherwise; no field carries a physical unit.
type Config struct {
	Vocab      int // vocab_size: rows of the embedding and of the head
	Hidden     int // hidden_size: width of one residual stream
	Layers     int // num_hidden_layers: main blocks, without MTP
	HashLayers int // num_hash_layers: leading layers that route by token id
	NextN      int // num_nextn_predict_layers: MTP blocks, 0 or 1

	Heads   int   // num_attention_heads: query heads; one shared key = value vector
	HeadDim int   // head_dim: size of one head
	RopeDim int   // qk_rope_head_dim: rotated dims at the end of each head
	QRank   int   // q_lora_rank: rank of the query path
	OGroups int   // o_groups: head groups of the output projection
	ORank   int   // o_lora_rank: rank per group of the output projection
	Window  int   // sliding_window: local attention span in tokens, the current one included
	Ratios  []int // compress_ratios: 0, 4 or 128 per layer, Layers+NextN entries, MTP last

	IndexHeads int // index_n_heads: indexer heads of ratio-4 layers
	IndexDim   int // index_head_dim: size of an indexer head, a power of two
	IndexTopK  int // index_topk: compressed entries that the indexer picks

	Experts     int     // n_routed_experts
	TopK        int     // num_experts_per_tok: routed experts per token
	Inter       int     // moe_intermediate_size: of routed and shared experts
	RouteScale  float64 // routed_scaling_factor: multiplies the normalised routing weights
	SwigluLimit float64 // swiglu_limit: clamp inside every expert, 0 = off

	HC            int     // hc_mult: residual streams of the hyper-connections
	SinkhornIters int     // hc_sinkhorn_iters
	HCEps         float64 // hc_eps
	Eps           float64 // rms_norm_eps: norms and the RMS inside hyper-connections

	RopeTheta         float64 // rope_theta: rope base of layers with ratio 0
	CompressRopeTheta float64 // compress_rope_theta: rope base of layers with ratio > 0
	Yarn              Yarn    // rope_scaling: only for layers with ratio > 0
	MaxPositions      int     // max_position_embeddings: positions are below this

	BOS int32   // bos_token_id
	EOS []int32 // eos_token_id: one or several, in file order
}

// Yarn holds the YaRN parameters of rope_scaling.
type Yarn struct {
	Factor   float64 // factor: context extension, >= 1
	Orig     int     // original_max_position_embeddings, in tokens
	BetaFast float64 // beta_fast: rotations over Orig above which a frequency is kept
	BetaSlow float64 // beta_slow: rotations over Orig below which it is divided by Factor
}

// quantBlock is the activation block of a quantised linear along its input
// dimension, and both sides of an fp8 weight block. The input dimension of
// every quantised linear must be a multiple of it.
const quantBlock = 128

// kvBlock and indexBlock are the blocks of the KV cache's e4m3 form and of the
// indexer's e2m1 form.
const (
	kvBlock    = 64
	indexBlock = 32
)

// Bounds that no published model comes near. They keep every shape and byte
// count far inside int64, so that a damaged file cannot overflow one silently.
const (
	maxVocab   = 1 << 24
	maxLayers  = 1 << 10
	maxHeads   = 1 << 10
	maxExperts = 1 << 12
	maxSize    = 1 << 16
	maxHC      = 1 << 6
	maxIters   = 1 << 10
	// maxTokens is the last count of positions that f32 represents exactly;
	// rope angles are computed from f32 positions.
	maxTokens = 1 << 24
)

// configFields is every field of config.json that decides something: mapped to
// a Config field, or required to have the one value that is implemented. All
// are required unless marked optional. The model type comes first so that
// another model's file is refused by that and not by some unknown field.
var configFields = []jsonField[Config]{
	{name: "model_type", read: oneString[Config]("deepseek_v4", "no other model is implemented here")},
	{name: "vocab_size", read: intField(func(c *Config) *int { return &c.Vocab }, 1, maxVocab)},
	{name: "hidden_size", read: intField(func(c *Config) *int { return &c.Hidden }, 1, maxSize)},
	{name: "num_hidden_layers", read: intField(func(c *Config) *int { return &c.Layers }, 1, maxLayers)},
	{name: "num_hash_layers", read: intField(func(c *Config) *int { return &c.HashLayers }, 0, maxLayers)},
	{name: "num_nextn_predict_layers", read: intField(func(c *Config) *int { return &c.NextN }, 0, 1)},

	{name: "num_attention_heads", read: intField(func(c *Config) *int { return &c.Heads }, 1, maxHeads)},
	{name: "num_key_value_heads", read: oneInt[Config](1, "one vector is key and value of all heads")},
	{name: "head_dim", read: intField(func(c *Config) *int { return &c.HeadDim }, 1, maxSize)},
	{name: "qk_rope_head_dim", read: intField(func(c *Config) *int { return &c.RopeDim }, 1, maxSize)},
	{name: "q_lora_rank", read: intField(func(c *Config) *int { return &c.QRank }, 1, maxSize)},
	{name: "o_groups", read: intField(func(c *Config) *int { return &c.OGroups }, 1, maxHeads)},
	{name: "o_lora_rank", read: intField(func(c *Config) *int { return &c.ORank }, 1, maxSize)},
	{name: "sliding_window", read: intField(func(c *Config) *int { return &c.Window }, 1, maxTokens)},
	{name: "compress_ratios", read: readRatios},
	{name: "attention_bias", read: oneBool[Config](false, "no linear has a bias")},
	{name: "attention_dropout", optional: true, read: oneFloat[Config](0, "inference drops nothing")},

	{name: "index_n_heads", read: intField(func(c *Config) *int { return &c.IndexHeads }, 1, maxHeads)},
	{name: "index_head_dim", read: intField(func(c *Config) *int { return &c.IndexDim }, 1, maxSize)},
	{name: "index_topk", read: intField(func(c *Config) *int { return &c.IndexTopK }, 1, maxTokens)},

	{name: "n_routed_experts", read: intField(func(c *Config) *int { return &c.Experts }, 1, maxExperts)},
	{name: "n_shared_experts", read: oneInt[Config](1, "the shared expert is a single one")},
	{name: "num_experts_per_tok", read: intField(func(c *Config) *int { return &c.TopK }, 1, maxExperts)},
	{name: "moe_intermediate_size", read: intField(func(c *Config) *int { return &c.Inter }, 1, maxSize)},
	{name: "scoring_func", read: oneString[Config]("sqrtsoftplus", "the sigmoid and softmax scoring of the reference are not covered")},
	{name: "topk_method", read: oneString[Config]("noaux_tc", "expert groups are not covered")},
	{name: "norm_topk_prob", read: oneBool[Config](true, "unnormalised routing weights are not covered")},
	{name: "routed_scaling_factor", read: floatField(func(c *Config) *float64 { return &c.RouteScale }, positive)},
	{name: "swiglu_limit", read: floatField(func(c *Config) *float64 { return &c.SwigluLimit }, notNegative)},
	{name: "hidden_act", read: oneString[Config]("silu", "no other activation function is covered")},

	{name: "hc_mult", read: intField(func(c *Config) *int { return &c.HC }, 1, maxHC)},
	{name: "hc_sinkhorn_iters", read: intField(func(c *Config) *int { return &c.SinkhornIters }, 1, maxIters)},
	{name: "hc_eps", read: floatField(func(c *Config) *float64 { return &c.HCEps }, positive)},
	{name: "rms_norm_eps", read: floatField(func(c *Config) *float64 { return &c.Eps }, positive)},

	{name: "rope_theta", read: floatField(func(c *Config) *float64 { return &c.RopeTheta }, aboveOne)},
	{name: "compress_rope_theta", read: floatField(func(c *Config) *float64 { return &c.CompressRopeTheta }, aboveOne)},
	{name: "max_position_embeddings", read: intField(func(c *Config) *int { return &c.MaxPositions }, 1, maxTokens)},
	{name: "rope_scaling", read: objectField(yarnFields)},

	{name: "tie_word_embeddings", read: oneBool[Config](false, "the head has weights of its own")},
	{name: "bos_token_id", read: func(c *Config, name string, v any) error {
		id, err := asInt(name, v, 0, maxVocab-1)
		c.BOS = int32(id)
		return err
	}},
	{name: "eos_token_id", read: func(c *Config, name string, v any) (err error) {
		c.EOS, err = asTokenIDs(name, v)
		return err
	}},

	{name: "expert_dtype", read: oneString[Config]("fp4", "fp8 experts are not covered"),
		absent: `is absent, which means fp8 experts; only "fp4" is covered`},
	{name: "quantization_config", read: objectField(quantFields)},
}

// yarnFields is the content of rope_scaling. The reference applies no mscale,
// so that name is unknown here on purpose.
var yarnFields = []jsonField[Config]{
	{name: "type", read: oneString[Config]("yarn", "no other rope scaling is covered")},
	{name: "factor", read: floatField(func(c *Config) *float64 { return &c.Yarn.Factor }, atLeastOne)},
	{name: "original_max_position_embeddings", read: intField(func(c *Config) *int { return &c.Yarn.Orig }, 1, maxTokens)},
	{name: "beta_fast", read: floatField(func(c *Config) *float64 { return &c.Yarn.BetaFast }, positive)},
	{name: "beta_slow", read: floatField(func(c *Config) *float64 { return &c.Yarn.BetaSlow }, positive)},
}

// quantFields is the content of quantization_config: one scheme is covered.
var quantFields = []jsonField[Config]{
	{name: "quant_method", read: oneString[Config]("fp8", "no other method is covered")},
	{name: "fmt", read: oneString[Config]("e4m3", "no other fp8 format is covered")},
	{name: "scale_fmt", read: oneString[Config]("ue8m0", "scales must be powers of two")},
	{name: "activation_scheme", read: oneString[Config]("dynamic", "stored activation scales are not covered")},
	{name: "weight_block_size", read: func(_ *Config, name string, v any) error {
		n, err := asInts(name, v, 1, maxSize)
		if err == nil && (len(n) != 2 || n[0] != quantBlock || n[1] != quantBlock) {
			err = fieldErrorf(name, "is %v, only [%d %d] is covered", n, quantBlock, quantBlock)
		}
		return err
	}},
}

// configIgnored lists the fields of config.json that are read over, each with
// the reason why that is right.
var configIgnored = []ignoredField{
	{"architectures", "names a Python class; model_type decides"},
	{"auto_map", "names Python files; none is run"},
	{"torch_dtype", "every tensor of the checkpoint states its own dtype"},
	{"dtype", "newer spelling of torch_dtype"},
	{"transformers_version", "says what wrote the file"},
	{"initializer_range", "training only"},
	{"use_cache", "switches the cache of the Python model; Kiln always keeps one"},
	{"pad_token_id", "padding rows carry slot -1, no token stands for them"},
}

// readRatios reads compress_ratios; its length is checked by configRules, when
// the layer counts are known.
func readRatios(c *Config, name string, v any) error {
	ratios, err := asInts(name, v, 0, maxTokens)
	if err != nil {
		return err
	}
	for i, r := range ratios {
		if r != 0 && r != 4 && r != 128 {
			return fieldErrorf(fmt.Sprintf("%s[%d]", name, i), "is %d, want 0, 4 or 128", r)
		}
	}
	c.Ratios = ratios
	return nil
}

// configRules are the conditions between fields, and those on one field that
// are more than a range. check returns what is wrong, or "".
var configRules = []struct {
	field string
	check func(c *Config) string
}{
	{"hidden_size", func(c *Config) string { return multipleOf(c.Hidden, quantBlock, "it is quantised in such blocks") }},
	{"q_lora_rank", func(c *Config) string {
		return multipleOf(c.QRank, quantBlock, "the input of wq_b is quantised in such blocks")
	}},
	{"moe_intermediate_size", func(c *Config) string {
		return multipleOf(c.Inter, quantBlock, "the input of w2 is quantised in such blocks")
	}},
	{"o_lora_rank", func(c *Config) string {
		if n := c.OGroups * c.ORank; n%quantBlock != 0 {
			return fmt.Sprintf("times o_groups is %d, not a multiple of %d (the input of wo_b is quantised in such blocks)", n, quantBlock)
		}
		return ""
	}},
	{"num_hash_layers", func(c *Config) string { return atMost(c.HashLayers, c.Layers, "num_hidden_layers") }},
	{"num_experts_per_tok", func(c *Config) string { return atMost(c.TopK, c.Experts, "n_routed_experts") }},
	{"compress_ratios", func(c *Config) string {
		if want := c.Layers + c.NextN; len(c.Ratios) != want {
			return fmt.Sprintf("has %d entries, want %d (num_hidden_layers + num_nextn_predict_layers)", len(c.Ratios), want)
		}
		// The MTP block keeps a window cache only; the checkpoints and the
		// reference agree, so anything else has no meaning to follow.
		if c.NextN == 1 && c.Ratios[c.Layers] != 0 {
			return fmt.Sprintf("ends in %d for the MTP block, only 0 is covered", c.Ratios[c.Layers])
		}
		return ""
	}},
	{"o_groups", func(c *Config) string {
		if c.Heads%c.OGroups != 0 {
			return fmt.Sprintf("is %d, which does not divide num_attention_heads, %d", c.OGroups, c.Heads)
		}
		return ""
	}},
	{"qk_rope_head_dim", func(c *Config) string {
		if c.RopeDim%2 != 0 {
			return fmt.Sprintf("is %d, which is odd; dims are rotated in pairs", c.RopeDim)
		}
		return atMost(c.RopeDim, c.HeadDim, "head_dim")
	}},
	{"head_dim", func(c *Config) string {
		if n := c.HeadDim - c.RopeDim; n%kvBlock != 0 {
			return fmt.Sprintf("less qk_rope_head_dim is %d, not a multiple of %d (KV is quantised in such blocks)", n, kvBlock)
		}
		return ""
	}},
	{"index_head_dim", func(c *Config) string {
		switch {
		case c.IndexDim&(c.IndexDim-1) != 0:
			return fmt.Sprintf("is %d, not a power of two (it is Hadamard-transformed)", c.IndexDim)
		case c.IndexDim < c.RopeDim:
			return fmt.Sprintf("is %d, below qk_rope_head_dim, %d", c.IndexDim, c.RopeDim)
		}
		return multipleOf(c.IndexDim, indexBlock, "the indexer is quantised in such blocks")
	}},
	{"rope_scaling.beta_slow", func(c *Config) string {
		if c.Yarn.BetaSlow > c.Yarn.BetaFast {
			return fmt.Sprintf("is %v, above beta_fast, %v", c.Yarn.BetaSlow, c.Yarn.BetaFast)
		}
		return ""
	}},
	{"bos_token_id", func(c *Config) string { return atMost(int(c.BOS), c.Vocab-1, "vocab_size - 1") }},
	{"eos_token_id", func(c *Config) string {
		for _, id := range c.EOS {
			if msg := atMost(int(id), c.Vocab-1, "vocab_size - 1"); msg != "" {
				return msg
			}
		}
		return ""
	}},
}

// multipleOf returns "" when n is a multiple of block, else what is wrong.
func multipleOf(n, block int, why string) string {
	if n%block == 0 {
		return ""
	}
	return fmt.Sprintf("is %d, not a multiple of %d (%s)", n, block, why)
}

// atMost returns "" when n <= limit, else what is wrong.
func atMost(n, limit int, of string) string {
	if n <= limit {
		return ""
	}
	return fmt.Sprintf("is %d, above %s, %d", n, of, limit)
}

// LoadConfig reads and checks config.json in the model folder dir.
func LoadConfig(dir string) (*Config, error) {
	file := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read model config: %w", err)
	}
	return ParseConfig(data, file)
}

// ParseConfig reads and checks the text of a config.json; file names it in
// errors. Unknown, missing, repeated and ill-typed fields, values that are not
// covered, and fields that contradict each other are errors naming the field.
func ParseConfig(data []byte, file string) (*Config, error) {
	obj, err := parseJSONObject(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c := new(Config)
	if err := readFields(c, obj, configFields, configIgnored); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, rule := range configRules {
		if msg := rule.check(c); msg != "" {
			return nil, fmt.Errorf("%s: %w", file, fieldErrorf(rule.field, "%s", msg))
		}
	}
	return c, nil
}
