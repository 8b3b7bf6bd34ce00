//go:build gpu

package kernels_test

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// smallRows are the ops of a layer that no product is in.
func smallRows() []perfRow {
	var rows []perfRow
	add := func(name string, bytes int64, f func(g *perfGraph)) {
		rows = append(rows, perfRow{name: "small/" + name, copies: 20, bytes: bytes, add: f})
	}
	kv, index := kvFormat(512), indexFormat(128)
	packed := func(f ir.RowFormat, floor float64) ir.Attrs {
		return slices.Concat(f.Attrs(), ir.A("floor", floor, "eps", 1e-6, "packed", true))
	}
	tables := func(g *perfGraph, t int) (cos, sin *ir.Value) {
		return g.turn("cos", ir.F32, t, 32), g.turn("sin", ir.F32, t, 32)
	}
	for _, t := range []int{1, 64, 512} {
		add(fmt.Sprintf("rms_norm_rope/T%d", t), int64(t)*(1024+584), func(g *perfGraph) {
			cos, sin := tables(g, t)
			g.add("rms_norm_rope", packed(kv, 1e-4), g.turn("x", ir.BF16, t, 512), cos, sin, g.all("w", ir.BF16, 512))
		})
		add(fmt.Sprintf("head_rms_norm_rope/T%d", t), int64(t)*64*2048, func(g *perfGraph) {
			cos, sin := tables(g, t)
			g.add("head_rms_norm_rope", ir.A("eps", 1e-6), g.turn("x", ir.BF16, t, 64, 512), cos, sin)
		})
		add(fmt.Sprintf("rope/T%d", t), int64(t)*64*2048, func(g *perfGraph) {
			cos, sin := tables(g, t)
			g.add("rope", ir.A("inverse", true), g.turn("x", ir.BF16, t, 64, 512), cos, sin)
		})
		add(fmt.Sprintf("rope_row/T%d", t), int64(t)*64*512, func(g *perfGraph) {
			cos, sin := tables(g, t)
			g.add("rope_row", slices.Concat(index.Attrs(), ir.A("hadamard", true, "floor", 6*0x1p-126)), g.turn("x", ir.BF16, t, 64, 128), cos, sin)
		})
		add(fmt.Sprintf("rms_norm_quant/T%d", t), int64(t)*1536*4, func(g *perfGraph) {
			g.add("rms_norm_quant", ir.A("eps", 1e-6, "act_block", 128), g.turn("x", ir.BF16, t, 1536), g.all("w", ir.BF16, 1536))
		})
		add(fmt.Sprintf("hc_head/T%d", t), int64(t)*(4*4096*2+4096*2)+4*4*4*4096, func(g *perfGraph) {
			g.add("hc_head", ir.A("eps", 1e-6, "norm_eps", 1e-6), g.turn("h", ir.BF16, t, 4, 4096), g.all("fn", ir.F32, 4, 4*4096), g.all("scale", ir.F32, 1), g.all("base", ir.F32, 4))
		})
	}
	for _, s := range []struct{ entries, span, d int }{{1, 8, 512}, {1, 128, 512}, {128, 8, 512}, {128, 8, 128}, {4, 128, 512}} {
		w := s.d
		if s.span == 8 {
			w *= 2
		}
		add(fmt.Sprintf("compress/%dx%d/E%d", s.span, s.d, s.entries), int64(s.entries)*int64(s.span)*int64(s.d)*8, func(g *perfGraph) {
			ring, t := s.span+3, s.entries*4
			g.add("compress", ir.A("overlap", s.span == 8), g.turn("kp", ir.F32, ring, w), g.turn("gp", ir.F32, ring, w), g.turn("k", ir.F32, t, w), g.turn("g", ir.F32, t, w),
				g.rowsBelow(ring, "old", s.entries, s.span), g.rowsBelow(t, "own", s.entries, s.span))
		})
	}
	return rows
}
