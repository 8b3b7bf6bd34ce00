package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// linearRef is y[m,n] = sum_k x[m,k] w[n,k], rounded once.
func linearRef(to ir.DType, x, w []float64, k int) []float64 {
	var y []float64
	for m := 0; m < len(x); m += k {
		for n := 0; n < len(w); n += k {
			y = append(y, roundTo(to, dotOf(x[m:m+k], w[n:n+k])))
		}
	}
	return y
}

// actQuant is x after activation quantisation: e4m3 in blocks of 128.
func actQuant(x []float64) []float64 {
	return throughFormat(ir.F8E4M3, x, 128, 1e-4)
}

func throughFormat(to ir.DType, x []float64, block int, floor float64) []float64 {
	var y []float64
	for i := 0; i < len(x); i += block {
		scale, codes := quantRef(to, x[i:i+block], floor)
		for _, c := range codes {
			y = append(y, c*codeValue(ir.E8M0, scale))
		}
	}
	return y
}

func linearProp(t *rapid.T) {
	m, n, k := rapid.SampledFrom(extents).Draw(t, "M"), rapid.SampledFrom(extents).Draw(t, "N"), rapid.SampledFrom([]int{1, 7, 33}).Draw(t, "K")
	types := []ir.DType{ir.BF16, ir.F32}
	x := drawNormal(t, rapid.SampledFrom(types).Draw(t, "x"), m, k)
	w := drawNormal(t, rapid.SampledFrom(types).Draw(t, "w"), n, k)
	to := rapid.SampledFrom(types).Draw(t, "to")
	got := apply1(t, "linear", ir.A("to", to), x, w)
	wantShape(t, "linear", got, to, m, n)
	wantFloats(t, "linear", got, linearRef(to, floats(x), floats(w), k))
}

// drawWeight draws a block-scaled weight: the checkpoint's two layouts, and
// others with short edge blocks; scales far from 1.
func drawWeight(t *rapid.T, r *rand.Rand, shape ...int) *Tensor {
	kind := rapid.IntRange(0, 3).Draw(t, "weight format")
	lo, hi := 12, 4
	if rapid.IntRange(0, 3).Draw(t, "far scales") == 0 {
		lo, hi = 100, 90
	}
	switch kind {
	case 0:
		return randScaled(r, ir.F4E2M1, 1, 32, lo, hi, shape...)
	case 1:
		return randScaled(r, ir.F8E4M3FNUZ, 3, 48, lo, hi, shape...)
	}
	return randScaled(r, ir.F8E4M3, 128, 128, lo, hi, shape...)
}

func blockLinearProp(t *rapid.T) {
	m := rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "M")
	n := rapid.SampledFrom([]int{1, 3, 5, 127, 129, 131}).Draw(t, "N")
	k := rapid.SampledFrom([]int{128, 256}).Draw(t, "K")
	x := drawNormal(t, ir.BF16, m, k)
	if tiny := rapid.IntRange(0, 2).Draw(t, "tiny blocks"); tiny > 0 { // below the floor of the scale, or 0
		for i := range x.F[:128] {
			x.F[i] *= float32(tiny-1) * 0x1p-20
		}
	}
	w := drawWeight(t, drawRand(t), n, k)
	got := apply1(t, "block_linear", nil, x, w)
	wantShape(t, "block_linear", got, ir.BF16, m, n)
	wantFloats(t, "block_linear", got, linearRef(ir.BF16, actQuant(floats(x)), floats(w), k))
}

// splitLinearProp: each result is block_linear with that part of the weight.
func splitLinearProp(t *rapid.T) {
	m := rapid.SampledFrom([]int{1, 3}).Draw(t, "M")
	sizes := []int{rapid.SampledFrom([]int{1, 5, 128}).Draw(t, "N0"), rapid.SampledFrom([]int{1, 3, 129}).Draw(t, "N1")}
	x, k := drawNormal(t, ir.BF16, m, 256), 256
	w := drawWeight(t, drawRand(t), sizes[0]+sizes[1], k)
	got, err := apply(t, "split_linear", ir.A("sizes", sizes), x, w)
	if err != nil {
		t.Fatal(err)
	}
	from := 0
	for i, n := range sizes {
		wantShape(t, "split_linear", got[i], ir.BF16, m, n)
		wantFloats(t, "split_linear", got[i], linearRef(ir.BF16, actQuant(floats(x)), floats(w)[from*k:(from+n)*k], k))
		from += n
	}
}

// joinedLinearProp: each result is linear with that part of the weight.
func joinedLinearProp(parts int) func(t *rapid.T) {
	return func(t *rapid.T) {
		name, m, k := fmt.Sprintf("linear%d", parts), rapid.SampledFrom(extents).Draw(t, "M"), rapid.SampledFrom([]int{1, 7, 33}).Draw(t, "K")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5), parts, parts).Draw(t, "sizes")
		rows := 0
		for _, n := range sizes {
			rows += n
		}
		types := []ir.DType{ir.BF16, ir.F32}
		x := drawNormal(t, rapid.SampledFrom(types).Draw(t, "x"), m, k)
		w := drawNormal(t, rapid.SampledFrom(types).Draw(t, "w"), rows, k)
		to := rapid.SampledFrom(types).Draw(t, "to")
		got, err := apply(t, name, ir.A("sizes", sizes, "to", to), x, w)
		if err != nil {
			t.Fatal(err)
		}
		from := 0
		for i, n := range sizes {
			wantShape(t, name, got[i], to, m, n)
			wantFloats(t, name, got[i], linearRef(to, floats(x), floats(w)[from*k:(from+n)*k], k))
			from += n
		}
	}
}

func groupedLinearProp(t *rapid.T) {
	m, g, n, k := rapid.SampledFrom(extents).Draw(t, "M"), rapid.IntRange(1, 4).Draw(t, "G"), rapid.SampledFrom(extents).Draw(t, "N"), rapid.SampledFrom([]int{1, 5, 16}).Draw(t, "K")
	x, w := drawNormal(t, ir.BF16, m, g, k), drawNormal(t, ir.BF16, g, n, k)
	xv, wv := floats(x), floats(w)
	var want []float64
	each([]int{m, g, n}, func(ix []int) {
		px, pw := flat(x.Shape, ix[0], ix[1], 0), flat(w.Shape, ix[1], ix[2], 0)
		want = append(want, r16(dotOf(xv[px:px+k], wv[pw:pw+k])))
	})
	got := apply1(t, "grouped_linear", nil, x, w)
	wantShape(t, "grouped_linear", got, ir.BF16, m, g, n)
	wantFloats(t, "grouped_linear", got, want)
}

// hadamardProp: b(b(sum) * ID^-0.5) in Sylvester order.
func hadamardProp(t *rapid.T) {
	n := 1 << rapid.IntRange(0, 7).Draw(t, "log2 n")
	x := drawNormal(t, ir.BF16, append(drawShape(t, 0, 2), n)...)
	v, h := floats(x), sylvester(n)
	scale := r32(1 / math.Sqrt(float64(n)))
	var want []float64
	for row := 0; row < len(v); row += n {
		for j := range n {
			column := make([]float64, n)
			for i := range column {
				column[i] = h[i][j]
			}
			want = append(want, r16(r32(r16(dotOf(v[row:row+n], column))*scale)))
		}
	}
	got := apply1(t, "hadamard", nil, x)
	wantShape(t, "hadamard", got, ir.BF16, x.Shape...)
	wantFloats(t, "hadamard", got, want)
}

// fakeQuantProp: the KV cache's fp8 round trip in blocks of 64 and the indexer's
// fp4 round trip in blocks of 32, and other blocks.
func fakeQuantProp(t *rapid.T) {
	to := rapid.SampledFrom(codeTypes).Draw(t, "to")
	block, floor := 64, 1e-4
	if to == ir.F4E2M1 {
		block, floor = 32, 6*0x1p-126
	}
	if rapid.Bool().Draw(t, "odd") {
		block = 2 * rapid.IntRange(1, 5).Draw(t, "half block")
	}
	dims := block * rapid.IntRange(1, 3).Draw(t, "blocks")
	d := dims + rapid.SampledFrom([]int{0, 1, 6}).Draw(t, "rest")
	shape := append(drawShape(t, 1, 2), d)
	x := drawTensor(t, ir.BF16, shape...)
	v := floats(x)
	want := slices.Clone(v)
	for row := 0; row < len(v); row += d {
		for i, q := range throughFormat(to, v[row:row+dims], block, floor) {
			want[row+i] = r16(q)
		}
	}
	got := apply1(t, "fake_quant", ir.A("to", to, "block", block, "floor", floor, "dims", dims), x)
	wantShape(t, "fake_quant", got, ir.BF16, shape...)
	wantFloats(t, "fake_quant", got, want)
}
