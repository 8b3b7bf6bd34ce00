package kernels

import (
	"fmt"
	"math"
	mathbits "math/bits"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// topk of bf16 scores on GPUs. The lanes of a group keep a row of scores in registers, two
// to a word, as sets of columns far from each other. The want greatest of the sets' maxima
// are scores too, so that what is chosen is at least the smallest of them: of most rows that
// leaves little more than want columns, which are sorted. Of others the k-th score is found
// bit by bit first.

const (
	// fewVectors is the most vectors of a lane, fewSpan the numbers of one, and fewMasks how
	// many words have a bit for each of its numbers.
	fewVectors, fewSpan = 16, 8
	fewMasks            = fewVectors * fewSpan / 32

	// lowestKey is the key of the lowest number.
	lowestKey = -0x7F80
)

// fewColumns is the most columns of a group.
func fewColumns(lanes int) int { return fewVectors * fewSpan * lanes }

// topkFew is a group's row, or shard of one.
type topkFew struct {
	*kernel.K
	scores *kernel.Buf
	words  []kernel.Vec
}

// fewOf reads the n columns of a group, of which a lane has so many vectors; all lanes have
// the first ones.
func fewOf(k *kernel.K, scores *kernel.Buf, n kernel.V, vectors, whole int) *topkFew {
	const low = -0x7F0080 // -inf twice
	g := &topkFew{K: k, scores: scores}
	for i := range vectors {
		at := g.column(i)
		if i < whole {
			g.words = append(g.words, scores.LoadVec(at, fewSpan))
			continue
		}
		in := k.Cmp(kernel.LT, at, n)
		words := scores.LoadVec(k.Select(in, at, k.Int(0)), fewSpan)
		g.words = append(g.words, k.MapVec(func(w ...kernel.V) kernel.V { return k.Select(in, w[0], k.Int32(low)) }, words))
	}
	return g
}

// column is the first of the lane's vector i.
func (g *topkFew) column(i int) kernel.V {
	return g.Add(g.Mul(g.Lane(), g.Int(fewSpan)), g.Int(i*fewSpan*g.T.Lanes))
}

// keyOf is scoreKey of a number of bf16: 16 bits.
func (g *topkFew) keyOf(x kernel.V) kernel.V { return g.AShr(scoreKey(g.K, x), g.Int32(16)) }

// pairOf is the number of a key, twice in a word.
func (g *topkFew) pairOf(key kernel.V) kernel.V {
	b := g.Xor(key, g.And(g.AShr(key, g.Int32(31)), g.Int32(math.MaxInt16)))
	return g.Or(g.Shl(b, g.Int32(16)), g.And(b, g.Int32(math.MaxUint16)))
}

// bound is a key that at least most keys reach, or all numbers, if there are fewer.
func (g *topkFew) bound(most kernel.V) kernel.V {
	one, none := g.Int32(1), g.Int32(math.MinInt16)
	best := g.words[0]
	for i := range g.words {
		if i == 0 { // no NaN
			best = g.MapVec(func(w ...kernel.V) kernel.V { return g.MaxNumBF16(w[0], g.Int32(-0x7F0080)) }, best)
		} else {
			best = g.MapVec(func(w ...kernel.V) kernel.V { return g.MaxNumBF16(w[0], w[1]) }, g.words[i], best)
		}
	}
	var keys []kernel.V
	for j := range fewSpan {
		keys = append(keys, g.keyOf(numberOf(g.K, best, j, fewSpan)))
	}
	reach := func(t kernel.V) kernel.V {
		sum := g.Int32(0)
		for _, key := range keys {
			sum = g.Add(sum, g.Convert(g.Cmp(kernel.GE, key, t), kernel.I32))
		}
		return sum
	}
	// Each wave finds as many of its maxima as it has of all.
	mine := reach(g.Add(none, one))
	all := g.Sums(g.Int(0), mine)[0]
	t := g.Var(g.Int32(math.MaxInt16))
	g.If(g.Cmp(kernel.LE, all, most), func() { t.Set(g.Int32(lowestKey)) })
	g.If(g.Cmp(kernel.GT, all, most), func() {
		share := g.UDiv(g.Add(g.Mul(g.WaveSum(mine), most), g.Sub(all, one)), all)
		t.Set(none)
		g.For(g.Int(0), g.Int(16), 1, func(i kernel.V) {
			try := g.Add(t.Get(), g.Shl(one, g.Sub(g.Int32(15), g.Convert(i, kernel.I32))))
			t.Set(g.Select(g.Cmp(kernel.GE, g.WaveSum(reach(try)), share), try, t.Get()))
		})
	})
	// The least of all waves.
	waves := g.T.Lanes / g.T.Wave
	shared := g.Shared(ir.I32, waves)
	g.If(g.Cmp(kernel.EQ, g.WaveLane(), g.Int(0)), func() { shared.Store(g.Wave(), t.Get()) })
	g.Barrier()
	least := g.Int32(math.MaxInt16)
	for i := range waves {
		least = g.Min(least, shared.Load(g.Int(i)))
	}
	return g.Max(least, g.Int32(lowestKey))
}

// apart reports whether a mask has the lower numbers of words in its lower half and the
// upper ones in the upper half, as they are compared; otherwise all in their order.
func (g *topkFew) apart() bool { return g.T.Kind == target.NVPTX }

// fewBit is the bit of the lower number of word j of vector i.
func fewBit(i, j int) int { return i%(fewVectors/fewMasks)*(fewSpan/2) + j }

// masks has a bit for each number of the lane that is at least that of the key.
func (g *topkFew) masks(key kernel.V) []kernel.V {
	pair := g.pairOf(key)
	out := make([]kernel.V, fewMasks)
	for i := range out {
		out[i] = g.Int32(0)
	}
	for i, v := range g.words {
		at := i / (fewVectors / fewMasks)
		for j := range v.Len() {
			if g.apart() {
				bit := fewBit(i, j)
				out[at] = g.Or(out[at], g.And(g.AtLeastMaskBF16(g.At(v, j), pair), g.Int32(1<<bit|1<<(bit+16))))
				continue
			}
			for half, is := range g.AtLeastBF16(g.At(v, j), pair) {
				bit := i%(fewVectors/fewMasks)*fewSpan + 2*j + half
				out[at] = g.Or(out[at], g.Select(is, g.Int32(1<<bit), g.Int32(0)))
			}
		}
	}
	return out
}

func (g *topkFew) count(masks []kernel.V) kernel.V {
	sum := g.Int32(0)
	for _, m := range masks {
		sum = g.Add(sum, g.CountBits(m))
	}
	return sum
}

// exactly has a bit for each of the most greatest numbers, of which there are more; of
// equal ones the first.
func (g *topkFew) exactly(most kernel.V) []kernel.V {
	one := g.Int32(1)
	t := g.UniformVar(g.Int32(math.MinInt16))
	g.For(g.Int(0), g.Int(16), 1, func(i kernel.V) {
		try := g.Add(t.Get(), g.Shl(one, g.Sub(g.Int32(15), g.Convert(i, kernel.I32))))
		t.Set(g.Select(g.Cmp(kernel.GE, g.Sums(i, g.count(g.masks(try)))[0], most), try, t.Get()))
	})
	above, reach := g.masks(g.Add(t.Get(), one)), g.masks(t.Get())
	ties := g.Sub(most, g.Sums(g.Int(0), g.count(above))[0]) // so many of those equal to it
	// before has the bits of columns before one, of those equal to it.
	before := func(column kernel.V) []kernel.V {
		out := make([]kernel.V, fewMasks)
		for i := range out {
			out[i] = g.Int32(0)
		}
		for i := range g.words {
			n := g.Sub(column, g.Convert(g.column(i), kernel.I32))
			n = g.Max(g.Min(n, g.Int32(fewSpan)), g.Int32(0))
			at := i / (fewVectors / fewMasks)
			if g.apart() {
				below := func(n kernel.V, first int) kernel.V {
					return g.Shl(g.Sub(g.Shl(one, g.LShr(n, one)), one), g.Int32(first))
				}
				out[at] = g.Or(out[at], g.Or(below(g.Add(n, one), fewBit(i, 0)), below(n, fewBit(i, 0)+16)))
				continue
			}
			bits := g.Shl(g.Sub(g.Shl(one, n), one), g.Int32(i%(fewVectors/fewMasks)*fewSpan))
			out[at] = g.Or(out[at], bits)
		}
		for i := range out {
			out[i] = g.And(out[i], g.Xor(reach[i], above[i]))
		}
		return out
	}
	last := g.UniformVar(g.Int32(0)) // of the columns that fewer are before
	steps := mathbits.Len(uint(fewColumns(g.T.Lanes) - 1))
	g.For(g.Int(0), g.Int(steps), 1, func(i kernel.V) {
		try := g.Add(last.Get(), g.Shl(one, g.Sub(g.Int32(steps-1), g.Convert(i, kernel.I32))))
		last.Set(g.Select(g.Cmp(kernel.LT, g.Sums(i, g.count(before(try)))[0], ties), try, last.Get()))
	})
	out := before(g.Add(last.Get(), one))
	for i := range out {
		out[i] = g.Or(out[i], above[i])
	}
	return out
}

// sorted are the most greatest scores, the greatest first, as many of each lane as room
// says for the group: the key in the upper half of a word, and in the lower one what is
// left of 2^16 - 1 behind the column. Places without one have the least number.
func (g *topkFew) sorted(most kernel.V, room int) []kernel.V {
	list := g.Shared(ir.I32, room)
	var masks []*kernel.Var
	for _, m := range g.masks(g.bound(most)) {
		masks = append(masks, g.Var(m))
	}
	get := func() []kernel.V {
		var out []kernel.V
		for _, m := range masks {
			out = append(out, m.Get())
		}
		return out
	}
	place, total := g.Prefix(g.count(get()))
	next, count := g.Var(place), g.UniformVar(total)
	g.If(g.Cmp(kernel.GT, total, g.Int32(room)), func() {
		for i, m := range g.exactly(most) {
			masks[i].Set(m)
		}
		place, total := g.Prefix(g.count(get()))
		next.Set(place)
		count.Set(total)
	})
	// The words of masks one after the other: the lane's first one that is left.
	g.For(g.Int(0), g.Convert(g.count(get()), kernel.I64), 1, func(kernel.V) {
		mask, first := masks[fewMasks-1].Get(), g.Int32(fewMasks-1)
		for i := fewMasks - 2; i >= 0; i-- {
			some := g.Cmp(kernel.NE, masks[i].Get(), g.Int32(0))
			mask, first = g.Select(some, masks[i].Get(), mask), g.Select(some, g.Int32(i), first)
		}
		bit := g.FirstBit(mask)
		left := g.And(mask, g.Sub(mask, g.Int32(1)))
		for i, m := range masks {
			m.Set(g.Select(g.Cmp(kernel.EQ, first, g.Int32(i)), left, m.Get()))
		}
		word, in := func() kernel.V { return g.LShr(bit, g.Int32(3)) }, func() kernel.V { return g.And(bit, g.Int32(fewSpan-1)) }
		if g.apart() {
			lower := g.And(bit, g.Int32(15))
			word = func() kernel.V { return g.LShr(lower, g.Int32(2)) }
			in = func() kernel.V {
				return g.Or(g.Shl(g.And(lower, g.Int32(fewSpan/2-1)), g.Int32(1)), g.LShr(bit, g.Int32(4)))
			}
		}
		vector := g.Add(g.Mul(first, g.Int32(fewVectors/fewMasks)), word())
		column := g.Add(g.Convert(g.column(0), kernel.I32), in())
		list.Store(g.Convert(next.Get(), kernel.I64), g.Add(column, g.Mul(vector, g.Int32(fewSpan*g.T.Lanes))))
		next.Set(g.Add(next.Get(), g.Int32(1)))
	})
	g.Barrier()
	x := make([]kernel.V, room/g.T.Lanes)
	for j := range x { // in any order, as they are sorted
		at := g.Add(g.Lane(), g.Int(j*g.T.Lanes))
		there := g.Cmp(kernel.LT, g.Convert(at, kernel.I32), count.Get())
		column := g.Var(g.Int32(0))
		g.If(there, func() { column.Set(list.Load(at)) })
		key := g.keyOf(g.scores.Load(column.Get()))
		whole := g.Or(g.Shl(key, g.Int32(16)), g.Sub(g.Int32(math.MaxUint16), column.Get()))
		x[j] = g.Select(there, whole, g.Int32(math.MinInt32))
	}
	return sortLanes(g.K, x, list)
}

// columnOf is the column of what sorted gives.
func (g *topkFew) columnOf(x kernel.V) kernel.V {
	return g.Sub(g.Int32(math.MaxUint16), g.And(x, g.Int32(math.MaxUint16)))
}

// few reports whether topkFew chooses from a level.
func (t topkLevel) few() bool { return t.narrow && !t.shards && t.n%fewSpan == 0 }

// fewRoom is how many scores are sorted when k are chosen.
func fewRoom(l Lowering, k int) int { return max(2*l.Target().Lanes, 2<<mathbits.Len(uint(k-1))) }

// launchTopKFew lets one group choose of each row. Of two operands the first is what stands
// at the columns; the last is the result.
func launchTopKFew(l Lowering, from topkLevel, rows, k int, refs []Ref) {
	room, each := fewRoom(l, k), fewSpan*l.Target().Lanes
	vectors, whole := ceilDiv(from.n, each), from.n/each
	last := len(refs) - 1
	l.Launch(Launch{
		Name: "topk_few", Spec: fmt.Sprintf("k%d vectors%d whole%d", k, vectors, whole), Grid: rows, Work: int64(rows) * int64(from.n) * 8,
		In: append([]Ref{from.scores}, refs[:last]...), Out: refs[last:], Ints: []int{from.n},
		Body: func(kk *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			start := kk.Mul(kk.Group(), ints[0])
			if last > 0 {
				kk.Ahead(func() { // of what stands at the columns: which lines are read is not known yet
					const each = kernel.PrefetchBytes / 4
					kk.Lanes(kk.UDiv(kk.Add(ints[0], kk.Int(each-1)), kk.Int(each)), func(i kernel.V) {
						b[1].Prefetch(kk.Add(kk.Mul(kk.Group(), ints[0]), kk.Mul(i, kk.Int(each))))
					})
				})
			}
			g := fewOf(kk, b[0].At(start), ints[0], vectors, whole)
			y := b[last+1].At(kk.Mul(kk.Group(), kk.Int(k)))
			for j, x := range g.sorted(kk.Int32(k), room) {
				at := kk.Add(kk.Mul(kk.Lane(), kk.Int(room/kk.T.Lanes)), kk.Int(j))
				kk.If(kk.Cmp(kernel.LT, at, kk.Int(k)), func() {
					value := kk.Var(kk.Int32(-1))
					kk.If(kk.Cmp(kernel.GT, x, kk.Int32(math.MinInt32)), func() {
						column := g.columnOf(x)
						if last > 0 {
							column = b[1].At(start).Load(column)
						}
						value.Set(column)
					})
					y.Store(at, value.Get())
				})
			}
		},
	})
}

// launchTopKFewShards lets a group choose of each shard of a row; what it leaves is in
// order.
func launchTopKFewShards(l Lowering, from topkLevel, rows, k int) topkLevel {
	room, columns := fewRoom(l, k), fewColumns(l.Target().Lanes)
	shards, places := ceilDiv(from.n, columns), ceilDiv(k, 4)*4
	to := topkLevel{
		keys: l.Scratch(ir.I32, rows*shards*places), ids: l.Scratch(ir.I32, rows*shards*places),
		shards: true, n: shards * places, narrow: true,
	}
	l.Launch(Launch{
		Name: "topk_few_shards", Spec: fmt.Sprintf("k%d", k), Grid: rows * shards, Work: int64(rows) * int64(from.n) * 8,
		In: []Ref{from.scores}, Out: []Ref{to.keys, to.ids}, Ints: []int{from.n, shards},
		Body: func(kk *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row, first := kk.UDiv(kk.Group(), ints[1]), kk.Mul(kk.URem(kk.Group(), ints[1]), kk.Int(columns))
			g := fewOf(kk, b[0].At(kk.Add(kk.Mul(row, ints[0]), first)), kk.Sub(ints[0], first), fewVectors, 0)
			start := kk.Mul(kk.Group(), kk.Int(places))
			keys, ids := b[1].At(start), b[2].At(start)
			for j, x := range g.sorted(kk.Int32(k), room) {
				at := kk.Add(kk.Mul(kk.Lane(), kk.Int(room/kk.T.Lanes)), kk.Int(j))
				kk.If(kk.Cmp(kernel.LT, at, kk.Int(places)), func() {
					some := kk.And(kk.Cmp(kernel.GT, x, kk.Int32(math.MinInt32)), kk.Cmp(kernel.LT, at, kk.Int(k)))
					keys.Store(at, kk.Select(some, kk.AShr(x, kk.Int32(16)), kk.Int32(math.MinInt16)))
					kk.If(some, func() { ids.Store(at, kk.Add(g.columnOf(x), kk.Convert(first, kernel.I32))) })
				})
			}
		},
	})
	return to
}
