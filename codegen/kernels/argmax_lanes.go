package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// Shards of argmax on GPUs, of rows that can be read as vectors. A lane has the loads of
// all its elements under way together, and keeps their largest and where it stands: of
// equal ones the first, since it looks at them in the order of their columns.

// argmaxVectors is how many vectors a lane reads, for rows of which every processor gets
// several shards anyway; for fewer, shards are smaller, so that more processors read.
const (
	argmaxVectors    = 8
	argmaxFewVectors = 1
	argmaxManyGroups = 256
)

// argmaxLanes is how many vectors the lanes of a group read, and how many elements a
// vector has; 0 if rows do not lie in vectors.
func argmaxLanes(l Lowering, x Ref, rows, n, columns int) (vectors, per int) {
	if !l.Target().GPU() || x.DT != ir.BF16 && x.DT != ir.F32 {
		return 0, 0
	}
	per = int(16 / x.DT.Bytes(1))
	if n%per != 0 || columns%per != 0 {
		return 0, 0
	}
	if rows*(columns/(argmaxVectors*per*l.Target().Lanes)) < argmaxManyGroups {
		return argmaxFewVectors, per
	}
	return argmaxVectors, per
}

// launchLaneShards is launchShards of rows that lie in vectors.
func launchLaneShards(l Lowering, x Ref, rows, n, columns, vectors, per int) rowParts {
	width := vectors * per * l.Target().Lanes
	p := newRowParts(l, rows, ceilDiv(columns, width))
	l.Launch(Launch{
		Name: "argmax_lanes", Spec: fmt.Sprintf("vectors%d", vectors), Grid: rows * p.parts, Work: 8 * int64(rows) * int64(columns),
		In: []Ref{x}, Out: []Ref{p.keys, p.kinds}, Ints: []int{n, columns, p.parts},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row, part := k.UDiv(k.Group(), ints[2]), k.URem(k.Group(), ints[2])
			from := k.Add(k.Mul(part, k.Int(width)), k.Mul(k.Lane(), k.Int(per)))
			x := b[0].At(k.Mul(row, ints[0]))
			words, in := make([]kernel.Vec, vectors), make([]kernel.V, vectors)
			for i := range words {
				at := k.Add(from, k.Int(i*per*k.T.Lanes))
				in[i] = k.Cmp(kernel.LT, at, ints[1])
				words[i] = x.LoadVec(k.Select(in[i], at, k.Int(0)), per)
			}
			best, at := k.Float(math.Inf(-1)), k.Int32(0)
			nan := k.Cmp(kernel.NE, k.Int32(0), k.Int32(0))
			number := nan
			for i := range words {
				for j := range per {
					v := numberOf(k, words[i], j, per)
					number = k.Or(number, k.And(in[i], k.Cmp(kernel.EQ, v, v)))
					nan = k.Or(nan, k.And(in[i], k.Cmp(kernel.NE, v, v)))
					better := k.And(in[i], k.Cmp(kernel.GT, v, best))
					best = k.Select(better, v, best)
					at = k.Select(better, k.Int32(i*per*k.T.Lanes+j), at)
				}
			}
			long := argmaxKey(k, best, k.Add(from, k.Convert(at, kernel.I64)))
			kinds := k.Or(k.Select(nan, k.Int32(kindNaN), k.Int32(0)), k.Select(number, k.Int32(kindNumber), k.Int32(0)))
			key, all := k.Reduce(long, k.Max), k.Reduce(kinds, k.Or)
			k.First(func() {
				b[1].Store(k.Group(), key)
				b[2].Store(k.Group(), all)
			})
		},
	})
	return p
}

// numberOf is element j of a vector of per elements, bf16 or f32.
func numberOf(k *kernel.K, words kernel.Vec, j, per int) kernel.V {
	if per == words.Len() {
		return k.Bits(k.At(words, j))
	}
	w := k.At(words, j/2)
	if j%2 == 0 {
		return k.Bits(k.Shl(w, k.Int32(16)))
	}
	return k.Bits(k.And(w, k.Int32(-1<<16)))
}
