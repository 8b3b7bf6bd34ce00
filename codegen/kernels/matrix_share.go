package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
)

// Tiles of few tokens' pairs with NVIDIA's warps. A warp has a lane for each token: with
// votes all groups find by themselves which pairs have the expert of the pair that they
// begin with, and no launch comes before.

// fewestShared is the number of tokens from which pairs of one expert share a tile. Fewer
// seldom choose the same one.
const fewestShared = 2

// sharedTileIn is tileIn of the tile that pair i begins: it has the pairs of up to share
// tokens that chose the expert. The tile is empty unless pair i is the first of its token
// with that expert, and a multiple of share tokens before chose it.
func (r *routing) sharedTileIn(k *kernel.K, ids, weights *kernel.Buf, i, tokens kernel.V, body func(t routedTile)) {
	i32 := func(x kernel.V) kernel.V { return k.Convert(x, kernel.I32) }
	choices, lane := k.Int(r.choices), k.WaveLane()
	token, id := k.UDiv(i, choices), ids.Load(i)
	in := k.Cmp(kernel.LT, lane, tokens)
	from := k.Mul(k.Select(in, lane, k.Int(0)), choices)
	first, hit := k.Int32(0), k.Cmp(kernel.LT, k.Int32(0), k.Int32(0))
	same, given := make([]kernel.V, r.choices), make([]kernel.V, r.choices)
	for j := r.choices - 1; j >= 0; j-- {
		same[j] = k.Cmp(kernel.EQ, ids.Load(k.Add(from, k.Int(j))), id)
		given[j] = weights.Load(k.Add(from, k.Int(j)))
		first, hit = k.Select(same[j], k.Int32(j), first), k.Or(hit, same[j])
	}
	hit = k.And(k.And(hit, in), k.Cmp(kernel.GE, id, k.Int32(0)))
	// of is what the lane of a token has, in all lanes.
	of := func(token, x kernel.V) kernel.V {
		return k.WaveSum(k.Select(k.Cmp(kernel.EQ, i32(lane), token), x, k.Int32(0)))
	}
	own := k.Shl(k.Int32(1), i32(token))
	mask := k.WaveSum(k.Select(hit, k.Shl(k.Int32(1), i32(lane)), k.Int32(0)))
	before := k.CountBits(k.And(mask, k.Sub(own, k.Int32(1))))
	leads := k.And(k.Cmp(kernel.NE, k.And(mask, own), k.Int32(0)), k.Cmp(kernel.EQ, k.URem(before, k.Int32(r.share)), k.Int32(0)))
	leads = k.And(leads, k.Cmp(kernel.EQ, of(i32(token), first), i32(k.URem(i, choices))))
	k.If(leads, func() {
		rest, count := k.And(mask, k.Sub(k.Int32(0), own)), k.Int32(1)
		tokenOf, pairs := []kernel.V{i32(token)}, []kernel.V{i}
		for range r.share - 1 {
			rest = k.And(rest, k.Sub(rest, k.Int32(1)))
			some := k.Cmp(kernel.NE, rest, k.Int32(0))
			count = k.Add(count, i32(some))
			next := k.FirstBit(k.Select(some, rest, own)) // the first again, where there is no other
			tokenOf = append(tokenOf, next)
			pairs = append(pairs, k.Convert(k.Add(k.Mul(next, k.Int32(r.choices)), of(next, first)), kernel.I64))
		}
		t := routedTile{expert: k.Convert(id, kernel.I64), count: k.Convert(count, kernel.I64)}
		t.pair = func(row kernel.V) (pair, own kernel.V) {
			return selectOf(k, row, pairs), k.Cmp(kernel.LT, row, t.count)
		}
		var rowWeights []kernel.V
		t.behind = func() {
			weight := selectOf(k, k.Convert(first, kernel.I64), given)
			for j := range r.choices {
				later := k.And(same[j], k.Cmp(kernel.GT, k.Int32(j), first))
				weight = k.Add(weight, k.Select(later, given[j], k.Float(0)))
			}
			for _, token := range tokenOf {
				rowWeights = append(rowWeights, k.Bits(of(token, k.Bits(weight))))
			}
		}
		t.weight = func(row kernel.V) kernel.V { return selectOf(k, row, rowWeights) }
		body(t)
	})
}

// selectOf is number i of list, the first if there is no such.
func selectOf(k *kernel.K, i kernel.V, list []kernel.V) kernel.V {
	x := list[0]
	for j := 1; j < len(list); j++ {
		x = k.Select(k.Cmp(kernel.EQ, i, k.Int(j)), list[j], x)
	}
	return x
}

// stageTile has a group keep the rows of x of a tile of few tokens: those that there are.
// Lanes of other rows read the first.
func (p *matrixRouted) stageTile(k *kernel.K, x *matrixRows, t routedTile) {
	if p.share == 1 {
		x.staged = []kernel.V{k.Int(0)}
		return
	}
	for i := range p.share {
		x.stage = append(x.stage, x.row(k.Int(i)))
		x.there = append(x.there, k.Cmp(kernel.LT, k.Int(i), t.count))
	}
	sub := unitOf(p.t).sub(k, k.Lane())
	_, own := t.pair(sub)
	x.staged = []kernel.V{k.Select(own, sub, k.Int(0))}
}
