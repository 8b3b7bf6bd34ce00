package dsv4

import (
	"fmt"
	"slices"
)

// TensorSpec is a tensor that a checkpoint must hold.
type TensorSpec struct {
	Name  string
	DType string // as safetensors spells it: F32, BF16, F8_E4M3, F8_E8M0, I8, I64
	Shape []int  // row-major, [out, in] for matrices; in elements of DType
}

// Bytes returns the size of the tensor's data in bytes.
func (t TensorSpec) Bytes() int64 {
	n := tensorDTypeBytes[t.DType]
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

var tensorDTypeBytes = map[string]int64{"F32": 4, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "I64": 8}

// tensorBlock is a transformer block, as far as its tensors depend on it.
type tensorBlock struct {
	prefix string // "layers.N." or "mtp.0."
	ratio  int    // of Config.Ratios
	hash   bool   // routes by token id
}

// tensorRow is a line of the checkpoint table. dtype is that of safetensors, or
// one of the two quantised forms, for which dims are those of the matrix and
// Tensors adds the companion X.scale to X.weight.
type tensorRow struct {
	name  string
	dtype string
	dims  func(c *Config, b tensorBlock) []int
	where func(b tensorBlock) bool // nil: everywhere
}

// Quantised forms of a matrix [N, K].
const (
	// fp8Weight is F8_E4M3 [N, K] with scale F8_E8M0 [ceil(N/128), ceil(K/128)].
	fp8Weight = "fp8"
	// fp4Weight is e2m1, two elements of a row per I8: [N, K/2], with scale
	// F8_E8M0 [N, K/32].
	fp4Weight = "fp4"
)

// fp4Block is the number of elements along K that share a scale in fp4Weight.
const fp4Block = 32

func compressed(b tensorBlock) bool { return b.ratio > 0 }
func indexed(b tensorBlock) bool    { return b.ratio == 4 }
func hashed(b tensorBlock) bool     { return b.hash }
func scored(b tensorBlock) bool     { return !b.hash }

// compressorWidth is co*hd: at ratio 4 groups overlap, and each token has one
// half for its own group and one for the next.
func compressorWidth(headDim, ratio int) int {
	if ratio == 4 {
		return 2 * headDim
	}
	return headDim
}

// mixes is the number of hyper-connection coefficients of a block: pre and post
// per stream, and the stream-to-stream matrix.
func mixes(c *Config) int { return (2 + c.HC) * c.HC }

var embedTensors = []tensorRow{
	{name: "embed.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Vocab, c.Hidden} }},
}

var headTensors = []tensorRow{
	{name: "norm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden} }},
	{name: "hc_head_fn", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{c.HC, c.HC * c.Hidden} }},
	{name: "hc_head_base", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{c.HC} }},
	{name: "hc_head_scale", dtype: "F32", dims: func(*Config, tensorBlock) []int { return []int{1} }},
}

var logitTensors = []tensorRow{
	{name: "head.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Vocab, c.Hidden} }},
}

// mtpTensors precede the block of an MTP layer; headTensors under its prefix
// follow it. Embedding and head are those of the main model.
var mtpTensors = []tensorRow{
	{name: "enorm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden} }},
	{name: "hnorm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden} }},
	{name: "e_proj.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden, c.Hidden} }},
	{name: "h_proj.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden, c.Hidden} }},
}

var blockTensors = []tensorRow{
	{name: "hc_attn_fn", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{mixes(c), c.HC * c.Hidden} }},
	{name: "hc_attn_base", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{mixes(c)} }},
	{name: "hc_attn_scale", dtype: "F32", dims: func(*Config, tensorBlock) []int { return []int{3} }},
	{name: "attn_norm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden} }},

	{name: "attn.wq_a.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.QRank, c.Hidden} }},
	{name: "attn.q_norm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.QRank} }},
	{name: "attn.wq_b.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Heads * c.HeadDim, c.QRank} }},
	{name: "attn.wkv.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.HeadDim, c.Hidden} }},
	{name: "attn.kv_norm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.HeadDim} }},
	{name: "attn.attn_sink", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Heads} }},
	{name: "attn.wo_a.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int {
		return []int{c.OGroups * c.ORank, c.Heads * c.HeadDim / c.OGroups}
	}},
	{name: "attn.wo_b.weight", dtype: fp8Weight, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden, c.OGroups * c.ORank} }},

	{name: "attn.compressor.wkv.weight", dtype: "BF16", where: compressed, dims: compressorMatrix},
	{name: "attn.compressor.wgate.weight", dtype: "BF16", where: compressed, dims: compressorMatrix},
	{name: "attn.compressor.ape", dtype: "F32", where: compressed, dims: func(c *Config, b tensorBlock) []int {
		return []int{b.ratio, compressorWidth(c.HeadDim, b.ratio)}
	}},
	{name: "attn.compressor.norm.weight", dtype: "BF16", where: compressed, dims: func(c *Config, _ tensorBlock) []int { return []int{c.HeadDim} }},

	{name: "attn.indexer.wq_b.weight", dtype: fp8Weight, where: indexed, dims: func(c *Config, _ tensorBlock) []int {
		return []int{c.IndexHeads * c.IndexDim, c.QRank}
	}},
	{name: "attn.indexer.weights_proj.weight", dtype: "BF16", where: indexed, dims: func(c *Config, _ tensorBlock) []int {
		return []int{c.IndexHeads, c.Hidden}
	}},
	{name: "attn.indexer.compressor.wkv.weight", dtype: "BF16", where: indexed, dims: indexerMatrix},
	{name: "attn.indexer.compressor.wgate.weight", dtype: "BF16", where: indexed, dims: indexerMatrix},
	{name: "attn.indexer.compressor.ape", dtype: "F32", where: indexed, dims: func(c *Config, b tensorBlock) []int {
		return []int{b.ratio, compressorWidth(c.IndexDim, b.ratio)}
	}},
	{name: "attn.indexer.compressor.norm.weight", dtype: "BF16", where: indexed, dims: func(c *Config, _ tensorBlock) []int { return []int{c.IndexDim} }},

	{name: "hc_ffn_fn", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{mixes(c), c.HC * c.Hidden} }},
	{name: "hc_ffn_base", dtype: "F32", dims: func(c *Config, _ tensorBlock) []int { return []int{mixes(c)} }},
	{name: "hc_ffn_scale", dtype: "F32", dims: func(*Config, tensorBlock) []int { return []int{3} }},
	{name: "ffn_norm.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Hidden} }},

	{name: "ffn.gate.weight", dtype: "BF16", dims: func(c *Config, _ tensorBlock) []int { return []int{c.Experts, c.Hidden} }},
	{name: "ffn.gate.tid2eid", dtype: "I64", where: hashed, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Vocab, c.TopK} }},
	{name: "ffn.gate.bias", dtype: "F32", where: scored, dims: func(c *Config, _ tensorBlock) []int { return []int{c.Experts} }},
	{name: "ffn.shared_experts.w1.weight", dtype: fp8Weight, dims: expertUp},
	{name: "ffn.shared_experts.w3.weight", dtype: fp8Weight, dims: expertUp},
	{name: "ffn.shared_experts.w2.weight", dtype: fp8Weight, dims: expertDown},
}

// expertTensors repeat under ffn.experts.X for every routed expert X: w1 is the
// gate, w3 the up and w2 the down projection.
var expertTensors = []tensorRow{
	{name: "w1.weight", dtype: fp4Weight, dims: expertUp},
	{name: "w3.weight", dtype: fp4Weight, dims: expertUp},
	{name: "w2.weight", dtype: fp4Weight, dims: expertDown},
}

func compressorMatrix(c *Config, b tensorBlock) []int {
	return []int{compressorWidth(c.HeadDim, b.ratio), c.Hidden}
}

func indexerMatrix(c *Config, b tensorBlock) []int {
	return []int{compressorWidth(c.IndexDim, b.ratio), c.Hidden}
}

func expertUp(c *Config, _ tensorBlock) []int   { return []int{c.Inter, c.Hidden} }
func expertDown(c *Config, _ tensorBlock) []int { return []int{c.Hidden, c.Inter} }

// Tensors returns every tensor of a checkpoint for c, in the order of the
// forward pass: embedding, layers, head, MTP. c must satisfy ParseConfig's
// conditions. A quantised weight is followed by its scale.
func Tensors(c *Config) []TensorSpec {
	var out []TensorSpec
	add := func(rows []tensorRow, b tensorBlock) {
		for _, r := range rows {
			if r.where == nil || r.where(b) {
				out = appendTensor(out, b.prefix+r.name, r.dtype, r.dims(c, b))
			}
		}
	}
	addBlock := func(b tensorBlock) {
		add(blockTensors, b)
		for x := range c.Experts {
			e := b
			e.prefix = fmt.Sprintf("%sffn.experts.%d.", b.prefix, x)
			add(expertTensors, e)
		}
	}

	add(embedTensors, tensorBlock{})
	for i := range c.Layers {
		addBlock(tensorBlock{prefix: fmt.Sprintf("layers.%d.", i), ratio: c.Ratios[i], hash: i < c.HashLayers})
	}
	add(headTensors, tensorBlock{})
	add(logitTensors, tensorBlock{})
	for i := range c.NextN {
		b := tensorBlock{prefix: fmt.Sprintf("mtp.%d.", i), ratio: c.Ratios[c.Layers+i]}
		add(mtpTensors, b)
		addBlock(b)
		add(headTensors, b)
	}
	return slices.Clip(out)
}

// appendTensor appends the tensor, or for a quantised form both of its parts.
func appendTensor(out []TensorSpec, name, dtype string, dims []int) []TensorSpec {
	switch dtype {
	case fp8Weight:
		blocks := []int{ceilDiv(dims[0], quantBlock), ceilDiv(dims[1], quantBlock)}
		return append(out, TensorSpec{name, "F8_E4M3", dims}, TensorSpec{scaleName(name), "F8_E8M0", blocks})
	case fp4Weight:
		return append(out, TensorSpec{name, "I8", []int{dims[0], dims[1] / 2}},
			TensorSpec{scaleName(name), "F8_E8M0", []int{dims[0], dims[1] / fp4Block}})
	}
	return append(out, TensorSpec{name, dtype, dims})
}

// scaleName returns X.scale for X.weight.
func scaleName(weight string) string { return weight[:len(weight)-len("weight")] + "scale" }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
