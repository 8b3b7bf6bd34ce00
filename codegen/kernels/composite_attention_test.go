package kernels_test

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Row sets and attention.

func historyRowsCases(c *cases) {
	pos, req := i32s(c.t, 20, 21, 22, 0, 1, 7, -1), i32s(c.t, 0, 0, 0, 1, 1, 2, -1)
	rings := []*eval.Tensor{i32s(c.t, 3, 0, -1), i32s(c.t, -1, -1, -1), i32s(c.t, 0, 1, 2)}
	for _, span := range widths[:8] {
		for _, size := range []int{1, 24, 31} {
			attrs := ir.A("span", span, "size", size)
			for _, ring := range rings {
				for _, rows := range []*eval.Tensor{i32s(c.t, 0, 1, 2, 3, 4, 5, 6, -1), i32s(c.t, 2, -1), i32s(c.t, 4), i32s(c.t, -1, -1, -1)} {
					c.add(attrs, rows, pos, req, ring)
				}
			}
		}
	}
	c.add(ir.A("span", 9, "size", 24), i32s(c.t, 0, -1), i32s(c.t, 0), i32s(c.t, 0), i32s(c.t, 5))
	rows := i32s(c.t, 0, 1)
	c.add(ir.A("span", 9, "size", 24), rows, none(pos), none(req), rings[0])
	c.add(ir.A("span", 9, "size", 24), rows, pos, none(req), rings[0])
}

func entryRowsCases(c *cases) {
	pos, req := i32s(c.t, 200, 3, 4, -1, 383, 0, 127, 128), i32s(c.t, 0, 1, 1, -1, 1, 0, 1, 1)
	for _, s := range []struct{ ratio, per int }{{1, 3}, {4, 32}, {128, 1}, {128, 7}} {
		attrs := ir.A("ratio", s.ratio, "per_page", s.per)
		for _, p := range []int{1, 3, 5} {
			pages := c.rows(9, 2, p)
			for _, table := range []*eval.Tensor{pages, without(pages), none(pages)} {
				c.add(attrs, pos, req, table)
			}
			c.add(attrs, i32s(c.t, 300), i32s(c.t, 1), pages)
			c.add(attrs, none(pos), none(req), pages)
		}
	}
}

func groupStartCases(c *cases) {
	pos := i32s(c.t, 0, 1, 2, 3, 130, 131, -1)
	for _, ratio := range []int{1, 4, 128} {
		for _, rows := range []*eval.Tensor{i32s(c.t, 3, -1, 5), i32s(c.t, 5), i32s(c.t, -1, -1)} {
			c.add(ir.A("ratio", ratio), rows, pos)
		}
	}
}

func compressCases(c *cases) {
	for _, overlap := range []bool{false, true} {
		attrs := ir.A("overlap", overlap)
		for _, w := range []int{2, 6, 14, 16, 18, 150, 257} {
			if overlap && w%2 != 0 {
				continue
			}
			for _, s := range []int{2, 8, 14} {
				kPool, gPool, k, g := c.f32(2, 40, w), c.f32(2, 40, w), c.f32(2, 9, w), c.f32(2, 9, w)
				for _, e := range []int{1, 3, 5} {
					old, own := c.rows(40, e, s), c.rows(9, e, s)
					c.add(attrs, kPool, gPool, k, g, old, own)
					c.add(attrs, kPool, gPool, k, g, without(old), without(own)) // no members: zeros
					c.add(attrs, kPool, gPool, k, g, old, none(own))
					c.add(attrs, kPool, gPool, k, g, none(old), none(own))
				}
				old, own := c.rows(40, 5, s), c.rows(9, 5, s)
				c.add(attrs, c.spoiled(kPool, 40), gPool, k, g, old, none(own))
				c.add(attrs, kPool, c.spoiled(gPool, 40), k, g, old, none(own))
				c.add(attrs, kPool, gPool, c.spoiled(k, 9), g, old, own)
				c.add(attrs, kPool, gPool, k, c.spoiled(g, 9), old, own)
			}
		}
	}
}

func indexerScoresCases(c *cases) {
	for _, n := range c.around(kernels.ScoreChunk) {
		for _, s := range []struct{ t, h, d int }{{3, 4, 128}, {1, 1, 7}, {5, 5, 9}, {3, 64, 1}} {
			q, w, keys, rows := c.bf16(1, s.t, s.h, s.d), c.bf16(1, s.t, s.h), c.bf16(1, 50, s.d), c.rows(50, s.t, n)
			c.add(nil, q, w, keys, rows)
			c.add(nil, q, w, keys, without(rows)) // nothing but -inf
			c.add(nil, q, w, keys, none(rows))
			c.add(nil, c.spoiled(q, s.t), w, keys, rows)
			c.add(nil, q, c.spoiled(w, s.t), keys, rows)
			c.add(nil, q, w, c.spoiled(keys, 50), rows)
		}
	}
	// Equal keys have equal scores, of which topk takes the lower index.
	keys := c.bf16(1, 50, 128)
	for i := range keys.F {
		keys.F[i] = keys.F[i%128]
	}
	args := []*eval.Tensor{c.bf16(1, 3, 4, 128), c.bf16(1, 3, 4), keys, without(c.rows(50, 3, 77))}
	var in []*ir.Value
	for _, x := range args {
		in = append(in, c.input(x))
	}
	c.output("topk of equal scores", exact, c.b.Op1("topk", ir.A("k", 8), c.b.Op1("indexer_scores", nil, in...)))
	for _, f := range []ir.RowFormat{indexFormat(128), {To: ir.F4E2M1, Block: 2, Dims: 4, D: 9}} {
		q, w, keys, rows := c.bf16(1, 3, 4, f.D), c.bf16(1, 3, 4), c.bf16(1, 50, f.D), c.rows(50, 3, 33)
		c.addPacked(nil, f, 1e-4, []int{2}, q, w, keys, rows)
		c.addPacked(nil, f, 1e-4, []int{2}, q, w, c.spoiled(keys, 50), without(rows))
	}
}

type attentionShape struct{ t, h int }

// attentionShapes are the numbers of tokens and heads for a width: each number of
// heads is another kernel, so that most widths have one.
func attentionShapes(d int) []attentionShape {
	list := []attentionShape{{1, 3}, {3, 3}, {5, 3}}
	if d == 33 {
		list = append(list, attentionShape{3, 1}, attentionShape{3, 4})
	}
	return list
}

func attentionCases(c *cases) {
	for _, d := range []int{1, 7, 31, 32, 33, 65, 128} {
		attrs := ir.A("scale", math.Pow(float64(d), -0.5))
		for _, s := range attentionShapes(d) {
			q, sink := c.bf16(1, s.t, s.h, d), c.f32(1, s.h)
			kv, own := c.bf16(1, 50, d), c.bf16(1, 5, d)
			rows, few := c.rows(50, s.t, 33), c.rows(5, s.t, 1+c.r.IntN(9))
			c.add(attrs, q, sink, kv, rows)
			c.add(attrs, q, sink, kv, rows, own, few)
			c.add(attrs, q, sink, own, few, kv, rows, own, none(few))
			c.add(attrs, q, sink, kv, without(rows), own, without(few)) // a query that sees nothing: zeros
			c.add(attrs, q, sink, kv, none(rows))
			c.add(attrs, c.spoiled(q, s.t), sink, kv, rows)
			c.add(attrs, q, sink, c.spoiled(kv, 50), rows)
			// What no index names does not matter.
			c.add(attrs, q, sink, c.spoiled(kv, 50), none(rows), own, few)
			for _, x := range bad {
				odd := sink.Clone()
				odd.F[0] = x
				c.add(attrs, q, odd, kv, rows)
				c.add(attrs, q, odd, kv, none(rows))
			}
		}
	}
	// Scores so large that all the weight is on one row, and equal ones.
	c.add(ir.A("scale", 100.0), c.bf16(1, 3, 4, 64), c.f32(1, 4), c.bf16(1, 50, 64), c.rows(50, 3, 33))
	c.add(ir.A("scale", 1.0), c.bf16(0, 3, 4, 64), c.f32(1, 4), c.bf16(1, 50, 64), c.rows(50, 3, 33))
	for _, f := range []ir.RowFormat{kvFormat(128), kvFormat(512), {To: ir.F8E4M3, Block: 2, Dims: 16, D: 33}} {
		attrs := ir.A("scale", math.Pow(float64(f.D), -0.5))
		q, sink, kv, own := c.bf16(1, 3, 3, f.D), c.f32(1, 3), c.bf16(1, 50, f.D), c.bf16(1, 5, f.D)
		rows, few := c.rows(50, 3, 33), c.rows(5, 3, 4)
		c.addPacked(attrs, f, 1e-4, []int{2, 4, 6}, q, sink, own, few, kv, rows, own, none(few))
		c.addPacked(attrs, f, 1e-4, []int{2}, q, sink, c.spoiled(kv, 50), rows)
	}
}
