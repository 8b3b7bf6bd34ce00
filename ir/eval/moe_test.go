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

// scoresRef is s = sqrt(softplus(w x)) of one token.
func scoresRef(x, w []float64) []float64 {
	s := linearRef(ir.F32, x, w, len(x))
	for i, v := range s {
		if v <= 20 {
			v = r32(math.Log1p(r32(math.Exp(v))))
		}
		s[i] = r32(math.Sqrt(v))
	}
	return s
}

// weightsRef normalises the chosen scores.
func weightsRef(s []float64, ids []int64, scale float64) []float64 {
	var w []float64
	for _, id := range ids {
		w = append(w, s[id])
	}
	sum := r32(sumOf(w))
	for i := range w {
		w[i] = r32(r32(w[i]/sum) * r32(scale))
	}
	return w
}

// drawGate draws inputs whose scores reach beyond 20, where softplus is linear.
func drawGate(t *rapid.T) (x, w *Tensor, k int) {
	n, e, d := rapid.IntRange(1, 4).Draw(t, "T"), rapid.IntRange(1, 8).Draw(t, "E"), rapid.SampledFrom([]int{1, 8, 40}).Draw(t, "D")
	return drawNormal(t, ir.BF16, n, d), drawNormal(t, ir.BF16, e, d), rapid.IntRange(1, e).Draw(t, "k")
}

func gateProp(t *rapid.T) {
	x, w, k := drawGate(t)
	d, e := x.Shape[1], w.Shape[0]
	bias := drawNormal(t, ir.F32, e)
	var ids []int64
	var weights []float64
	for i := range x.Shape[0] {
		s := scoresRef(floats(x)[i*d:(i+1)*d], floats(w))
		biased := slices.Clone(s)
		for j, b := range floats(bias) {
			biased[j] = r32(biased[j] + b)
		}
		chosen := largest(biased, k)
		ids, weights = append(ids, chosen...), append(weights, weightsRef(s, chosen, 1.5)...)
	}
	got, err := apply(t, "gate", ir.A("k", k, "scale", 1.5), x, w, bias)
	if err != nil {
		t.Fatal(err)
	}
	wantInts(t, "ids", got[0], ids)
	wantShape(t, "weights", got[1], ir.F32, x.Shape[0], k)
	wantFloats(t, "weights", got[1], weights)
}

// Scores ln 2-ish by construction: w x = 0 for all, so s = sqrt(ln 2) for all.
func TestGateBiasChoosesButDoesNotWeigh(t *testing.T) {
	x := bf16s([]float32{1, 0}, 1, 2)
	w := bf16s([]float32{0, 0, 0, 0, 0, 0, 25, 0}, 4, 2) // the last score is softplus(25) = 25
	got, err := apply(t, "gate", ir.A("k", 2, "scale", 3.0), x, w, f32s([]float32{0, 100, 50, -100}, 4))
	if err != nil {
		t.Fatal(err)
	}
	wantInts(t, "ids", got[0], []int64{1, 2})
	wantFloats(t, "weights", got[1], []float64{1.5, 1.5})

	got, err = apply(t, "gate", ir.A("k", 2, "scale", 1.0), x, w, f32s([]float32{0, 0, 0, 0}, 4))
	if err != nil {
		t.Fatal(err)
	}
	a, b := 5.0, math.Sqrt(math.Ln2)
	wantInts(t, "ids, ties to the lower index", got[0], []int64{3, 0})
	wantNear(t, "weights", got[1], []float64{a / (a + b), b / (a + b)}, 2e-7)
}

// softplus(v) is v above 20, and log1p(e^v) up to it.
func TestGateSoftplusBorder(t *testing.T) {
	for _, c := range []struct {
		logit float32
		want  float64 // s^2
	}{
		{20, r32(math.Log1p(r32(math.Exp(20))))},
		{20.125, 20.125},
		{120, 120}, // e^120 overflows f32
		{-80, r32(math.Log1p(r32(math.Exp(-80))))},
	} {
		x, w := bf16s([]float32{1}, 1, 1), bf16s([]float32{c.logit, 0}, 2, 1)
		got, err := apply(t, "gate", ir.A("k", 2, "scale", 1.0), x, w, f32s([]float32{1e6, 0}, 2))
		if err != nil {
			t.Fatal(err)
		}
		s, other := r32(math.Sqrt(c.want)), r32(math.Sqrt(r32(math.Log1p(1))))
		sum := r32(s + other)
		wantFloats(t, fmt.Sprintf("logit %v", c.logit), got[1], []float64{r32(s / sum), r32(other / sum)})
	}
}

func hashGateProp(t *rapid.T) {
	x, w, k := drawGate(t)
	n, d, e := x.Shape[0], x.Shape[1], w.Shape[0]
	vocab := rapid.IntRange(1, 5).Draw(t, "V")
	table, tokens := zeroTensor(ir.I64, vocab, k), zeroTensor(ir.I32, n)
	r := drawRand(t)
	for i := range table.I {
		table.I[i] = int64(r.IntN(e))
	}
	for i := range tokens.I {
		tokens.I[i] = int64(r.IntN(vocab))
	}
	var ids []int64
	var weights []float64
	for i := range n {
		chosen := table.I[int(tokens.I[i])*k:][:k]
		ids = append(ids, chosen...)
		weights = append(weights, weightsRef(scoresRef(floats(x)[i*d:(i+1)*d], floats(w)), chosen, 2.5)...)
	}
	got, err := apply(t, "hash_gate", ir.A("k", k, "scale", 2.5), x, w, table, tokens)
	if err != nil {
		t.Fatal(err)
	}
	wantShape(t, "ids", got[0], ir.I32, n, k)
	wantInts(t, "ids", got[0], ids)
	wantFloats(t, "weights", got[1], weights)
}

// swigluRef is a = b(w * (g * sigmoid(g) * u)) with the clamps.
func swigluRef(g, u, w, limit float64) float64 {
	if limit > 0 {
		g = math.Min(g, limit)
		u = math.Max(-limit, math.Min(limit, u))
	}
	return r16(r32(w * r32(r32(g*sigmoidRef(g))*u)))
}

func swigluProp(t *rapid.T) {
	shape := drawShape(t, 1, 3)
	g, u := drawTensor(t, ir.BF16, shape...), drawTensor(t, ir.BF16, shape...)
	one := slices.Clone(shape)
	one[len(one)-1] = 1
	w := drawNormal(t, ir.F32, one...)
	limit := rapid.SampledFrom([]float64{0, 0.5, 10}).Draw(t, "limit")
	gv, uv, wv := floats(g), floats(u), floats(w)
	var want []float64
	each(shape, func(ix []int) {
		i := flat(shape, ix...)
		want = append(want, swigluRef(gv[i], uv[i], wv[repeated(one, ix)], limit))
	})
	got := apply1(t, "swiglu", ir.A("limit", limit), g, u, w)
	wantShape(t, "swiglu", got, ir.BF16, shape...)
	wantFloats(t, "swiglu", got, want)
}

// The gate is clamped above only, the up projection on both sides; limit 0 is off.
func TestSwigluClamp(t *testing.T) {
	g := bf16s([]float32{100, -100, 1, 100, -1}, 5)
	u := bf16s([]float32{2, 2, 100, -100, -100}, 5)
	one := f32s([]float32{1}, 1)
	sig := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	got := apply1(t, "swiglu", ir.A("limit", 10.0), g, u, one)
	wantFloats(t, "limit 10", got, []float64{r16(sig(10) * 2), r16(sig(-100) * 2), r16(sig(1) * 10), r16(sig(10) * -10), r16(sig(-1) * -10)})
	got = apply1(t, "swiglu", ir.A("limit", 0.0), g, u, one)
	wantFloats(t, "no limit", got, []float64{200, r16(sig(-100) * 2), r16(sig(1) * 100), -10000 + 16, r16(sig(-1) * -100)})
}

// mlp is one expert's decoded weights.
type mlp struct{ w1, w3, w2 []float64 }

// expertRef: g = Q(w1,x), u = Q(w3,x), y = Q(w2, swiglu) of one token.
func expertRef(x []float64, m mlp, weight, limit float64) []float64 {
	q := actQuant(x)
	g, u := linearRef(ir.BF16, q, m.w1, len(x)), linearRef(ir.BF16, q, m.w3, len(x))
	for i := range g {
		g[i] = swigluRef(g[i], u[i], weight, limit)
	}
	return linearRef(ir.BF16, actQuant(g), m.w2, len(g))
}

// drawExperts draws stacked experts; e = 0 gives rank-2 weights.
func drawExperts(t *rapid.T, e int) (w1, w3, w2 *Tensor) {
	const d, inner = 128, 128
	r := drawRand(t)
	dt, b0, b1 := ir.F4E2M1, 1, 32
	if rapid.Bool().Draw(t, "fp8") {
		dt, b0, b1 = ir.F8E4M3, 128, 128
	}
	weight := func(n, k int) *Tensor {
		shape := []int{n, k}
		if e > 0 {
			shape = []int{e, n, k}
		}
		return randScaled(r, dt, b0, b1, 10, -4, shape...)
	}
	return weight(inner, d), weight(inner, d), weight(d, inner)
}

func expertProp(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "T")
	x, weight := drawNormal(t, ir.BF16, n, 128), drawNormal(t, ir.F32, n, 1)
	w1, w3, w2 := drawExperts(t, 0)
	limit := rapid.SampledFrom([]float64{0, 1}).Draw(t, "limit")
	m := mlp{floats(w1), floats(w3), floats(w2)}
	var want []float64
	for i := range n {
		want = append(want, expertRef(floats(x)[i*128:(i+1)*128], m, floats(weight)[i], limit)...)
	}
	got := apply1(t, "expert", ir.A("limit", limit), x, w1, w3, w2, weight)
	wantShape(t, "expert", got, ir.BF16, n, 128)
	wantFloats(t, "expert", got, want)
}

// moeRef is the f32 sum over chosen experts in ascending id; an expert chosen
// twice counts once with both weights.
func moeRef(x []float64, experts []mlp, ids []int64, weights []float64, limit float64) []float64 {
	y := make([]float64, len(x))
	for e, m := range experts {
		chosen, weight := false, 0.0
		for i, id := range ids {
			if id == int64(e) {
				chosen, weight = true, weight+weights[i]
			}
		}
		if !chosen {
			continue
		}
		for i, v := range expertRef(x, m, r32(weight), limit) {
			y[i] += v
		}
	}
	for i := range y {
		y[i] = r32(y[i])
	}
	return y
}

// expertOf slices one expert out of stacked weights.
func expertOf(w *Tensor, e int) *Tensor {
	n := len(w.Codes) / w.Shape[0]
	s := len(w.Scales) / w.Shape[0]
	return &Tensor{DType: w.DType, Shape: w.Shape[1:], Quant: w.Quant, Codes: w.Codes[e*n : (e+1)*n], Scales: w.Scales[e*s : (e+1)*s]}
}

func moeProp(t *rapid.T)    { moeBy(t, "moe_experts") }
func moeAddProp(t *rapid.T) { moeBy(t, "moe_experts_add") }

func moeBy(t *rapid.T, name string) {
	n, e := rapid.IntRange(1, 3).Draw(t, "T"), rapid.IntRange(1, 3).Draw(t, "E")
	k := rapid.IntRange(1, e+1).Draw(t, "K")
	x, weights := drawNormal(t, ir.BF16, n, 128), drawNormal(t, ir.F32, n, k)
	w1, w3, w2 := drawExperts(t, e)
	ids := zeroTensor(ir.I32, n, k)
	r := drawRand(t)
	used := make([]bool, e)
	for i := range ids.I {
		if ids.I[i] = int64(r.IntN(e+1)) - 1; ids.I[i] >= 0 {
			used[ids.I[i]] = true
		}
	}
	var experts []mlp
	for i := range e {
		experts = append(experts, mlp{floats(expertOf(w1, i)), floats(expertOf(w3, i)), floats(expertOf(w2, i))})
		if !used[i] { // an expert that nobody chose may hold NaN
			for _, w := range []*Tensor{w1, w3, w2} {
				for j := range expertOf(w, i).Scales {
					expertOf(w, i).Scales[j] = 255
				}
			}
		}
	}
	var want []float64
	for i := range n {
		want = append(want, moeRef(floats(x)[i*128:(i+1)*128], experts, ids.I[i*k:(i+1)*k], floats(weights)[i*k:(i+1)*k], 1)...)
	}
	args, dtype := []*Tensor{x, w1, w3, w2, ids, weights}, ir.F32
	if name == "moe_experts_add" {
		shared := drawNormal(t, ir.BF16, n, 128)
		for i, s := range floats(shared) {
			want[i] = r16(r32(want[i] + s))
		}
		args, dtype = append(args, shared), ir.BF16
	}
	got := apply1(t, name, ir.A("limit", 1.0), args...)
	wantShape(t, name, got, dtype, n, 128)
	wantFloats(t, name, got, want)
}

// moe_experts is the sum of the op expert over the chosen ones, and an unchosen
// expert full of NaN adds nothing.
func TestMoeEqualsExperts(t *testing.T) {
	const n, e, d = 3, 4, 128
	r := rand.New(rand.NewPCG(21, 22))
	weight := func() *Tensor { return randScaled(r, ir.F4E2M1, 1, 32, 8, -4, e, d, d) }
	w1, w3, w2 := weight(), weight(), weight()
	for _, w := range []*Tensor{w1, w3, w2} {
		for i := range expertOf(w, 1).Scales {
			expertOf(w, 1).Scales[i] = 255
		}
	}
	x := randTensor(r, normal, ir.BF16, n, d)
	ids := i32s([]int32{3, 0, 0, 2, 2, 3}, n, 2)
	weights := randTensor(r, normal, ir.F32, n, 2)
	got := apply1(t, "moe_experts", ir.A("limit", 10.0), x, w1, w3, w2, ids, weights)
	for tok := range n {
		sum := make([]float64, d)
		for id := range int32(e) {
			for j, chosen := range ids.I[tok*2 : tok*2+2] {
				if int64(id) != chosen {
					continue
				}
				row := bf16s(x.F[tok*d:(tok+1)*d], 1, d)
				y := apply1(t, "expert", ir.A("limit", 10.0), row, expertOf(w1, int(id)), expertOf(w3, int(id)), expertOf(w2, int(id)), f32s(weights.F[tok*2+j:tok*2+j+1], 1, 1))
				for i, v := range floats(y) {
					sum[i] += v
				}
			}
		}
		for i := range sum {
			sum[i] = r32(sum[i])
		}
		wantFloats(t, fmt.Sprintf("token %d", tok), f32s(got.F[tok*d:(tok+1)*d], d), sum)
	}
}
