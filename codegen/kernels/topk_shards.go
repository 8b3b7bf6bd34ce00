package kernels

import (
	"fmt"
	"math"
	mathbits "math/bits"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// topk on GPUs. A group keeps the keys of a shard of a row in registers, finds the k-th
// greatest bit by bit, and leaves what is chosen in the order of the row; of a long row
// other launches choose among what the shards left, until one group has all. That one
// sorts. A shard in which nothing can be chosen, as most of a row in a bundle for long
// contexts, costs its group one look.

// topkShard is the most keys of one group.
const topkShard = 4096

// topkLevel is what a launch chooses from: the scores of the op, or what an earlier
// launch left of shards.
type topkLevel struct {
	scores     Ref
	keys, ids  Ref // of shards; the zero values: scores
	shards     bool
	n, columns int // of a row, and those that a group looks at
	narrow     bool
}

// topkTogether reports whether groups share a row's choice.
func topkTogether(l Lowering, k int) bool {
	return l.Target().GPU() && k > topkPasses && k <= topkShard/2
}

// lowerTopKShards launches the levels.
func lowerTopKShards(l Lowering, o *ir.Op) {
	shape := dims(o.Args[0])
	from := topkLevel{scores: l.Buf(o.Args[0]), n: shape[len(shape)-1], narrow: o.Args[0].Type.DType == ir.BF16}
	rows, k := product(shape)/from.n, o.Int("k")
	out := []Ref{l.Buf(o.Results[0])}
	var in []Ref
	if len(o.Args) == 2 {
		in = append(in, l.Buf(o.Args[1]))
	}
	columns := from.n // of the op
	if from.few() {
		if from.n <= fewColumns(l.Target().Lanes) {
			launchTopKFew(l, from, rows, k, append(in, out...))
			return
		}
		from = launchTopKFewShards(l, from, rows, k)
	}
	for from.n > topkShard {
		places := ceilDiv(k, 4) * 4 // vectors
		shards := ceilDiv(from.n, topkShard)
		to := topkLevel{
			keys: l.Scratch(ir.I32, rows*shards*places), ids: l.Scratch(ir.I32, rows*shards*places),
			shards: true, n: shards * places, narrow: from.narrow,
		}
		from.columns = topkShard
		from.launch(l, "topk_shards", rows*shards, nil, []Ref{to.keys, to.ids}, []int{from.n, k, shards, places}, func(g *topkGroup, ints []kernel.V, keys, ids *kernel.Buf) {
			first := g.Mul(g.Group(), ints[3])
			keys, ids = keys.At(first), ids.At(first)
			count := g.choose(ints[1], func(place, key, id kernel.V) {
				keys.Store(place, key)
				ids.Store(place, id)
			})
			g.Lanes(g.Sub(ints[3], count), func(i kernel.V) { keys.Store(g.Add(i, count), g.none()) })
		})
		from = to
	}
	// Registers for no more than there is.
	from.columns = ceilDiv(from.n, 8*l.Target().Lanes) * 8 * l.Target().Lanes
	room := max(l.Target().Lanes, 1<<mathbits.Len(uint(k-1)))
	from.launch(l, "topk", rows, in, out, []int{from.n, k, 1, columns}, func(g *topkGroup, ints []kernel.V, first, second *kernel.Buf) {
		y, store := first, func(id kernel.V) kernel.V { return id }
		if len(in) > 0 {
			y = second
			of := first.At(g.Mul(g.Group(), ints[3]))
			store = func(id kernel.V) kernel.V { return of.Load(id) }
		}
		y = y.At(g.Mul(g.Group(), ints[1]))
		const none = math.MinInt64
		sorted := g.Shared(ir.I64, room)
		count := g.choose(ints[1], func(place, key, id kernel.V) {
			long := g.Shl(g.Convert(key, kernel.I64), g.Int(32))
			sorted.Store(place, g.Or(long, g.Sub(g.Int(math.MaxUint32), g.Convert(id, kernel.I64))))
		})
		g.Barrier()
		x := make([]kernel.V, room/g.T.Lanes)
		for j := range x {
			at := g.Add(g.Mul(g.Lane(), g.Int(len(x))), g.Int(j))
			v := g.Var(g.Int(none))
			g.If(g.Cmp(kernel.LT, at, count), func() { v.Set(sorted.Load(at)) })
			x[j] = v.Get()
		}
		for j, v := range sortLanes(g.K, x, sorted) {
			at := g.Add(g.Mul(g.Lane(), g.Int(len(x))), g.Int(j))
			g.If(g.Cmp(kernel.LT, at, ints[1]), func() {
				value := g.Var(g.Int32(-1))
				g.If(g.Cmp(kernel.NE, v, g.Int(none)), func() {
					value.Set(store(g.Convert(g.Sub(g.Int(math.MaxUint32), g.And(v, g.Int(math.MaxUint32))), kernel.I32)))
				})
				y.Store(at, value.Get())
			})
		}
	})
}

// launch adds a launch of so many groups, whose integers begin with the columns of a
// row, k, and the number of groups of a row.
func (t topkLevel) launch(l Lowering, name string, groups int, in, out []Ref, ints []int, body func(g *topkGroup, ints []kernel.V, a, b *kernel.Buf)) {
	from := []Ref{t.scores}
	if t.shards {
		from = []Ref{t.keys, t.ids}
	}
	each := t.columns / l.Target().Lanes
	vectors := t.n%8 == 0 && (t.shards || t.scores.DT == ir.BF16 || t.scores.DT == ir.F32)
	l.Launch(Launch{
		Name: name, Spec: fmt.Sprintf("columns%d k%d vectors%v shards%v narrow%v", t.columns, ints[1], vectors, t.shards, t.narrow), Grid: groups,
		Work: int64(groups) * int64(t.columns) * 32, In: append(from, in...), Out: out, Ints: ints,
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row, shard := k.UDiv(k.Group(), ints[2]), k.URem(k.Group(), ints[2])
			g := &topkGroup{K: k, narrow: t.narrow, from: k.Add(k.Mul(shard, k.Int(t.columns)), k.Mul(k.Lane(), k.Int(each)))}
			start := k.Mul(row, ints[0])
			g.load(b[0].At(start), ints[0], each, vectors, t.shards)
			if t.shards {
				g.ids = b[1].At(start)
			}
			rest := b[len(from):]
			body(g, ints, rest[0], rest[len(rest)-1])
		},
	})
}

// topkGroup is one group; each lane has the keys of columns that follow each other.
type topkGroup struct {
	*kernel.K
	narrow bool // keys have 16 bits
	from   kernel.V
	keys   []kernel.V
	ids    *kernel.Buf // what the columns stand for; nil: themselves
}

// keyBits is the number of bits in which keys differ.
func (g *topkGroup) keyBits() int {
	if g.narrow {
		return 16
	}
	return 32
}

// none is the key of what is never chosen, which no number has.
func (g *topkGroup) none() kernel.V { return g.Int32(math.MinInt32 >> (32 - g.keyBits())) }

// keyOf orders numbers as scoreKey does. Those of bf16 differ in the upper half.
func (g *topkGroup) keyOf(x kernel.V) kernel.V {
	key := scoreKey(g.K, x)
	if g.narrow {
		key = g.AShr(key, g.Int32(16))
	}
	return key
}

// load reads each keys of a row of n columns: scores, or keys that were left.
func (g *topkGroup) load(x *kernel.Buf, n kernel.V, each int, vectors, made bool) {
	g.keys = make([]kernel.V, each)
	key := func(i int, in, v kernel.V) {
		if !made {
			v = g.keyOf(v)
		}
		g.keys[i] = g.Select(in, v, g.none())
	}
	if !vectors {
		for i := range each {
			at := g.Add(g.from, g.Int(i))
			in := g.Cmp(kernel.LT, at, n)
			key(i, in, x.Load(g.Select(in, at, g.Int(0))))
		}
		return
	}
	per := int(16 / x.Format().Bytes(1))
	for i := 0; i < each; i += per {
		at := g.Add(g.from, g.Int(i))
		in := g.Cmp(kernel.LT, at, n) // and so are the others: n is a multiple
		words := x.LoadVecIf(in, at, per)
		for j := range per {
			if made {
				key(i+j, in, g.At(words, j))
			} else {
				key(i+j, in, numberOf(g.K, words, j, per))
			}
		}
	}
}

// reach is how many of the lane's keys are at least t.
func (g *topkGroup) reach(t kernel.V) kernel.V {
	sum := g.Int32(0)
	for _, key := range g.keys {
		sum = g.Add(sum, g.Convert(g.Cmp(kernel.GE, key, t), kernel.I32))
	}
	return sum
}

// choose stores the want greatest keys, of equal ones the first, and says how many there
// are. Places are in the order of columns.
func (g *topkGroup) choose(want kernel.V, store func(place, key, id kernel.V)) (count kernel.V) {
	most, zero, one, none := g.Convert(want, kernel.I32), g.Int32(0), g.Int32(1), g.none()
	// The greatest t that want keys reach, from its highest bits down, two at a time; the
	// smallest number if there are not as many.
	t := g.UniformVar(none)
	there := g.Sums(g.Int(0), g.reach(g.Add(none, one)))[0]
	g.If(g.Cmp(kernel.GT, there, most), func() {
		g.For(g.Int(0), g.Int(g.keyBits()/2), 1, func(i kernel.V) {
			step := g.Shl(one, g.Sub(g.Int32(g.keyBits()-2), g.Shl(g.Convert(i, kernel.I32), one)))
			var counts []kernel.V
			for j := range 3 {
				counts = append(counts, g.reach(g.Add(t.Get(), g.Mul(step, g.Int32(j+1)))))
			}
			best := t.Get()
			for _, n := range g.Sums(i, counts...) {
				best = g.Add(best, g.Select(g.Cmp(kernel.GE, n, most), step, zero))
			}
			t.Set(best)
		})
	})
	threshold := t.Get()
	// Of each lane, the keys above, and those equal in the upper half.
	both := zero
	kind := make([]kernel.V, len(g.keys))
	for i, key := range g.keys {
		above, equal := g.Cmp(kernel.GT, key, threshold), g.Cmp(kernel.EQ, key, threshold)
		equal = g.And(equal, g.Cmp(kernel.GT, key, none))
		kind[i] = g.Select(above, one, g.Select(equal, g.Int32(1<<16), zero))
		both = g.Add(both, kind[i])
	}
	before, all := g.Prefix(both)
	low := g.Int32(1<<16 - 1)
	above := g.And(all, low)
	ties := g.Min(g.Sub(most, above), g.LShr(all, g.Int32(16))) // so many of the equal ones are chosen
	for i, key := range g.keys {
		equal := g.LShr(before, g.Int32(16))
		tied := g.And(g.Cmp(kernel.GE, kind[i], g.Int32(1<<16)), g.Cmp(kernel.LT, equal, ties))
		chosen := g.Or(g.Cmp(kernel.EQ, kind[i], one), tied)
		place := g.Add(g.And(before, low), g.Min(equal, ties))
		g.If(chosen, func() {
			column := g.Add(g.from, g.Int(i))
			id := g.Convert(column, kernel.I32)
			if g.ids != nil {
				id = g.ids.Load(column)
			}
			store(g.Convert(place, kernel.I64), key, id)
		})
		before = g.Add(before, kind[i])
	}
	return g.Convert(g.Add(above, ties), kernel.I64)
}
