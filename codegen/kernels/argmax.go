package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "generic_argmax", Op: "argmax", Match: always, Lower: lowerArgmax},
		&Form{Name: "linear_argmax", Op: "linear_argmax", Match: always, Lower: lowerLinearArgmax},
	)
}

// What is known of a part of a row is its best key and which kinds of values it
// has; both combine in any order, so no result depends on how a row is cut.

// noKey is the key of no value: those of values are greater.
const noKey = math.MinInt64

// argmaxKey orders values, and equal ones by their index, the lower one first. It
// is noKey for what is never chosen.
func argmaxKey(k *kernel.K, x, i kernel.V) kernel.V {
	score := scoreKey(k, x)
	long := k.Or(k.Shl(k.Convert(score, kernel.I64), k.Int(32)), k.Sub(k.Int(math.MaxUint32), i))
	return k.Select(k.Cmp(kernel.GT, score, k.Int32(math.MinInt32)), long, k.Int(noKey))
}

// The kinds of values.
const (
	kindNaN = 1 << iota
	kindNumber
)

func argmaxKind(k *kernel.K, x kernel.V) kernel.V {
	return k.Select(k.Cmp(kernel.NE, x, x), k.Int32(kindNaN), k.Int32(kindNumber))
}

// storeArgmax stores the index and the flags of a row, from its best key and its
// kinds. All lanes must get here.
func storeArgmax(k *kernel.K, ids, flags *kernel.Buf, row, key, kinds kernel.V) {
	none := k.Cmp(kernel.EQ, key, k.Int(noKey))
	id := k.Sub(k.Int(math.MaxUint32), k.And(key, k.Int(math.MaxUint32)))
	id = k.Select(none, k.Int(0), id)
	has := func(kind int) kernel.V { return k.Cmp(kernel.NE, k.And(kinds, k.Int32(kind)), k.Int32(0)) }
	high := k.Cmp(kernel.EQ, k.AShr(key, k.Int(32)), k.Int(int(math.Float32bits(float32(math.Inf(1)))))) // the greatest score key
	flag := k.Int32(0)
	for _, f := range []struct {
		bit int
		set kernel.V
	}{
		{ir.ArgmaxNaN, has(kindNaN)}, {ir.ArgmaxAllNaN, k.Not(has(kindNumber))},
		{ir.ArgmaxHigh, high}, {ir.ArgmaxAllLow, k.And(none, has(kindNumber))},
	} {
		flag = k.Or(flag, k.Select(f.set, k.Int32(f.bit), k.Int32(0)))
	}
	k.First(func() {
		ids.Store(row, k.Convert(id, kernel.I32))
		flags.Store(row, flag)
	})
}

// lowerArgmax: one group per row.
func lowerArgmax(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	rows, n := shape[0], shape[1]
	l.Launch(Launch{
		Name: "argmax", Grid: rows, Work: 8 * int64(rows) * int64(n),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{n},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			x := b[0].At(k.Mul(k.Group(), ints[0]))
			best, kinds := k.Var(k.Int(noKey)), k.Var(k.Int32(0))
			k.Lanes(ints[0], func(i kernel.V) {
				v := x.Load(i)
				best.Set(k.Max(argmaxKey(k, v, i), best.Get()))
				kinds.Set(k.Or(argmaxKind(k, v), kinds.Get()))
			})
			key, kind := k.Reduce(best.Get(), k.Max), k.Reduce(kinds.Get(), k.Or)
			storeArgmax(k, b[1], b[2], k.Group(), key, kind)
		},
	})
	return nil
}

// argmaxTiles is how many tiles of columns a group of linear_argmax goes through:
// few enough that a vocabulary of 10^5 tokens gives every compute unit some groups,
// and many that what the second launch reads is little.
const argmaxTiles = 32

// lowerLinearArgmax never stores the product: each group keeps the best of some
// columns, and a second launch the best of those. The sums have the bits that the
// form of linear gives them.
func lowerLinearArgmax(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	p := matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), m: x[0], n: w[0], k: x[1], groups: 1}
	const width = argmaxTiles * tileN
	parts := ceilDiv(p.n, width)
	keys, kinds := l.Scratch(ir.I64, p.m*parts), l.Scratch(ir.I32, p.m*parts)
	p.argmax(l, keys, kinds, parts, width)
	l.Launch(Launch{
		Name: "argmax_parts", Grid: p.m, Work: 4 * int64(p.m) * int64(parts),
		In: []Ref{keys, kinds}, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{parts},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			first := k.Mul(k.Group(), ints[0])
			keys, kinds := b[0].At(first), b[1].At(first)
			best, kind := k.Var(k.Int(noKey)), k.Var(k.Int32(0))
			k.Lanes(ints[0], func(i kernel.V) {
				best.Set(k.Max(keys.Load(i), best.Get()))
				kind.Set(k.Or(kinds.Load(i), kind.Get()))
			})
			storeArgmax(k, b[2], b[3], k.Group(), k.Reduce(best.Get(), k.Max), k.Reduce(kind.Get(), k.Or))
		},
	})
	return nil
}

// argmax stores the best key and the kinds of each row's parts of so many columns,
// [m,parts].
func (p *matProduct) argmax(l Lowering, keys, kinds Ref, parts, width int) {
	mt := tileM
	if p.m < tileM {
		mt = 1
	}
	macs := int64(p.m) * int64(p.n) * int64(p.k)
	l.Launch(Launch{
		Name: "matmul_argmax", Spec: fmt.Sprintf("n%d k%d mt%d", p.n, p.k, mt), Grid: parts * ceilDiv(p.m, mt),
		Work: macs, Flops: 2 * macs, In: []Ref{p.x, p.w}, Out: []Ref{keys, kinds}, Ints: []int{p.m},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			// As in matmul, groups that share a weight row follow each other over m.
			tiles := k.UDiv(k.Add(ints[0], k.Int(mt-1)), k.Int(mt))
			part := k.UDiv(k.Group(), tiles)
			m0 := k.Mul(k.URem(k.Group(), tiles), k.Int(mt))
			best, kind := make([]*kernel.Var, mt), make([]*kernel.Var, mt)
			for r := range mt {
				best[r], kind[r] = k.UniformVar(k.Int(noKey)), k.UniformVar(k.Int32(0))
			}
			from := k.Mul(part, k.Int(width))
			to := k.Add(from, k.Int(width))
			to = k.Select(k.Cmp(kernel.LT, to, k.Int(p.n)), to, k.Int(p.n))
			k.For(from, to, tileN, func(n0 kernel.V) {
				cols, acc := p.tile(k, b, ints[0], k.Int(0), m0, n0, mt, tileN)
				for r := range mt {
					for j, col := range cols { // past the end it is the last one again
						v := k.Sum(acc[r*tileN+j].Get())
						best[r].Set(k.Max(argmaxKey(k, v, col), best[r].Get()))
						kind[r].Set(k.Or(argmaxKind(k, v), kind[r].Get()))
					}
				}
			})
			for r := range mt {
				row := k.Add(m0, k.Int(r))
				at := k.Add(k.Mul(row, k.Int(parts)), part)
				k.If(k.Cmp(kernel.LT, row, ints[0]), func() {
					k.First(func() {
						b[2].Store(at, best[r].Get())
						b[3].Store(at, kind[r].Get())
					})
				})
			}
		},
	})
}
