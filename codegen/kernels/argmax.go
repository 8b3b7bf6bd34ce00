package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "generic_argmax", Op: "argmax", Match: always, Lower: lowerArgmax},
		&Form{Name: "linear_argmax_mma", Op: "linear_argmax", Match: onMMA(matchMatrixLinear), Lower: lowerMatrixLinearArgmax},
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

// argmaxOf is the index, an i64, and the flags of a row, from its best key and its
// kinds.
func argmaxOf(k *kernel.K, key, kinds kernel.V) (id, flags kernel.V) {
	none := k.Cmp(kernel.EQ, key, k.Int(noKey))
	id = k.Sub(k.Int(math.MaxUint32), k.And(key, k.Int(math.MaxUint32)))
	id = k.Select(none, k.Int(0), id)
	has := func(kind int) kernel.V { return k.Cmp(kernel.NE, k.And(kinds, k.Int32(kind)), k.Int32(0)) }
	high := k.Cmp(kernel.EQ, k.AShr(key, k.Int(32)), k.Int(int(math.Float32bits(float32(math.Inf(1)))))) // the greatest score key
	flags = k.Int32(0)
	for _, f := range []struct {
		bit int
		set kernel.V
	}{
		{ir.ArgmaxNaN, has(kindNaN)}, {ir.ArgmaxAllNaN, k.Not(has(kindNumber))},
		{ir.ArgmaxHigh, high}, {ir.ArgmaxAllLow, k.And(none, has(kindNumber))},
	} {
		flags = k.Or(flags, k.Select(f.set, k.Int32(f.bit), k.Int32(0)))
	}
	return id, flags
}

// storeArgmax stores the index and the flags of a row, from its best key and its
// kinds. All lanes must get here.
func storeArgmax(k *kernel.K, ids, flags *kernel.Buf, row, key, kinds kernel.V) {
	id, flag := argmaxOf(k, key, kinds)
	k.First(func() {
		ids.Store(row, k.Convert(id, kernel.I32))
		flags.Store(row, flag)
	})
}

// bestOf is the best key and the kinds of n values, from the one at index from on. All
// lanes must get here.
func bestOf(k *kernel.K, x *kernel.Buf, from, n kernel.V) (key, kinds kernel.V) {
	best, all := k.Var(k.Int(noKey)), k.Var(k.Int32(0))
	k.Lanes(n, func(i kernel.V) {
		i = k.Add(i, from)
		v := x.Load(i)
		best.Set(k.Max(argmaxKey(k, v, i), best.Get()))
		all.Set(k.Or(argmaxKind(k, v), all.Get()))
	})
	return k.Reduce(best.Get(), k.Max), k.Reduce(all.Get(), k.Or)
}

// bestOfParts joins what is known of the parts of a row. All lanes must get here.
func bestOfParts(k *kernel.K, keys, kinds *kernel.Buf, row, parts kernel.V) (key, kind kernel.V) {
	first := k.Mul(row, parts)
	keys, kinds = keys.At(first), kinds.At(first)
	best, all := k.Var(k.Int(noKey)), k.Var(k.Int32(0))
	k.Lanes(parts, func(i kernel.V) {
		best.Set(k.Max(keys.Load(i), best.Get()))
		all.Set(k.Or(kinds.Load(i), all.Get()))
	})
	return k.Reduce(best.Get(), k.Max), k.Reduce(all.Get(), k.Or)
}

// lowerArgmax: one group per row, or per shard of a row that is long and another
// launch.
func lowerArgmax(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	rows, n := shape[0], shape[1]
	columns := o.Columns(n)
	if b, ok := argmaxBatchesOf(l, l.Buf(o.Args[0]), rows, n, columns); ok && b.parts == 1 {
		b.launchRows(l, o)
		return nil
	}
	if columns > shardWidth {
		launchOfParts(l, o, launchShards(l, l.Buf(o.Args[0]), rows, n, columns))
		return nil
	}
	l.Launch(Launch{
		Name: "argmax", Grid: rows, Work: 8 * int64(rows) * int64(columns),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{n, columns},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			key, kinds := bestOf(k, b[0].At(k.Mul(k.Group(), ints[0])), k.Int(0), ints[1])
			storeArgmax(k, b[1], b[2], k.Group(), key, kinds)
		},
	})
	return nil
}

// shardWidth is how many columns one group of a long row goes through: few enough
// that a vocabulary of 10^5 tokens gives a row some tens of groups, and many that
// what the second launch reads is little.
const shardWidth = 2048

// rowParts is what is known of each row's parts: [rows,parts].
type rowParts struct {
	rows, parts int
	keys, kinds Ref
}

// newRowParts reserves memory for what is known of parts.
func newRowParts(l Lowering, rows, parts int) rowParts {
	return rowParts{rows, parts, l.Scratch(ir.I64, rows*parts), l.Scratch(ir.I32, rows*parts)}
}

// launchShards looks at each shard of the first columns of the rows of x [rows,n].
func launchShards(l Lowering, x Ref, rows, n, columns int) rowParts {
	if b, ok := argmaxBatchesOf(l, x, rows, n, columns); ok {
		return b.launchParts(l)
	}
	if vectors, per := argmaxLanes(l, x, rows, n, columns); vectors > 0 {
		return launchLaneShards(l, x, rows, n, columns, vectors, per)
	}
	p := newRowParts(l, rows, ceilDiv(columns, shardWidth))
	l.Launch(Launch{
		Name: "argmax_shards", Grid: p.rows * p.parts, Work: 8 * int64(p.rows) * int64(columns),
		In: []Ref{x}, Out: []Ref{p.keys, p.kinds}, Ints: []int{n, columns, p.parts},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row, part := k.UDiv(k.Group(), ints[2]), k.URem(k.Group(), ints[2])
			from := k.Mul(part, k.Int(shardWidth))
			n := k.Min(k.Sub(ints[1], from), k.Int(shardWidth))
			key, kinds := bestOf(k, b[0].At(k.Mul(row, ints[0])), from, n)
			k.First(func() {
				b[1].Store(k.Group(), key)
				b[2].Store(k.Group(), kinds)
			})
		},
	})
	return p
}

// launchOfParts stores the ids and flags of argmax, from what is known of parts.
func launchOfParts(l Lowering, o *ir.Op, p rowParts) {
	if l.Target().Kind == target.NVPTX && p.parts <= argmaxMostParts {
		launchWarpParts(l, o, p)
		return
	}
	l.Launch(Launch{
		Name: "argmax_parts", Grid: p.rows, Work: 4 * int64(p.rows) * int64(p.parts),
		In: []Ref{p.keys, p.kinds}, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Ints: []int{p.parts},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			key, kinds := bestOfParts(k, b[0], b[1], k.Group(), ints[0])
			storeArgmax(k, b[2], b[3], k.Group(), key, kinds)
		},
	})
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
	// Padded columns are the last rows of the weight, which are then not read.
	p := matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), m: x[0], n: o.Columns(w[0]), k: x[1], groups: 1}
	const width = argmaxTiles * tileN
	parts := newRowParts(l, p.m, ceilDiv(p.n, width))
	p.argmax(l, parts, width)
	launchOfParts(l, o, parts)
	return nil
}

// lowerMatrixLinearArgmax stores the product where it is needed for the next launches
// only: writing and reading it takes a part of what reading the weight takes, and the
// product is that of linear_mma, with its bits.
func lowerMatrixLinearArgmax(l Lowering, o *ir.Op) error {
	rows, columns := dims(o.Args[0])[0], o.Columns(dims(o.Args[1])[0])
	n := dims(o.Args[1])[0]
	y := l.Scratch(ir.F32, rows*n)
	p := matrixLaunch{m: rows, groups: 1, x: matrixOperand{x: l.Buf(o.Args[0])}, y: []Ref{y}}
	p.weights(l, n, o.Args[1])
	p.launch(l)
	launchOfParts(l, o, launchShards(l, y, rows, n, columns))
	return nil
}

// argmax stores the best key and the kinds of each row's parts of so many columns,
// [m,parts].
func (p *matProduct) argmax(l Lowering, to rowParts, width int) {
	parts := to.parts
	mt := tileM
	if p.m < tileM {
		mt = 1
	}
	macs := int64(p.m) * int64(p.n) * int64(p.k)
	l.Launch(Launch{
		Name: "matmul_argmax", Spec: fmt.Sprintf("n%d k%d mt%d", p.n, p.k, mt), Grid: parts * ceilDiv(p.m, mt),
		Work: macs, Flops: 2 * macs, In: []Ref{p.x, p.w}, Out: []Ref{to.keys, to.kinds}, Ints: []int{p.m},
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
