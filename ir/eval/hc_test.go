package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

func sigmoidRef(x float64) float64 { return r32(1 / (1 + math.Exp(-x))) }

// affine is m*scale + base in f32 steps.
func affine(m, scale, base float64) float64 { return r32(r32(m*scale) + base) }

// splitRef is section 4.2 from m on, for one token.
func splitRef(m, scale, base []float64, c, iters int, eps float64) (pre, post []float64, comb [][]float64) {
	eps = r32(eps)
	for j := range c {
		pre = append(pre, r32(sigmoidRef(affine(m[j], scale[0], base[j]))+eps))
		post = append(post, r32(2*sigmoidRef(affine(m[c+j], scale[1], base[c+j]))))
	}
	for i := range c {
		row := make([]float64, c)
		top := math.Inf(-1)
		for j := range row {
			at := 2*c + i*c + j
			row[j] = affine(m[at], scale[2], base[at])
			top = math.Max(top, row[j])
		}
		for j, a := range row {
			row[j] = r32(math.Exp(r32(a - top)))
		}
		sum := r32(sumOf(row))
		for j, e := range row {
			row[j] = r32(r32(e/sum) + eps)
		}
		comb = append(comb, row)
	}
	columns := func() {
		for j := range c {
			column := make([]float64, c)
			for i := range c {
				column[i] = comb[i][j]
			}
			sum := r32(r32(sumOf(column)) + eps)
			for i := range c {
				comb[i][j] = r32(comb[i][j] / sum)
			}
		}
	}
	columns()
	for range iters - 1 {
		for _, row := range comb {
			sum := r32(r32(sumOf(row)) + eps)
			for j := range row {
				row[j] = r32(row[j] / sum)
			}
		}
		columns()
	}
	return pre, post, comb
}

func concat(rows [][]float64) []float64 {
	var out []float64
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}

func hcSplitProp(t *rapid.T) {
	c := rapid.SampledFrom([]int{1, 2, 3, 4, 5}).Draw(t, "C")
	n := rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "T")
	iters := rapid.SampledFrom([]int{1, 2, 20}).Draw(t, "iters")
	cols := (2 + c) * c
	m, scale, base := drawNormal(t, ir.F32, n, cols), drawNormal(t, ir.F32, 3), drawNormal(t, ir.F32, cols)
	if rapid.IntRange(0, 3).Draw(t, "extreme") == 0 {
		r := drawRand(t)
		for i := range m.F {
			m.F[i] = float32(80 * (1 - 2*r.IntN(2)))
		}
		copy(scale.F, []float32{1, 1, 1})
	}
	got, err := apply(t, "hc_split", ir.A("iters", iters, "eps", 1e-6), m, scale, base)
	if err != nil {
		t.Fatal(err)
	}
	var pre, post, comb []float64
	for i := range n {
		a, b, d := splitRef(floats(m)[i*cols:(i+1)*cols], floats(scale), floats(base), c, iters, 1e-6)
		pre, post, comb = append(pre, a...), append(post, b...), append(comb, concat(d)...)
	}
	wantShape(t, "pre", got[0], ir.F32, n, c)
	wantFloats(t, "pre", got[0], pre)
	wantShape(t, "post", got[1], ir.F32, n, c)
	wantFloats(t, "post", got[1], post)
	wantShape(t, "comb", got[2], ir.F32, n, c, c)
	wantFloats(t, "comb", got[2], comb)
}

// Two streams, eps = 1/4, the comb logits [[ln 3, 0], [0, 0]].
//
// Softmax of the rows: [3/4, 1/4], [1/2, 1/2]; plus eps: [1, 1/2], [3/4, 3/4].
//
// First column step: the columns sum to 7/4 and 5/4, plus eps 2 and 3/2:
// [1/2, 1/3], [3/8, 1/2]. That is one iteration.
//
// Second iteration, rows: 1/2+1/3+1/4 = 13/12 and 3/8+1/2+1/4 = 9/8, giving
// [6/13, 4/13], [1/3, 4/9]. Columns: 6/13+1/3+1/4 = 163/156 and
// 4/13+4/9+1/4 = 469/468, giving [72/163, 144/469], [52/163, 208/469].
//
// pre: sigmoid(ln 3) = 3/4 and sigmoid(0) = 1/2, plus eps. post: 2 sigmoid(-ln 3)
// = 1/2 and 2 sigmoid(0) = 1.
func TestSinkhornByHand(t *testing.T) {
	ln3 := float32(math.Log(3))
	// Columns: pre, post, comb; scales 1, -1, 2 and a base that undoes a part.
	m := f32s([]float32{ln3, 0, ln3, 0, ln3 / 2, 0, 0, -1}, 1, 8)
	base := f32s([]float32{0, 0, 0, 0, 0, 0, 0, 2}, 8)
	scale := f32s([]float32{1, -1, 2}, 3)
	for _, c := range []struct {
		iters int
		comb  []float64
	}{
		{1, []float64{1. / 2, 1. / 3, 3. / 8, 1. / 2}},
		{2, []float64{72. / 163, 144. / 469, 52. / 163, 208. / 469}},
	} {
		got, err := apply(t, "hc_split", ir.A("iters", c.iters, "eps", 0.25), m, scale, base)
		if err != nil {
			t.Fatal(err)
		}
		wantNear(t, "pre", got[0], []float64{1, 0.75}, 2e-7)
		wantNear(t, "post", got[1], []float64{0.5, 1}, 2e-7)
		wantNear(t, fmt.Sprintf("comb, %d iterations", c.iters), got[2], c.comb, 2e-7)
	}
}

// Logits of +-80: no NaN, and the last step leaves columns that sum to 1.
func TestSinkhornExtreme(t *testing.T) {
	const c = 4
	r := rand.New(rand.NewPCG(9, 9))
	m := zeroTensor(ir.F32, 8, (2+c)*c)
	for i := range m.F {
		m.F[i] = float32(80 * (1 - 2*r.IntN(2)))
	}
	one, zero := f32s([]float32{1, 1, 1}, 3), zeroTensor(ir.F32, (2+c)*c)
	got, err := apply(t, "hc_split", ir.A("eps", 1e-6), m, one, zero)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range got {
		for j, v := range x.F {
			if v != v || v < 0 || v > 2.001 {
				t.Errorf("result %d, element %d is %v", i, j, v)
			}
		}
	}
	comb := floats(got[2])
	for tok := range 8 {
		for j := range c {
			column := 0.0
			for i := range c {
				column += comb[flat([]int{8, c, c}, tok, i, j)]
			}
			if math.Abs(column-1) > 1e-5 {
				t.Errorf("token %d: column %d sums to %v", tok, j, column)
			}
		}
	}
}

// hcOperands draws h [T,C,D] and an fn of the given rows.
func hcOperands(t *rapid.T, rows func(c int) int) (h, fn *Tensor, n, c, d int) {
	n, c, d = rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "T"), rapid.IntRange(1, 4).Draw(t, "C"), rapid.SampledFrom([]int{1, 5, 32}).Draw(t, "D")
	h, fn = drawNormal(t, ir.BF16, n, c, d), drawNormal(t, ir.F32, rows(c), c*d)
	return h, fn, n, c, d
}

// mixesRef is m = (fn x) * rms of one token.
func mixesRef(x, fn []float64, eps float64) []float64 {
	inv := invRMSRef(x, eps)
	m := linearRef(ir.F32, x, fn, len(x))
	for i := range m {
		m[i] = r32(m[i] * inv)
	}
	return m
}

// mixRef is b(sum_c pre_c h_c) of one token.
func mixRef(pre, x []float64, d int) []float64 {
	y := make([]float64, d)
	for j := range d {
		s := 0.0
		for i, p := range pre {
			s += r32(p * x[i*d+j])
		}
		y[j] = r16(r32(s))
	}
	return y
}

// preRef is hc_pre of n tokens.
func preRef(h, fn, scale, base []float64, n, c, d, iters int, eps, normEps float64) (y, post, comb []float64) {
	for i := range n {
		x := h[i*c*d : (i+1)*c*d]
		pre, q, a := splitRef(mixesRef(x, fn, normEps), scale, base, c, iters, eps)
		y, post, comb = append(y, mixRef(pre, x, d)...), append(post, q...), append(comb, concat(a)...)
	}
	return y, post, comb
}

func hcPreProp(t *rapid.T) {
	h, fn, n, c, d := hcOperands(t, func(c int) int { return (2 + c) * c })
	scale, base := drawNormal(t, ir.F32, 3), drawNormal(t, ir.F32, (2+c)*c)
	const iters, eps, normEps = 3, 1e-6, 1e-5
	got, err := apply(t, "hc_pre", ir.A("iters", iters, "eps", eps, "norm_eps", normEps), h, fn, scale, base)
	if err != nil {
		t.Fatal(err)
	}
	y, post, comb := preRef(floats(h), floats(fn), floats(scale), floats(base), n, c, d, iters, eps, normEps)
	wantShape(t, "y", got[0], ir.BF16, n, d)
	wantFloats(t, "y", got[0], y)
	wantFloats(t, "post", got[1], post)
	wantFloats(t, "comb", got[2], comb)
}

func hcPostProp(t *rapid.T) {
	n, c, d := rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "T"), rapid.IntRange(1, 4).Draw(t, "C"), rapid.SampledFrom([]int{1, 5, 9}).Draw(t, "D")
	o, h := drawNormal(t, ir.BF16, n, d), drawNormal(t, ir.BF16, n, c, d)
	post, comb := drawNormal(t, ir.F32, n, c), drawNormal(t, ir.F32, n, c, c)
	got := apply1(t, "hc_post", nil, o, h, post, comb)
	wantShape(t, "hc_post", got, ir.BF16, n, c, d)
	wantFloats(t, "hc_post", got, postRef(o, h, post, comb))
}

// postRef is hc_post.
func postRef(o, h, post, comb *Tensor) []float64 {
	ov, hv, pv, av := floats(o), floats(h), floats(post), floats(comb)
	c, d := h.Shape[1], h.Shape[2]
	var want []float64
	each(h.Shape, func(ix []int) {
		tok, j, k := ix[0], ix[1], ix[2]
		mixed := 0.0
		for i := range c {
			mixed += av[flat(comb.Shape, tok, i, j)] * hv[flat(h.Shape, tok, i, k)]
		}
		want = append(want, r16(r32(r32(pv[tok*c+j]*ov[tok*d+k])+r32(mixed))))
	})
	return want
}

func hcFusedProp(t *rapid.T)      { hcFusedBy(t, "hc_fused") }
func hcFusedQuantProp(t *rapid.T) { hcFusedBy(t, "hc_fused_quant") }

// hcFusedBy: hc_post, hc_pre of what it gives, the norm of y, and for
// hc_fused_quant the norm through f8e4m3.
func hcFusedBy(t *rapid.T, name string) {
	h, fn, n, c, d := hcOperands(t, func(c int) int { return (2 + c) * c })
	o, post, comb := drawNormal(t, ir.BF16, n, d), drawNormal(t, ir.F32, n, c), drawNormal(t, ir.F32, n, c, c)
	scale, base, w := drawNormal(t, ir.F32, 3), drawNormal(t, ir.F32, (2+c)*c), drawNormal(t, ir.BF16, d)
	const iters, eps, normEps, rmsEps = 3, 1e-6, 1e-5, 1e-4
	attrs, block := ir.A("iters", iters, "eps", eps, "norm_eps", normEps, "rms_eps", rmsEps), 0
	if name == "hc_fused_quant" {
		block = rapid.SampledFrom([]int{1, d}).Draw(t, "block")
		attrs = append(attrs, ir.A("act_block", block)...)
	}
	got, err := apply(t, name, attrs, o, h, post, comb, fn, scale, base, w)
	if err != nil {
		t.Fatal(err)
	}
	streams := postRef(o, h, post, comb)
	y, nextPost, nextComb := preRef(streams, floats(fn), floats(scale), floats(base), n, c, d, iters, eps, normEps)
	var hidden []float64
	for i := range n {
		hidden = append(hidden, rmsNormRef(y[i*d:(i+1)*d], floats(w), rmsEps)...)
	}
	wantShape(t, "residual", got[0], ir.BF16, n, c, d)
	wantFloats(t, "residual", got[0], streams)
	wantShape(t, "hidden", got[1], ir.BF16, n, d)
	wantFloats(t, "hidden", got[1], hidden)
	wantFloats(t, "post", got[2], nextPost)
	wantFloats(t, "comb", got[3], nextComb)
	if block > 0 {
		wantShape(t, "q", got[4], ir.BF16, n, d)
		wantFloats(t, "q", got[4], throughFormat(ir.F8E4M3, hidden, block, 1e-4))
	}
}

// The first index of comb is contracted: with comb = [[0, 1], [0, 0]] stream 1
// becomes the old stream 0 and stream 0 becomes zero.
func TestHCPostContractsTheFirstIndex(t *testing.T) {
	h := bf16s([]float32{3, 5}, 1, 2, 1)
	got := apply1(t, "hc_post", nil, bf16s([]float32{0}, 1, 1), h, f32s([]float32{0, 0}, 1, 2), f32s([]float32{0, 1, 0, 0}, 1, 2, 2))
	wantFloats(t, "hc_post", got, []float64{0, 3})
	got = apply1(t, "hc_post", nil, bf16s([]float32{8}, 1, 1), h, f32s([]float32{1, 2}, 1, 2), f32s([]float32{10, 1, 20, 2}, 1, 2, 2))
	wantFloats(t, "hc_post", got, []float64{1*8 + 10*3 + 20*5, 2*8 + 1*3 + 2*5})
}

func hcHeadProp(t *rapid.T) {
	h, fn, n, c, d := hcOperands(t, func(c int) int { return c })
	scale, base := drawNormal(t, ir.F32, 1), drawNormal(t, ir.F32, c)
	hv := floats(h)
	var want []float64
	for i := range n {
		x := hv[i*c*d : (i+1)*c*d]
		pre := mixesRef(x, floats(fn), 1e-6)
		for j := range pre {
			pre[j] = r32(sigmoidRef(affine(pre[j], floats(scale)[0], floats(base)[j])) + r32(1e-6))
		}
		want = append(want, mixRef(pre, x, d)...)
	}
	got := apply1(t, "hc_head", ir.A("eps", 1e-6, "norm_eps", 1e-6), h, fn, scale, base)
	wantShape(t, "hc_head", got, ir.BF16, n, d)
	wantFloats(t, "hc_head", got, want)
}
