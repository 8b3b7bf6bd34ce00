package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Routing: which rows of x an expert's weights are multiplied with. A pair is a
// token and one of its choices. For few tokens every pair has a tile: most have an
// expert to themselves. Pairs of one expert may share that of the first of them; the
// tiles of the others are empty then. For more tokens, a tile is some of an expert's
// pairs, so that its weights are read once for all of them. The number of tiles is
// known on the device only; the grid is for the most that there can be.

// routing is the pairs of a moe_experts op, and its tiles.
type routing struct {
	ids, weights    Ref // i32 and f32 [tokens, choices]
	tokens, choices int
	experts         int

	// Of tiles with several pairs: an expert's pairs in ascending order, their number,
	// and of each tile the expert, or -1, and which of its pairs is the tile's first.
	lists, counts Ref // i32 [experts, tokens], [experts]
	expert, first Ref // i32 [tiles]
	tiles         int

	share int // of few tokens: how many pairs of an expert a tile has at most
}

// single reports whether tokens are few: then each tile has a pair that it begins with.
func (r *routing) single() bool { return r.tokens <= maxSkinny }

// size is the number of pairs that a tile has room for.
func (r *routing) size() int {
	switch {
	case r.single():
		return 1
	case r.tokens*r.choices <= 2*target.MatrixTile*r.experts:
		return target.MatrixTile
	}
	return 4 * target.MatrixTile
}

// rowsRead is how many rows of x the groups of a product read, of which tiles with one
// pair each read n.
func (r *routing) rowsRead(n int) int {
	if r.single() {
		return n
	}
	return r.tokens * r.choices
}

func routingOf(l Lowering, o *ir.Op) *routing {
	ids := dims(o.Args[4])
	r := &routing{ids: l.Buf(o.Args[4]), weights: l.Buf(o.Args[5]), tokens: ids[0], choices: ids[1], experts: dims(o.Args[1])[0]}
	pairs := r.tokens * r.choices
	if r.single() {
		r.tiles, r.share = pairs, 1
		if unitOf(l.Target()).mma != nil && r.tokens >= fewestShared {
			r.share = mostFew
		}
		return r
	}
	size := r.size()
	r.tiles = r.experts + pairs/size
	r.lists, r.counts = l.Scratch(ir.I32, r.experts*r.tokens), l.Scratch(ir.I32, r.experts)
	r.expert, r.first = l.Scratch(ir.I32, r.tiles), l.Scratch(ir.I32, r.tiles)
	r.route(l, size)
	return r
}

// route has a group per expert look through all pairs for its own. The tiles of
// expert e begin at e + p/size, where p is the number of pairs with lower ids: that
// leaves room for every expert's tiles, and each group knows where the next begin.
func (r *routing) route(l Lowering, size int) {
	pairs := r.tokens * r.choices
	l.Launch(Launch{
		Name: "expert_route", Spec: fmt.Sprintf("choices%d size%d", r.choices, size), Grid: r.experts, Work: int64(r.experts * pairs),
		In: []Ref{r.ids}, Out: []Ref{r.lists, r.counts, r.expert, r.first}, Ints: []int{r.tokens, r.experts, r.tiles},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			ids, tokens, choices := b[0], ints[0], k.Int(r.choices)
			list, expert := b[1].At(k.Mul(k.Group(), tokens)), k.Convert(k.Group(), kernel.I32)
			count := k.UniformVar(k.Int32(0))
			lower, here := k.Var(k.Int32(0)), k.Var(k.Int32(0))
			more := func(x *kernel.Var, cond kernel.V) {
				x.Set(k.Add(x.Get(), k.Convert(cond, kernel.I32)))
			}
			k.Chunks(k.Mul(tokens, choices), func(pair, in kernel.V) {
				hit := k.Var(k.Int32(0))
				k.If(in, func() {
					id := ids.Load(pair)
					more(lower, k.And(k.Cmp(kernel.LT, id, expert), k.Cmp(kernel.GE, id, k.Int32(0))))
					k.If(k.Cmp(kernel.EQ, id, expert), func() {
						more(here, k.Cmp(kernel.EQ, id, expert))
						// An expert that was chosen twice counts at its first choice.
						hit.Set(k.Int32(1))
						from := k.Mul(k.UDiv(pair, choices), choices)
						for i := range r.choices - 1 {
							at := k.Add(from, k.Int(i))
							again := k.And(k.Cmp(kernel.LT, at, pair), k.Cmp(kernel.EQ, ids.Load(at), expert))
							hit.Set(k.Select(again, k.Int32(0), hit.Get()))
						}
					})
				})
				before, total := k.Prefix(hit.Get())
				k.If(k.Cmp(kernel.EQ, hit.Get(), k.Int32(1)), func() {
					list.Store(k.Add(count.Get(), before), k.Convert(pair, kernel.I32))
				})
				count.Set(k.Add(count.Get(), total))
			})
			k.First(func() { b[2].Store(k.Group(), count.Get()) })
			p := k.Sum(lower.Get())
			next := k.Add(p, k.Sum(here.Get()))
			from := k.Convert(k.Add(expert, k.UDiv(p, k.Int32(size))), kernel.I64)
			end := k.Convert(k.Add(k.Add(expert, k.Int32(1)), k.UDiv(next, k.Int32(size))), kernel.I64)
			last := k.Cmp(kernel.EQ, k.Add(k.Group(), k.Int(1)), ints[1])
			end = k.Select(last, ints[2], end)
			k.Lanes(k.Sub(end, from), func(i kernel.V) {
				first := k.Mul(k.Convert(i, kernel.I32), k.Int32(size))
				some := k.Cmp(kernel.LT, first, count.Get())
				b[3].Store(k.Add(from, i), k.Select(some, expert, k.Int32(-1)))
				b[4].Store(k.Add(from, i), first)
			})
		},
	})
}

// operands are what a kernel reads of the routing, in the order that tileIn takes.
func (r *routing) operands() []Ref {
	if r.single() {
		return []Ref{r.ids, r.weights}
	}
	return []Ref{r.ids, r.weights, r.lists, r.counts, r.expert, r.first}
}

func (r *routing) spec() string {
	s := fmt.Sprintf("choices%d single%v", r.choices, r.single())
	if r.share > 1 {
		s += fmt.Sprintf(" share%d", r.share)
	}
	return s
}

// routedTile is a tile in a kernel.
type routedTile struct {
	expert kernel.V // i64
	// pair is the pair of a row of the tile, one that there is in any case, and whether
	// it is the row's own.
	pair func(row kernel.V) (pair, own kernel.V)
	// Of few tokens:
	count  kernel.V                    // of pairs, i64
	behind func()                      // what can wait until w is under way, or nil
	weight func(row kernel.V) kernel.V // of a row's pair, read before w: what reads it behind w keeps all warps waiting
}

// tileIn runs body for tile number i if there is such a tile. tokens is the number of
// tokens, an integer argument.
func (r *routing) tileIn(k *kernel.K, b []*kernel.Buf, i, tokens kernel.V, body func(t routedTile)) {
	if r.share > 1 {
		r.sharedTileIn(k, b[0], b[1], i, tokens, body)
		return
	}
	if r.single() {
		choices := k.Int(r.choices)
		from := k.Mul(k.UDiv(i, choices), choices)
		id, weight := chosenPair(k, b[0], b[1], from, k.Sub(i, from), r.choices)
		k.If(k.Cmp(kernel.GE, id, k.Int32(0)), func() {
			body(routedTile{expert: k.Convert(id, kernel.I64), count: k.Int(1), pair: func(row kernel.V) (pair, own kernel.V) {
				return i, k.Cmp(kernel.EQ, row, k.Int(0))
			}, weight: func(kernel.V) kernel.V { return weight }})
		})
		return
	}
	expert := b[4].Load(i)
	k.If(k.Cmp(kernel.GE, expert, k.Int32(0)), func() {
		expert = k.Convert(expert, kernel.I64)
		list, first := b[2].At(k.Mul(expert, tokens)), k.Convert(b[5].Load(i), kernel.I64)
		left := k.Sub(k.Convert(b[3].Load(expert), kernel.I64), first)
		body(routedTile{expert: expert, pair: func(row kernel.V) (pair, own kernel.V) {
			own = k.Cmp(kernel.LT, row, left)
			at := k.Add(first, k.Select(own, row, k.Int(0)))
			return k.Convert(list.Load(at), kernel.I64), own
		}})
	})
}
