package eval

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// along lists the values of x on the line through ix along axis.
func along(x []float64, shape, ix []int, axis int) []float64 {
	at := slices.Clone(ix)
	var line []float64
	for at[axis] = range shape[axis] {
		line = append(line, x[flat(shape, at...)])
	}
	return line
}

func drawReduction(t *rapid.T) (x *Tensor, axis int, shape []int) {
	dt := rapid.SampledFrom(floatTypes).Draw(t, "dtype")
	x = drawTensor(t, dt, drawShape(t, 1, 4)...)
	axis = rapid.IntRange(0, len(x.Shape)-1).Draw(t, "axis")
	shape = slices.Clone(x.Shape)
	shape[axis] = 1
	return x, axis, shape
}

func reduceSumProp(t *rapid.T) {
	x, axis, shape := drawReduction(t)
	to := rapid.SampledFrom(floatTypes).Draw(t, "to")
	v := floats(x)
	var want []float64
	each(shape, func(ix []int) { want = append(want, roundTo(to, sumOf(along(v, x.Shape, ix, axis)))) })
	got := apply1(t, "reduce_sum", ir.A("axis", axis, "to", to), x)
	wantShape(t, "reduce_sum", got, to, shape...)
	wantFloats(t, "reduce_sum", got, want)
}

func reduceMaxProp(t *rapid.T) {
	x, axis, shape := drawReduction(t)
	v := floats(x)
	var want []float64
	each(shape, func(ix []int) {
		line := along(v, x.Shape, ix, axis)
		m := line[0]
		for _, y := range line[1:] {
			m = binaryOf["max"](m, y)
		}
		want = append(want, m)
	})
	got := apply1(t, "reduce_max", ir.A("axis", axis), x)
	wantShape(t, "reduce_max", got, x.DType, shape...)
	wantFloats(t, "reduce_max", got, want)
}

func dotProp(t *rapid.T) {
	batch := drawShape(t, 0, 2)
	m, n, k := rapid.SampledFrom(extents).Draw(t, "m"), rapid.IntRange(1, 9).Draw(t, "n"), rapid.SampledFrom(extents).Draw(t, "k")
	side := func(rows int) []int {
		b := slices.Clone(batch)
		for i := range b {
			if rapid.IntRange(0, 2).Draw(t, "repeat") == 0 {
				b[i] = 1
			}
		}
		return append(b, rows, k)
	}
	x := drawTensor(t, rapid.SampledFrom(floatTypes).Draw(t, "x"), side(m)...)
	w := drawTensor(t, rapid.SampledFrom(floatTypes).Draw(t, "w"), side(n)...)
	to := rapid.SampledFrom(floatTypes).Draw(t, "to")
	want, shape := dotRef(to, floats(x), x.Shape, floats(w), w.Shape)
	got := apply1(t, "dot", ir.A("to", to), x, w)
	wantShape(t, "dot", got, to, shape...)
	wantFloats(t, "dot", got, want)
}

// dotRef is y[..,m,n] = sum_k x[..,m,k] w[..,n,k], rounded once.
func dotRef(to ir.DType, x []float64, xs []int, w []float64, ws []int) (y []float64, shape []int) {
	r := len(xs)
	shape = slices.Concat(joined(xs[:r-2], ws[:r-2]), []int{xs[r-2], ws[r-2]})
	k := xs[r-1]
	each(shape, func(ix []int) {
		row := func(s []int, at int) int {
			return repeated(s, append(slices.Clone(ix[:r-2]), at, 0))
		}
		px, pw := row(xs, ix[r-2]), row(ws, ix[r-1])
		y = append(y, roundTo(to, dotOf(x[px:px+k], w[pw:pw+k])))
	})
	return y, shape
}

// A sum just above the midpoint of two narrow numbers: by way of f32 it falls on
// the midpoint and then to the even neighbour below.
func TestSumsRoundOnce(t *testing.T) {
	const tiny = 0x1p-40
	for _, c := range []struct {
		to         ir.DType
		half, want float64
	}{
		{ir.BF16, 0x1p-8, 1 + 0x1p-7},
		{ir.F16, 0x1p-11, 1 + 0x1p-10},
		{ir.F32, 0x1p-24, 1 + 0x1p-23},
	} {
		terms := []float64{1, c.half, tiny}
		if twice := roundTo(c.to, r32(sumOf(terms))); c.to != ir.F32 && twice == c.want {
			t.Fatalf("%s: the case does not tell one rounding from two", c.to)
		}
		v := []float32{1, float32(c.half), tiny}
		ones := f32s([]float32{1, 1, 1}, 1, 3)
		wantFloats(t, "reduce_sum", apply1(t, "reduce_sum", ir.A("axis", 0, "to", c.to), f32s(v, 3)), []float64{c.want})
		wantFloats(t, "dot", apply1(t, "dot", ir.A("to", c.to), f32s(v, 1, 3), ones), []float64{c.want})
	}
	// The same midpoint reached exactly goes to the even neighbour.
	exact := f32s([]float32{1, 0x1p-8}, 2)
	wantFloats(t, "reduce_sum", apply1(t, "reduce_sum", ir.A("axis", 0, "to", ir.BF16), exact), []float64{1})
}

// Sums far longer than an f32 accumulator could keep exact.
func TestSumsAccumulateInFloat64(t *testing.T) {
	const n = 1 << 12
	v := make([]float32, n+2)
	v[0] = 1 << 30
	for i := 1; i <= n; i++ {
		v[i] = 1
	}
	v[n+1] = -(1 << 30)
	x := f32s(v, 1, len(v))
	ones := x.Clone()
	for i := range ones.F {
		ones.F[i] = 1
	}
	wantFloats(t, "reduce_sum", apply1(t, "reduce_sum", ir.A("axis", 1), x), []float64{n})
	wantFloats(t, "dot", apply1(t, "dot", nil, x, ones), []float64{n})
}

func topkProp(t *rapid.T) {
	dt := rapid.SampledFrom(floatTypes).Draw(t, "dtype")
	x := drawTensor(t, dt, drawShape(t, 1, 3)...)
	n := x.Shape[len(x.Shape)-1]
	if rapid.Bool().Draw(t, "ties") {
		for i := range x.F {
			x.F[i] = float32(i * 7 % 3)
		}
	}
	k := rapid.IntRange(1, n+2).Draw(t, "k")
	v := floats(x)
	var want []int64
	for row := 0; row < len(v); row += n {
		want = append(want, largest(v[row:row+n], k)...)
	}
	got := apply1(t, "topk", ir.A("k", k), x)
	shape := append(slices.Clone(x.Shape[:len(x.Shape)-1]), k)
	wantShape(t, "topk", got, ir.I32, shape...)
	wantInts(t, "topk", got, want)
}

// topkRowsProp: what stands at the ids of topk, -1 where there is none.
func topkRowsProp(t *rapid.T) {
	x := drawTensor(t, rapid.SampledFrom(floatTypes).Draw(t, "dtype"), drawShape(t, 1, 3)...)
	rows := drawTensor(t, ir.I32, x.Shape...)
	n := x.Shape[len(x.Shape)-1]
	k := rapid.IntRange(1, n+2).Draw(t, "k")
	v := floats(x)
	var want []int64
	for row := 0; row < len(v); row += n {
		for _, id := range largest(v[row:row+n], k) {
			if id >= 0 {
				id = rows.I[row+int(id)]
			}
			want = append(want, id)
		}
	}
	got := apply1(t, "topk_rows", ir.A("k", k), x, rows)
	wantShape(t, "topk_rows", got, ir.I32, append(slices.Clone(x.Shape[:len(x.Shape)-1]), k)...)
	wantInts(t, "topk_rows", got, want)
}

// largest takes k times the largest that is left, the first of equals.
func largest(v []float64, k int) []int64 {
	used := make([]bool, len(v))
	var ids []int64
	for range k {
		best := -1
		for i, x := range v {
			if !used[i] && x > math.Inf(-1) && (best < 0 || x > v[best]) {
				best = i
			}
		}
		if ids = append(ids, int64(best)); best >= 0 {
			used[best] = true
		}
	}
	return ids
}

func TestTopKChoice(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	zero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		scores []float32
		k      int
		want   []int64
	}{
		{[]float32{1, 3, 3, 2}, 3, []int64{1, 2, 3}},
		{[]float32{0, zero, 0}, 2, []int64{0, 1}},
		{[]float32{zero, 0}, 1, []int64{0}},
		{[]float32{nan, -inf, 5}, 3, []int64{2, -1, -1}},
		{[]float32{-inf, -inf}, 1, []int64{-1}},
		{[]float32{1, inf, nan, inf}, 2, []int64{1, 3}},
		{[]float32{4}, 2, []int64{0, -1}},
	} {
		got := apply1(t, "topk", ir.A("k", c.k), f32s(c.scores, len(c.scores)))
		wantInts(t, fmt.Sprintf("topk %v", c.scores), got, c.want)
	}
}
