package kernels_test

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// matrixRows are the row counts about the tiles of matrix units: the forms for few
// rows, for those of a step, and for more.
func matrixRows() []int {
	if long {
		return []int{1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 145}
	}
	return []int{16, 17, 129}
}

// tiled are the products that matrixCases has cases of; the other ops with forms for
// matrix units have theirs in matrix_emulated_test.go.
var tiled = map[string]bool{
	"linear": true, "linear2": true, "linear3": true, "linear4": true, "grouped_linear": true, "block_linear": true, "split_linear": true,
	"expert": true, "moe_experts": true, "moe_experts_add": true,
}

// matrixCases are cases of the products about the tiles of matrix units: of rows and
// columns. They are many results, so that no seed keeps all sums from cancelling:
// operands are positive (cases.positive).
func matrixCases(c *cases) {
	const tile = target.MatrixTile
	counts := c.counts
	if counts == nil {
		counts = matrixRows()
	}
	for _, m := range counts {
		few := m <= 33
		switch c.def.Name {
		case "linear":
			for _, n := range []int{1, tile - 1, tile, tile + 1, 65} {
				if few || n == tile+1 {
					c.add(ir.A("to", ir.BF16), c.spoiled(c.bf16(1, m, 136), m), c.bf16(1, n, 136))
				}
			}
			c.add(ir.A("to", ir.F32), c.bf16(1, m, 72), c.spoiled(c.bf16(1, 33, 72), 33))
		case "linear2", "linear3", "linear4":
			for _, sizes := range joinedSizes(len(c.def.Results)) {
				if few {
					c.add(ir.A("sizes", sizes, "to", ir.BF16), c.spoiled(c.bf16(1, m, 136), m), c.bf16(1, sumOf(sizes), 136))
				}
			}
			last := []int{tile, tile + 1, tile - 1, 64}[:len(c.def.Results)]
			c.add(ir.A("sizes", last, "to", ir.F32), c.bf16(1, m, 72), c.bf16(1, sumOf(last), 72))
		case "grouped_linear":
			c.add(nil, c.spoiled(c.bf16(1, m, 2, 136), m), c.bf16(1, 2, tile+1, 136))
			if few {
				c.add(nil, c.bf16(1, m, 3, 72), c.bf16(1, 3, 65, 72))
			}
		case "block_linear", "split_linear":
			for _, w := range []*eval.Tensor{c.w8(4*tile+1, 256), c.w4(4*tile-1, 256), c.w4(4*tile+1, 384), c.w8(4*tile-1, 384)} {
				n, k := w.Shape[0], w.Shape[1]
				for _, act := range []int{0, 64, 128} {
					if act != 128 && !few {
						continue
					}
					attrs := ir.A("act_block", act)
					if c.def.Name == "split_linear" {
						attrs = append(attrs, ir.A("sizes", []int{n - 5, 5})...)
					}
					c.add(attrs, c.spoiled(c.bf16(1, m, k), m), w)
				}
			}
		case "expert":
			for _, w := range []func(...int) *eval.Tensor{c.w8, c.w4} {
				c.add(ir.A("limit", 10.0), c.spoiled(c.bf16(1, m, 256), m), w(128, 256), w(128, 256), w(256, 128), c.f32(1, m, 1))
			}
		case "moe_experts", "moe_experts_add":
			c.matrixExperts(m)
		}
	}
}

// matrixExperts has tokens that choose at random, tokens that all choose the same
// experts, one that chooses none, and none that chooses any.
func (c *cases) matrixExperts(m int) {
	const experts, d, inner = 8, 128, 128
	weights := []func(...int) *eval.Tensor{c.w8, c.w4}
	if c.def.Name == "moe_experts_add" && !long {
		weights = weights[1:]
	}
	for _, w := range weights {
		w1, w3, w2 := w(experts, inner, d), w(experts, inner, d), w(experts, d, inner)
		same := c.rows(experts, m, 2)
		for i := range same.I {
			same.I[i] = int64(6 - 5*(i%2))
		}
		for _, ids := range []*eval.Tensor{c.rows(experts, m, 2), without(c.rows(experts, m, 3)), same, none(same)} {
			if m > 33 && ids != same {
				continue
			}
			args := []*eval.Tensor{c.spoiled(c.bf16(1, m, d), m), w1, w3, w2, ids, c.f32(1, m, ids.Shape[1])}
			if c.def.Name == "moe_experts_add" {
				args = append(slices.Clone(args), c.bf16(40, m, d))
			}
			c.add(ir.A("limit", 10.0), args...)
		}
	}
}
