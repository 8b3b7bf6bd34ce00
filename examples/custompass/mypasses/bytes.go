package mypasses

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

var bytesPerLayer = passes.Pass{
	Name:  "bytes-per-layer",
	Doc:   "Says how many bytes of weights each layer reads; changes nothing.",
	Graph: sayBytes,
}

// total is what one layer has.
type total struct {
	layer   string
	weights int
	bytes   int64
}

// sayBytes leaves one remark per layer, at the layer's first op.
func sayBytes(c *passes.Context, g *ir.Graph) (*ir.Graph, error) {
	totals, err := bytesOf(g)
	if err != nil {
		return nil, err
	}
	for _, t := range totals {
		name := t.layer
		if name == "" {
			name = "outside of the layers"
		}
		at := slices.IndexFunc(g.Ops, func(op *ir.Op) bool { return layerOf(op.Loc) == t.layer })
		c.Remark(passes.Analysis, g.Ops[max(at, 0)], "%s: %d bytes in %d weights", name, t.bytes, t.weights)
	}
	return g, nil // the graph given: nothing changed
}

// bytesOf adds up the weights of a graph, layers in the order of their first one.
func bytesOf(g *ir.Graph) ([]total, error) {
	var out []total
	for _, w := range g.Weights {
		data, scales, ok := w.Type.Bytes()
		if !ok {
			return nil, fmt.Errorf("weight %s : %s has no fixed size", w, w.Type)
		}
		layer := layerOf(strings.TrimPrefix(w.Name, passes.PackedPrefix))
		i := slices.IndexFunc(out, func(t total) bool { return t.layer == layer })
		if i < 0 {
			i = len(out)
			out = append(out, total{layer: layer})
		}
		out[i].weights++
		out[i].bytes += data + scales
	}
	return out, nil
}

// layerOf is "layers.3" for "layers.3.attn.wq_a", "mtp.0" for the MTP block, and ""
// for what belongs to no layer. The locs of ops and the names of weights begin alike.
func layerOf(name string) string {
	parts := strings.SplitN(name, ".", 3)
	if len(parts) < 3 {
		return ""
	}
	if _, err := strconv.Atoi(parts[1]); err != nil {
		return ""
	}
	return parts[0] + "." + parts[1]
}
