package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Shards of argmax on AMD's GPUs, of rows that can be read as vectors. A lane has the loads of
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
	if l.Target().Kind != target.AMDGPU || x.DT != ir.BF16 && x.DT != ir.F32 {
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
			bits := wordsOf(per)
			best, at, spoiled := k.Float(math.Inf(-1)), k.Int32(0), k.Int32(0)
			for i := range words {
				words[i] = k.MapVec(func(w ...kernel.V) kernel.V { return k.Select(in[i], w[0], k.Int32(bits.low)) }, words[i])
				for j := range words[i].Len() {
					w := k.At(words[i], j)
					spoiled = k.Or(spoiled, k.Add(k.And(w, k.Int32(bits.magnitude)), k.Int32(bits.aboveInf)))
				}
				for j := range per {
					v := numberOf(k, words[i], j, per)
					better := k.Cmp(kernel.GT, v, best)
					best = k.Select(better, v, best)
					at = k.Select(better, k.Int32(i*per*k.T.Lanes+j), at)
				}
			}
			nan := k.Cmp(kernel.NE, k.And(spoiled, k.Int32(^bits.magnitude)), k.Int32(0))
			some := k.Cmp(kernel.GT, best, k.Float(math.Inf(-1)))
			numbers := k.Var(k.Convert(some, kernel.I32))
			k.If(k.Not(some), func() { // -inf is a number
				for i := range words {
					for j := range per {
						v := numberOf(k, words[i], j, per)
						is := k.And(in[i], k.Cmp(kernel.EQ, v, v))
						numbers.Set(k.Or(numbers.Get(), k.Convert(is, kernel.I32)))
					}
				}
			})
			number := k.Cmp(kernel.NE, numbers.Get(), k.Int32(0))
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

// wordBits are what words of numbers are told by.
type wordBits struct {
	low       int // of -inf
	magnitude int // mask of all bits but signs
	aboveInf  int // added to a magnitude, it carries into the sign for NaN alone
}

// wordsOf is for vectors of so many numbers: two of bf16 in a word, or one of f32.
func wordsOf(per int) wordBits {
	if per == 8 {
		return wordBits{low: -0x7f0080, magnitude: 0x7fff7fff, aboveInf: 0x007f007f}
	}
	return wordBits{low: -0x800000, magnitude: 0x7fffffff, aboveInf: 0x007fffff}
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
