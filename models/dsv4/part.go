package dsv4

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// Part is a piece of the model with its own graph, for comparison with goldens
// and for measuring one layer.
type Part string

// The parts. Inputs and outputs besides the index inputs of Build:
const (
	AttentionPart Part = "attention" // x [T,D] -> y [T,D], one attention sublayer without norm and hc
	MoEPart       Part = "moe"       // x [T,D] -> y [T,D], one expert sublayer without norm and hc
	BlockPart     Part = "block"     // h [T,C,D] -> h [T,C,D], one layer
	HeadPart      Part = "head"      // h [T,C,D] -> logits [O,V]
	DraftHeadPart Part = "draft_head"
)

// Parts lists the parts.
var Parts = []Part{AttentionPart, MoEPart, BlockPart, HeadPart, DraftHeadPart}

// BuildPart makes the graph of a part of a layer, with the symbols of Prefill.
// Layer Layers is the MTP block; the heads ignore the layer.
func BuildPart(c *Config, part Part, layer int, o Options) (*ir.Graph, error) {
	if layer < 0 || layer >= len(c.Ratios) {
		return nil, fmt.Errorf("part %s: layer %d is outside 0..%d", part, layer, len(c.Ratios)-1)
	}
	if part == DraftHeadPart && c.NextN == 0 {
		return nil, fmt.Errorf("part %s: the model has no MTP block (num_nextn_predict_layers is 0)", part)
	}
	m, err := newModel(c, string(part), o)
	if err != nil {
		return nil, err
	}
	var ratios []int
	if part == AttentionPart || part == BlockPart {
		ratios = c.Ratios[layer : layer+1]
	}
	if err := m.symbols(Prefill, ratios); err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("layers.%d", layer)
	if layer == c.Layers {
		prefix = "mtp.0"
	}
	b, d := m.b, ir.Int(c.Hidden)
	x := func() *ir.Value { return b.Input("x", ir.T(ir.BF16, m.t, d)) }
	h := func() *ir.Value { return b.Input("h", ir.T(ir.BF16, m.t, ir.Int(c.HC), d)) }
	b.At(prefix)
	switch part {
	case AttentionPart:
		b.Output("y", m.attention(x(), prefix, c.Ratios[layer]))
	case MoEPart:
		b.Output("y", m.moe(x(), prefix+".ffn", layer < c.HashLayers))
	case BlockPart:
		b.Output("h", m.block(h(), prefix, layer))
	case HeadPart:
		b.Output("logits", m.head(h(), "hc_head", "norm"))
	case DraftHeadPart:
		b.Output("logits", m.head(h(), "mtp.0.hc_head", "mtp.0.norm"))
	default:
		return nil, fmt.Errorf("unknown part %q: want one of %v", part, Parts)
	}
	return m.finish()
}
