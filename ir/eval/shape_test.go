package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

func dims(shape ...int) []ir.Dim {
	out := make([]ir.Dim, len(shape))
	for i, s := range shape {
		out[i] = ir.Int(s)
	}
	return out
}

func constProp(t *rapid.T) {
	dt := rapid.SampledFrom(numTypes).Draw(t, "dtype")
	if b, isInt := intBounds[dt]; isInt {
		v := rapid.Int64Range(b[0], b[1]).Draw(t, "value")
		if dt == ir.I64 {
			v &^= 1<<11 - 1 // exact in a float64, which the attribute is
		}
		got := apply1(t, "const", ir.A("value", float64(v), "dtype", dt))
		wantShape(t, "const", got, dt)
		wantInts(t, "const", got, []int64{v})
		return
	}
	v := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-4, 4), rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1), math.NaN(), 0x1.01000001p0, math.Copysign(0, -1)})).Draw(t, "value")
	got := apply1(t, "const", ir.A("value", v, "dtype", dt))
	wantShape(t, "const", got, dt)
	wantFloats(t, "const", got, []float64{roundTo(dt, v)})
}

func iotaProp(t *rapid.T) {
	shape := drawShape(t, 1, 4)
	axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
	var want []int64
	each(shape, func(ix []int) { want = append(want, int64(ix[axis])) })
	got := apply1(t, "iota", ir.A("axis", axis, "shape", dims(shape...)))
	wantShape(t, "iota", got, ir.I32, shape...)
	wantInts(t, "iota", got, want)
}

// drawAny draws a tensor of any dtype, block-scaled ones included; even makes
// the last extent even, which packed f4e2m1 needs.
func drawAny(t *rapid.T, minRank, maxRank int, scaled bool) *Tensor {
	dt := rapid.SampledFrom(allTypes).Draw(t, "dtype")
	packed := dt == ir.F4E2M1
	if packed {
		minRank = max(minRank, 1)
	}
	withScales := scaled && slices.Contains(codeTypes, dt) && maxRank >= 2 && rapid.Bool().Draw(t, "scaled")
	if withScales {
		minRank = max(minRank, 2)
	}
	shape := drawShape(t, minRank, maxRank)
	if packed {
		shape[len(shape)-1] *= 2
	}
	if withScales {
		b0, b1 := rapid.IntRange(1, 4).Draw(t, "block0"), rapid.IntRange(1, 5).Draw(t, "block1")
		return randScaled(drawRand(t), dt, b0, b1, 9, 9, shape...)
	}
	return drawTensor(t, dt, shape...)
}

// wantSame checks that element i of got is element at of x, scales included.
func wantSame(t rapid.TB, op string, got *Tensor, gotIx []int, x *Tensor, ix []int) {
	t.Helper()
	i, at := flat(got.Shape, gotIx...), flat(x.Shape, ix...)
	if cell(got, i) != cell(x, at) {
		t.Fatalf("%s: element %v is %s, want %s", op, gotIx, show(got, i), show(x, at))
	}
	if x.Quant != nil && scaleByte(got, gotIx) != scaleByte(x, ix) {
		t.Fatalf("%s: element %v has scale %d, want %d", op, gotIx, scaleByte(got, gotIx), scaleByte(x, ix))
	}
}

// unflat is the index of position p.
func unflat(shape []int, p int) []int {
	ix := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		ix[i], p = p%shape[i], p/shape[i]
	}
	return ix
}

func reshapeProp(t *rapid.T) {
	x := drawAny(t, 0, 4, true)
	keep := 0 // axes that must stay at the end
	if x.Quant != nil {
		keep = 2
	} else if x.DType == ir.F4E2M1 {
		keep = 1
	}
	head, tail := x.Shape[:len(x.Shape)-keep], x.Shape[len(x.Shape)-keep:]
	// Split the product of the head into prime-ish factors and group them anew.
	shape := []int{}
	for n := size(head); n > 1; {
		var divisors []int
		for d := 2; d <= n; d++ {
			if n%d == 0 {
				divisors = append(divisors, d)
			}
		}
		d := rapid.SampledFrom(divisors).Draw(t, "factor")
		shape = append(shape, d)
		n /= d
	}
	if rapid.Bool().Draw(t, "one") {
		shape = slices.Insert(shape, rapid.IntRange(0, len(shape)).Draw(t, "at"), 1)
	}
	shape = append(shape, tail...)
	got := apply1(t, "reshape", ir.A("shape", dims(shape...)), x)
	wantShape(t, "reshape", got, x.DType, shape...)
	for p := range x.Len() {
		wantSame(t, "reshape", got, unflat(shape, p), x, unflat(x.Shape, p))
	}
}

func broadcastProp(t *rapid.T) {
	x := drawAny(t, 0, 4, false)
	shape := slices.Clone(x.Shape)
	if len(shape) == 0 {
		shape = drawShape(t, 0, 4)
	}
	for i := range shape {
		if shape[i] == 1 {
			shape[i] = rapid.SampledFrom(extents).Draw(t, "extent")
		}
	}
	got := apply1(t, "broadcast", ir.A("shape", dims(shape...)), x)
	wantShape(t, "broadcast", got, x.DType, shape...)
	each(shape, func(ix []int) {
		wantSame(t, "broadcast", got, ix, x, unflat(x.Shape, repeated(x.Shape, ix)))
	})
}

func transposeProp(t *rapid.T) {
	dt := rapid.SampledFrom(without(allTypes, ir.F4E2M1)).Draw(t, "dtype")
	x := drawTensor(t, dt, drawShape(t, 0, 4)...)
	axes := make([]int, len(x.Shape))
	for i := range axes {
		axes[i] = i
	}
	perm := axes
	if len(axes) > 0 {
		perm = rapid.Permutation(axes).Draw(t, "perm")
	}
	shape := make([]int, len(perm))
	for i, p := range perm {
		shape[i] = x.Shape[p]
	}
	got := apply1(t, "transpose", ir.A("perm", perm), x)
	wantShape(t, "transpose", got, dt, shape...)
	each(shape, func(ix []int) {
		from := make([]int, len(ix))
		for i, p := range perm {
			from[p] = ix[i]
		}
		wantSame(t, "transpose", got, ix, x, from)
	})
}

func sliceProp(t *rapid.T) {
	x := drawAny(t, 1, 4, true)
	axes := len(x.Shape)
	if x.Quant != nil || x.DType == ir.F4E2M1 {
		if axes -= 2; axes < 1 {
			x = drawTensor(t, ir.F32, drawShape(t, 1, 4)...)
			axes = len(x.Shape)
		}
	}
	axis := rapid.IntRange(0, axes-1).Draw(t, "axis")
	start := rapid.IntRange(0, x.Shape[axis]-1).Draw(t, "start")
	n := rapid.IntRange(1, x.Shape[axis]-start).Draw(t, "size")
	got := apply1(t, "slice", ir.A("axis", axis, "start", start, "size", n), x)
	shape := slices.Clone(x.Shape)
	shape[axis] = n
	wantShape(t, "slice", got, x.DType, shape...)
	each(shape, func(ix []int) {
		from := slices.Clone(ix)
		from[axis] += start
		wantSame(t, "slice", got, ix, x, from)
	})
}

func concatProp(t *rapid.T) {
	first := drawAny(t, 1, 4, true)
	axes := len(first.Shape)
	if first.Quant != nil || first.DType == ir.F4E2M1 {
		if axes--; axes < 1 {
			first = drawTensor(t, ir.F32, drawShape(t, 1, 4)...)
			axes = len(first.Shape)
		}
	}
	axis := rapid.IntRange(0, axes-1).Draw(t, "axis")
	r := drawRand(t)
	var parts []*Tensor
	total := 0
	n := rapid.IntRange(1, 4).Draw(t, "operands")
	for i := range n {
		shape := slices.Clone(first.Shape)
		shape[axis] = rapid.SampledFrom(extents).Draw(t, "extent")
		q := first.Quant
		if q != nil && axis == len(shape)-2 && i < n-1 {
			shape[axis] *= q.Block[0] // end on a block border
		}
		if q != nil {
			parts = append(parts, randScaled(r, first.DType, q.Block[0], q.Block[1], 9, 9, shape...))
		} else {
			parts = append(parts, randTensor(r, patterns, first.DType, shape...))
		}
		total += shape[axis]
	}
	got := apply1(t, "concat", ir.A("axis", axis), parts...)
	shape := slices.Clone(first.Shape)
	shape[axis] = total
	wantShape(t, "concat", got, first.DType, shape...)
	start := 0
	for _, p := range parts {
		each(p.Shape, func(ix []int) {
			to := slices.Clone(ix)
			to[axis] += start
			wantSame(t, "concat", got, to, p, ix)
		})
		start += p.Shape[axis]
	}
}

// Packed and block-scaled rank-3 tensors, as experts' weights are, on the axes
// that move whole matrices and on the row axis with a short last block.
func TestConcatSliceScaledRank3(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, dt := range codeTypes {
		a, b := randScaled(r, dt, 2, 4, 9, 9, 3, 4, 6), randScaled(r, dt, 2, 4, 9, 9, 3, 3, 6)
		joined := apply1(t, "concat", ir.A("axis", 1), a, b)
		wantShape(t, "concat", joined, dt, 3, 7, 6)
		if len(joined.Scales) != 3*4*2 {
			t.Fatalf("%s: %d scales, want 24", dt, len(joined.Scales))
		}
		part := apply1(t, "slice", ir.A("axis", 0, "start", 1, "size", 2), joined)
		each([]int{2, 7, 6}, func(ix []int) {
			from, row := a, ix[1]
			if row >= 4 {
				from, row = b, row-4
			}
			wantSame(t, fmt.Sprintf("%s slice of concat", dt), part, ix, from, []int{ix[0] + 1, row, ix[2]})
		})
	}
}

func hadamardMatrixProp(t *rapid.T) {
	n := 1 << rapid.IntRange(0, 7).Draw(t, "log2 n")
	got := apply1(t, "hadamard_matrix", ir.A("n", n))
	wantShape(t, "hadamard_matrix", got, ir.F32, n, n)
	h := sylvester(n)
	var want []float64
	for _, row := range h {
		want = append(want, row...)
	}
	wantFloats(t, "hadamard_matrix", got, want)
}

// sylvester doubles [[1]] by H -> [[H, H], [H, -H]].
func sylvester(n int) [][]float64 {
	h := [][]float64{{1}}
	for len(h) < n {
		var next [][]float64
		for _, row := range h {
			next = append(next, slices.Concat(row, row))
		}
		for _, row := range h {
			neg := make([]float64, len(row))
			for i, v := range row {
				neg[i] = -v
			}
			next = append(next, slices.Concat(row, neg))
		}
		h = next
	}
	return h
}
