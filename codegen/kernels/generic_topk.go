package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "generic_topk", Op: "topk", Match: always, Lower: lowerTopK},
		&Form{Name: "topk_rows", Op: "topk_rows", Match: always, Lower: lowerTopK},
	)
}

// topkPasses is the largest k that is found by as many passes over the scores;
// above, the passes that find the k-th score bit by bit are fewer.
const topkPasses = 16

// lowerTopK: one group per row, or, on GPUs, more (lowerTopKShards). The choice is
// exact, so every device and lane count gives the same ids. topk_rows stores what stands at them in its second
// operand.
func lowerTopK(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	n, k := shape[len(shape)-1], o.Int("k")
	if topkTogether(l, k) {
		lowerTopKShards(l, o)
		return nil
	}
	la := Launch{
		Name: "topk", Grid: product(shape) / n,
		Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n, k},
	}
	for _, a := range o.Args {
		la.In = append(la.In, l.Buf(a))
	}
	in := len(la.In)
	la.Work = int64(la.Grid) * int64(n) * int64(4*min(k, 32))
	switch room := 8 * k; {
	case k <= topkPasses:
		la.Spec = "passes"
		la.Body = func(kk *kernel.K, b []*kernel.Buf, ints []kernel.V) { topkByPasses(kk, topkRowOf(kk, b, in, ints)) }
	case room <= maxShared:
		la.Spec = fmt.Sprintf("threshold k%d", k)
		la.Body = func(kk *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			topkByThreshold(kk, topkRowOf(kk, b, in, ints), kk.Shared(ir.I32, k), kk.Shared(ir.I32, k))
		}
	default: // the chosen are kept in memory
		la.Spec = "threshold"
		la.Out = append(la.Out, l.Scratch(ir.I32, la.Grid*k), l.Scratch(ir.I32, la.Grid*k))
		la.Body = func(kk *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			at := kk.Mul(kk.Group(), ints[1])
			topkByThreshold(kk, topkRowOf(kk, b, in, ints), b[in+1].At(at), b[in+2].At(at))
		}
	}
	l.Launch(la)
	return nil
}

// topkRow is a group's row.
type topkRow struct {
	n, count kernel.V
	scores   *kernel.Buf
	rows     *kernel.Buf // nil: the indices are the result
	y        *kernel.Buf
}

// topkRowOf finds the group's row in the operands, of which there are in, and the
// result behind them.
func topkRowOf(k *kernel.K, b []*kernel.Buf, in int, ints []kernel.V) topkRow {
	first := k.Mul(k.Group(), ints[0])
	r := topkRow{n: ints[0], count: ints[1], scores: b[0].At(first), y: b[in].At(k.Mul(k.Group(), ints[1]))}
	if in == 2 {
		r.rows = b[1].At(first)
	}
	return r
}

// store puts what is at score i, an index of one, in the given place.
func (r topkRow) store(place, i kernel.V) {
	if r.rows != nil {
		i = r.rows.Load(i)
	}
	r.y.Store(place, i)
}

// scoreKey orders scores as i32: greater scores have greater keys, -0 and +0 the
// same. What is never chosen has the smallest key, which no number has.
func scoreKey(k *kernel.K, x kernel.V) kernel.V {
	u := k.Bits(k.Add(x, k.Float(0))) // -0 + 0 is +0
	key := k.Xor(u, k.And(k.AShr(u, k.Int32(31)), k.Int32(math.MaxInt32)))
	return k.Select(k.Cmp(kernel.GT, x, k.Float(math.Inf(-1))), key, k.Int32(math.MinInt32))
}

// topkByPasses finds the best, then the best below it, and so on.
func topkByPasses(k *kernel.K, r topkRow) {
	// The key of score and index: greater scores first, then lower indices.
	const none = math.MinInt64
	above := k.UniformVar(k.Int(math.MaxInt64))
	k.For(k.Int(0), r.count, 1, func(j kernel.V) {
		best := k.Var(k.Int(none))
		limit := above.Get()
		k.Lanes(r.n, func(i kernel.V) {
			key := scoreKey(k, r.scores.Load(i))
			long := k.Or(k.Shl(k.Convert(key, kernel.I64), k.Int(32)), k.Sub(k.Int(math.MaxUint32), i))
			ok := k.And(k.Cmp(kernel.GT, key, k.Int32(math.MinInt32)), k.Cmp(kernel.LT, long, limit))
			best.Set(k.Max(k.Select(ok, long, k.Int(none)), best.Get()))
		})
		top := k.Reduce(best.Get(), k.Max)
		above.Set(top) // once nothing is left, nothing is below it
		id := k.Convert(k.Sub(k.Int(math.MaxUint32), k.And(top, k.Int(math.MaxUint32))), kernel.I32)
		missing := k.Cmp(kernel.EQ, top, k.Int(none))
		k.If(missing, func() { k.First(func() { r.y.Store(j, k.Int32(-1)) }) })
		k.If(k.Not(missing), func() { k.First(func() { r.store(j, id) }) })
	})
}

// topkByThreshold finds the k-th greatest key bit by bit, collects what is at
// least as great in index order, and ranks that.
func topkByThreshold(k *kernel.K, r topkRow, keys, places *kernel.Buf) {
	n, x, want := r.n, r.scores, k.Convert(r.count, kernel.I32)
	zero, one := k.Int32(0), k.Int32(1)
	none := k.Int32(math.MinInt32)
	// atLeast counts the keys from t on; the smallest key is never counted.
	atLeast := func(t kernel.V) kernel.V {
		sum := k.Var(zero)
		k.Lanes(n, func(i kernel.V) {
			key := scoreKey(k, x.Load(i))
			ok := k.And(k.Cmp(kernel.GE, key, t), k.Cmp(kernel.GT, key, none))
			sum.Set(k.Add(sum.Get(), k.Convert(ok, kernel.I32)))
		})
		return k.Sum(sum.Get())
	}
	// The greatest t that want keys reach, from its highest bit down; the smallest
	// number if there are not as many.
	t := k.UniformVar(none)
	k.For(k.Int(0), k.Int(32), 1, func(i kernel.V) {
		try := k.Xor(t.Get(), k.Shl(one, k.Sub(k.Int32(31), k.Convert(i, kernel.I32))))
		t.Set(k.Select(k.Cmp(kernel.GE, atLeast(try), want), try, t.Get()))
	})
	threshold := t.Get()
	ties := k.Sub(want, atLeast(k.Add(threshold, one))) // so many keys equal to it are chosen: the first ones
	found, tied := k.UniformVar(zero), k.UniformVar(zero)
	k.Chunks(n, func(i, in kernel.V) {
		key := k.Var(none)
		k.If(in, func() { key.Set(scoreKey(k, x.Load(i))) })
		real := k.Cmp(kernel.GT, key.Get(), none)
		equal := k.And(real, k.Cmp(kernel.EQ, key.Get(), threshold))
		before, all := k.Prefix(k.Convert(equal, kernel.I32))
		chosen := k.And(real, k.Cmp(kernel.GT, key.Get(), threshold))
		chosen = k.Or(chosen, k.And(equal, k.Cmp(kernel.LT, k.Add(before, tied.Get()), ties)))
		tied.Set(k.Add(tied.Get(), all))
		place, more := k.Prefix(k.Convert(chosen, kernel.I32))
		k.If(chosen, func() {
			at := k.Add(place, found.Get())
			keys.Store(at, key.Get())
			places.Store(at, k.Convert(i, kernel.I32))
		})
		found.Set(k.Add(found.Get(), more))
	})
	k.Barrier()
	count := found.Get()
	k.Lanes(k.Convert(count, kernel.I64), func(j kernel.V) {
		mine := keys.Load(j)
		rank := k.Var(zero)
		k.For(k.Int(0), k.Convert(count, kernel.I64), 1, func(i kernel.V) {
			other := keys.Load(i)
			earlier := k.And(k.Cmp(kernel.EQ, other, mine), k.Cmp(kernel.LT, i, j))
			rank.Set(k.Add(rank.Get(), k.Convert(k.Or(k.Cmp(kernel.GT, other, mine), earlier), kernel.I32)))
		})
		r.store(rank.Get(), places.Load(j))
	})
	k.Lanes(k.Sub(r.count, k.Convert(count, kernel.I64)), func(j kernel.V) {
		r.y.Store(k.Add(j, k.Convert(count, kernel.I64)), k.Int32(-1))
	})
}
