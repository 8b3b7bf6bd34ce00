package kernels

import (
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

func init() {
	register(&Form{Name: "generic_sample", Op: "sample", Match: always, Lower: lowerSample})
}

// Searches look at so many bits of an index, or of a key, at a time. Parts of what is
// left of the columns are summed one after another; of keys, a pass over the row sums
// all, so that more bits would be fewer passes with more registers.
const (
	indexBits  = 4
	indexParts = 1 << indexBits
	keyBits    = 2
	keyParts   = 1 << keyBits
)

// lowerSample: what argmax knows of a row, by shards, then one group per row. A row at
// temperature 0 ends there; another is gone through twice, and about twenty times more
// for each of top-k and top-p, mostly without weighing. All sums are of integers, so
// that no order of them shows.
func lowerSample(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	rows, n := shape[0], shape[1]
	columns := o.Columns(n)
	p := launchShards(l, l.Buf(o.Args[0]), rows, n, columns)
	width := 1
	for indexParts*width < columns {
		width *= 2
	}
	levels := 1
	for w := width; w > 1; w >>= indexBits {
		levels++
	}
	la := Launch{
		Name: "sample", Grid: rows, Work: 64 * int64(rows) * int64(columns),
		Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{n, columns, p.parts, width, levels},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row := k.Group()
			key, kinds := bestOfParts(k, b[6], b[7], row, ints[2])
			id, flags := argmaxOf(k, key, kinds)
			temperature, topK, topP := b[1].Load(row), b[2].Load(row), b[3].Load(row)
			ok := k.And(k.Cmp(kernel.GE, temperature, k.Float(0)), k.Cmp(kernel.LT, temperature, k.Float(math.Inf(1))))
			ok = k.And(ok, k.Cmp(kernel.GE, topK, k.Int32(0)))
			ok = k.And(ok, k.And(k.Cmp(kernel.GE, topP, k.Float(0)), k.Cmp(kernel.LE, topP, k.Float(1))))
			flags = k.Or(flags, k.Select(ok, k.Int32(0), k.Int32(ir.SampleRange)))
			token := k.UniformVar(id)
			k.If(k.And(k.Cmp(kernel.EQ, flags, k.Int32(0)), k.Cmp(kernel.GT, temperature, k.Float(0))), func() {
				x := b[0].At(k.Mul(row, ints[0]))
				r := newSampled(k, x, ints[1:], x.Load(id), temperature)
				k.If(k.And(k.Cmp(kernel.GT, topK, k.Int32(0)), k.Cmp(kernel.LT, k.Convert(topK, kernel.I64), ints[1])), func() {
					r.keepTopK(k.Convert(topK, kernel.I64))
				})
				k.If(k.And(k.Cmp(kernel.GT, topP, k.Float(0)), k.Cmp(kernel.LT, topP, k.Float(1))), func() { r.keepTopP(topP) })
				token.Set(r.first(draw(k, b[4].Load(row), b[5].Load(row), r.total()), r.weight))
			})
			id = token.Get()
			k.First(func() {
				b[8].Store(row, k.Convert(id, kernel.I32))
				b[9].Store(row, flags)
			})
		},
	}
	for _, a := range o.Args {
		la.In = append(la.In, l.Buf(a))
	}
	la.In = append(la.In, p.keys, p.kinds)
	l.Launch(la)
	return nil
}

// sampled is the row that a group draws from. Kept are the columns of a greater key
// than cut, and those of that key before limit.
type sampled struct {
	k             *kernel.K
	x             *kernel.Buf
	n             kernel.V // columns
	width, levels kernel.V // of the search for an index: of its first parts, and how often those are cut
	top, scale    kernel.V
	cut, limit    *kernel.Var
}

// newSampled keeps every number above -Inf; ints are the columns, the shards, width
// and levels.
func newSampled(k *kernel.K, x *kernel.Buf, ints []kernel.V, top, temperature kernel.V) *sampled {
	scale := k.Min(k.Div(k.Float(math.Log2E), temperature), k.Float(math.MaxFloat32))
	return &sampled{k: k, x: x, n: ints[0], width: ints[2], levels: ints[3], top: top, scale: scale,
		cut: k.UniformVar(k.Int32(math.MinInt32)), limit: k.UniformVar(k.Int(0))}
}

// weigh is num.Weight of a value of the row.
func (r *sampled) weigh(x kernel.V) kernel.V {
	k := r.k
	a := k.Mul(k.Sub(r.top, x), r.scale)
	in := k.Cmp(kernel.LT, a, k.Float(num.WeightBits+1))
	fixed := k.Convert(k.Mul(k.Select(in, a, k.Float(0)), k.Float(1<<num.WeightFraction)), kernel.I32)
	z := k.Convert(k.And(fixed, k.Int32(1<<num.WeightFraction-1)), kernel.I64)
	last := len(num.Exp2Coefs) - 1
	p := k.Int(int(num.Exp2Coefs[last]))
	for i := last - 1; i >= 0; i-- {
		p = k.Add(k.AShr(k.Mul(p, z), k.Int(num.WeightFraction)), k.Int(int(num.Exp2Coefs[i])))
	}
	whole := k.Convert(k.AShr(fixed, k.Int32(num.WeightFraction)), kernel.I64)
	return k.Select(in, k.AShr(k.Shl(p, k.Int(num.WeightBits-31)), whole), k.Int(0))
}

// kept reports whether the column at i, of that key, is.
func (r *sampled) kept(i, key kernel.V) kernel.V {
	k, cut := r.k, r.cut.Get()
	tie := k.And(k.Cmp(kernel.EQ, key, cut), k.Cmp(kernel.LT, i, r.limit.Get()))
	return k.Or(k.Cmp(kernel.GT, key, cut), tie)
}

// weight is what the column at i weighs, 0 if it is not kept.
func (r *sampled) weight(i kernel.V) kernel.V {
	x := r.x.Load(i)
	return r.k.Select(r.kept(i, scoreKey(r.k, x)), r.weigh(x), r.k.Int(0))
}

// one is 1 for a column that is kept, else 0.
func (r *sampled) one(i kernel.V) kernel.V {
	return r.k.Convert(r.kept(i, scoreKey(r.k, r.x.Load(i))), kernel.I64)
}

// total is the weight of all that is kept.
func (r *sampled) total() kernel.V {
	sum := r.k.Var(r.k.Int(0))
	r.k.Lanes(r.n, func(i kernel.V) { sum.Set(r.k.Add(sum.Get(), r.weight(i))) })
	return r.k.Sum(sum.Get())
}

// keepTopK keeps the first columns in the order of values.
func (r *sampled) keepTopK(count kernel.V) {
	t, above := r.reach(count, r.one)
	// Where there are not as many numbers, all of them are kept already.
	r.k.If(r.k.Cmp(kernel.GT, t, r.k.Int32(math.MinInt32)), func() { r.keepTo(t, r.k.Sub(count, above), r.one) })
}

// keepTopP keeps the first of the kept columns in the order of values that have so
// much of their weight; it is num.Share.
func (r *sampled) keepTopP(p kernel.V) {
	k, total, mask := r.k, r.total(), r.k.Int(math.MaxUint32)
	q := k.Convert(k.Mul(p, k.Float(1<<32)), kernel.I64)
	high, low := k.Mul(q, k.LShr(total, k.Int(32))), k.Mul(q, k.And(total, mask))
	share := k.Max(k.Int(1), k.Add(high, k.LShr(k.Add(low, mask), k.Int(32))))
	t, above := r.reach(share, r.weight)
	r.keepTo(t, k.Sub(share, above), r.weight)
}

// reach finds the greatest key from which on the kept columns sum to at least want,
// and what those of greater keys sum to. The key is the smallest if all do not.
func (r *sampled) reach(want kernel.V, of func(i kernel.V) kernel.V) (key, above kernel.V) {
	k := r.k
	from, over := k.UniformVar(k.Int32(math.MinInt32)), k.UniformVar(k.Int(0))
	k.For(k.Int(0), k.Int(32/keyBits), 1, func(step kernel.V) {
		shift := k.Convert(k.Sub(k.Int(32-keyBits), k.Mul(step, k.Int(keyBits))), kernel.I32)
		start := from.Get()
		var sums [keyParts]*kernel.Var
		for j := range keyParts {
			sums[j] = k.Var(k.Int(0))
		}
		// What is above all parts is in over already; waves that see nothing between do
		// no more than look.
		k.Lanes(r.n, func(i kernel.V) {
			part := k.LShr(k.Sub(scoreKey(k, r.x.Load(i)), start), shift) // of keys outside: negative, or too large
			k.If(k.And(k.Cmp(kernel.GE, part, k.Int32(1)), k.Cmp(kernel.LT, part, k.Int32(keyParts))), func() {
				v := of(i)
				for j := 1; j < keyParts; j++ {
					sums[j].Set(k.Add(sums[j].Get(), k.Select(k.Cmp(kernel.GE, part, k.Int32(j)), v, k.Int(0))))
				}
			})
		})
		higher, reached := over.Get(), k.UniformVar(k.Int32(0))
		for j := keyParts - 1; j >= 1; j-- { // sums fall with j
			sum := k.Add(higher, k.Sum(sums[j].Get()))
			short := k.Cmp(kernel.LT, sum, want)
			over.Set(k.Select(short, sum, over.Get()))
			reached.Set(k.Max(reached.Get(), k.Select(short, k.Int32(0), k.Int32(j))))
		}
		from.Set(k.Add(start, k.Shl(reached.Get(), shift)))
	})
	return from.Get(), over.Get()
}

// keepTo keeps, of what is kept, greater keys than t, and of that key the first
// columns that sum to at least want.
func (r *sampled) keepTo(t, want kernel.V, of func(i kernel.V) kernel.V) {
	k := r.k
	last := r.first(k.Sub(want, k.Int(1)), func(i kernel.V) kernel.V {
		return k.Select(k.Cmp(kernel.EQ, scoreKey(k, r.x.Load(i)), t), of(i), k.Int(0))
	})
	r.cut.Set(t)
	r.limit.Set(k.Add(last, k.Int(1)))
}

// first is the first column up to which the sum is above u; there is one.
func (r *sampled) first(u kernel.V, of func(i kernel.V) kernel.V) kernel.V {
	k := r.k
	start, left, width := k.UniformVar(k.Int(0)), k.UniformVar(u), k.UniformVar(r.width)
	k.For(k.Int(0), r.levels, 1, func(kernel.V) {
		first, w := start.Get(), width.Get()
		found := k.UniformVar(k.Int32(0))
		k.For(k.Int(0), k.Int(indexParts), 1, func(part kernel.V) {
			from := k.Add(first, k.Mul(part, w))
			k.If(k.And(k.Cmp(kernel.EQ, found.Get(), k.Int32(0)), k.Cmp(kernel.LT, from, r.n)), func() {
				sum := k.Var(k.Int(0))
				k.Lanes(k.Min(k.Sub(r.n, from), w), func(i kernel.V) { sum.Set(k.Add(sum.Get(), of(k.Add(i, from)))) })
				all := k.Sum(sum.Get())
				here := k.Cmp(kernel.LT, left.Get(), all)
				start.Set(k.Select(here, from, start.Get()))
				found.Set(k.Convert(here, kernel.I32))
				left.Set(k.Select(here, left.Get(), k.Sub(left.Get(), all)))
			})
		})
		width.Set(k.Max(k.LShr(w, k.Int(indexBits)), k.Int(1)))
	})
	return start.Get()
}

// draw is num.Draw.
func draw(k *kernel.K, seed, pos, total kernel.V) kernel.V {
	mask := k.Int(math.MaxUint32)
	low := func(x kernel.V) kernel.V { return k.And(x, mask) }
	high := func(x kernel.V) kernel.V { return k.LShr(x, k.Int(32)) }
	c := [4]kernel.V{low(k.Convert(pos, kernel.I64)), k.Int(0), k.Int(0), k.Int(0)}
	key := [2]kernel.V{low(seed), high(seed)}
	for range num.PhiloxRounds {
		p0, p1 := k.Mul(c[0], k.Int(num.PhiloxM0)), k.Mul(c[2], k.Int(num.PhiloxM1))
		c = [4]kernel.V{k.Xor(k.Xor(high(p1), c[1]), key[0]), low(p1), k.Xor(k.Xor(high(p0), c[3]), key[1]), low(p0)}
		key[0], key[1] = low(k.Add(key[0], k.Int(num.PhiloxW0))), low(k.Add(key[1], k.Int(num.PhiloxW1)))
	}
	// The upper half of (c[1] 2^32 + c[0]) total, which is below 2^63.
	across := k.Add(k.Mul(c[1], low(total)), high(k.Mul(c[0], low(total))))
	rest := k.Add(k.Mul(c[0], high(total)), low(across))
	return k.Add(k.Mul(c[1], high(total)), k.Add(high(across), high(rest)))
}
