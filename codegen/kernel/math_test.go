package kernel_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// ulpOf is the distance of g from w in units of w's last place as f32.
func ulpOf(g float32, w float64) float64 {
	f := float32(w)
	if same(g, f) {
		return 0
	}
	if g != g || f != f || math.IsInf(w, 0) || math.IsInf(float64(g), 0) {
		return math.Inf(1)
	}
	_, e := math.Frexp(w)
	return math.Abs(float64(g)-w) / math.Ldexp(1, max(e-24, -149))
}

// The f32 functions of fused kernels, over their ranges: bounds in ulp.
func TestFunctions(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	const n = 200000
	draw := func(lo, hi float64) *eval.Tensor {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(lo + r.Float64()*(hi-lo))
		}
		return floats(t, ir.F32, v)
	}
	edges := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32, -math.MaxFloat32, 1, -1, 0x1p-149}
	double := func(f func(k *kernel.K, x kernel.V) kernel.V) func(k *kernel.K, x kernel.V) kernel.V {
		return func(k *kernel.K, x kernel.V) kernel.V { return k.Convert(f(k, k.Convert(x, kernel.F64)), kernel.F32) }
	}
	large := make([]float32, n) // whole range of exponents
	for i := range large {
		large[i] = math.Float32frombits(uint32(r.IntN(0x7F800000)) | uint32(r.IntN(2))<<31)
	}
	var units []unit
	for _, f := range []struct {
		name  string
		x     *eval.Tensor
		edges []float32
		f     func(k *kernel.K, x kernel.V) kernel.V
		want  func(float64) float64
		bound float64
	}{
		{"exp", draw(-87.3, 88.7), edges, (*kernel.K).Exp, math.Exp, 2},
		{"exp near 0", draw(-1, 1), nil, (*kernel.K).Exp, math.Exp, 2},
		{"sigmoid", draw(-87, 87), edges, (*kernel.K).Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 3},
		{"log1p", draw(0, 1000), []float32{0, float32(math.Inf(1)), 1e-30, math.MaxFloat32}, (*kernel.K).Log1p, math.Log1p, 0.51},
		{"log1p near 0", draw(0, 1e-3), nil, (*kernel.K).Log1p, math.Log1p, 0.51},
		{"rsqrt", draw(1e-30, 1e9), []float32{0, 1, float32(math.Inf(1)), float32(math.NaN()), -1}, (*kernel.K).Rsqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, 1.5},
		{"exp f64", draw(-110, 89), edges, double((*kernel.K).ExpD), math.Exp, 0.5001},
		{"log f64", floats(t, ir.F32, large), edges, double((*kernel.K).LogD), math.Log, 0.5001},
		{"log1p f64", draw(-0.99, 100), edges, double((*kernel.K).Log1pD), math.Log1p, 0.5001},
		{"sin f64", floats(t, ir.F32, large), edges, double(func(k *kernel.K, x kernel.V) kernel.V { s, _ := k.SinCosD(x); return s }), math.Sin, 0.51},
		{"cos f64", floats(t, ir.F32, large), edges, double(func(k *kernel.K, x kernel.V) kernel.V { _, c := k.SinCosD(x); return c }), math.Cos, 0.51},
		{"sin of angles", draw(-3e6, 3e6), nil, double(func(k *kernel.K, x kernel.V) kernel.V { s, _ := k.SinCosD(x); return s }), math.Sin, 0.51},
		{"cos of angles", draw(-3e6, 3e6), nil, double(func(k *kernel.K, x kernel.V) kernel.V { _, c := k.SinCosD(x); return c }), math.Cos, 0.51},
	} {
		x := floats(t, ir.F32, append(append([]float32{}, f.x.F...), f.edges...))
		units = append(units, unit{name: f.name, in: []*eval.Tensor{x}, out: ir.T(ir.F32, ir.Int(len(x.F))), body: elementwise(len(x.F), f.f), check: func(t *testing.T, y *eval.Tensor) {
			worst, at := 0.0, 0
			for i, g := range y.F {
				if u := ulpOf(g, f.want(float64(x.F[i]))); u > worst || u != u {
					worst, at = u, i
				}
			}
			t.Logf("worst %.4g ulp, at %v", worst, x.F[at])
			if !(worst <= f.bound) {
				t.Errorf("%s(%v) = %v, want %v: %g ulp, bound %g", f.name, x.F[at], y.F[at], f.want(float64(x.F[at])), worst, f.bound)
			}
		}})
	}
	run(t, units)
}

// The hardest f32 angles come within 2^-29 or so of a multiple of pi/2; big
// numbers tell what is left of them.
func TestHardAngles(t *testing.T) {
	pi := bigPi()
	// x = m 2^e close to q pi/2: continued fractions would find the closest; a
	// search around the multiples finds hard ones enough.
	var xs []float32
	for e := 0; e < 100; e += 3 {
		half := new(big.Float).SetPrec(400).Quo(pi, big.NewFloat(2))
		best, bestLeft := float32(0), 1.0
		for m := int64(1 << 23); m < 1<<23+4000; m++ {
			x := float32(math.Ldexp(float64(m), e))
			left, _ := leftOver(x, half)
			if a := math.Abs(left); a < bestLeft {
				best, bestLeft = x, a
			}
		}
		xs = append(xs, best, -best)
	}
	half := new(big.Float).SetPrec(400).Quo(pi, big.NewFloat(2))
	x := floats(t, ir.F32, xs)
	run(t, []unit{{name: "sin", in: []*eval.Tensor{x}, out: ir.T(ir.F32, ir.Int(len(xs))), body: elementwise(len(xs), func(k *kernel.K, v kernel.V) kernel.V {
		s, _ := k.SinCosD(k.Convert(v, kernel.F64))
		return k.Convert(s, kernel.F32)
	}), check: func(t *testing.T, y *eval.Tensor) {
		for i, g := range y.F {
			left, q := leftOver(xs[i], half)
			want := [4]float64{math.Sin(left), math.Cos(left), -math.Sin(left), -math.Cos(left)}[q]
			if u := ulpOf(g, want); !(u <= 0.51) {
				t.Errorf("sin(%v) = %v, want %v: %g ulp", xs[i], g, want, u)
			}
		}
	}}})
}

// leftOver reduces x by the nearest multiple of half and gives the multiple mod 4.
func leftOver(x float32, half *big.Float) (left float64, quadrant int) {
	v := new(big.Float).SetPrec(400).SetFloat64(float64(x))
	n := new(big.Float).SetPrec(400).Quo(v, half)
	n.Add(n, big.NewFloat(math.Copysign(0.5, float64(x))))
	q, _ := n.Int(nil) // toward zero
	v.Sub(v, new(big.Float).SetPrec(400).Mul(new(big.Float).SetPrec(400).SetInt(q), half))
	left, _ = v.Float64()
	return left, int(new(big.Int).And(q, big.NewInt(3)).Int64())
}

// bigPi is pi by Machin's formula: 4 (4 arctan 1/5 - arctan 1/239).
func bigPi() *big.Float {
	const bits = 420
	arctan := func(n int64) *big.Int {
		term := new(big.Int).Quo(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(n))
		sum := new(big.Int)
		for i := int64(1); term.Sign() != 0; i += 2 {
			part := new(big.Int).Quo(term, big.NewInt(i))
			if i%4 == 1 {
				sum.Add(sum, part)
			} else {
				sum.Sub(sum, part)
			}
			term.Quo(term, big.NewInt(n*n))
		}
		return sum
	}
	pi := new(big.Int).Mul(arctan(5), big.NewInt(4))
	pi.Sub(pi, arctan(239)).Mul(pi, big.NewInt(4))
	return new(big.Float).SetPrec(400).SetMantExp(new(big.Float).SetPrec(400).SetInt(pi), -bits)
}

// Integer division that would stop the process gives some number instead.
func TestFloorDiv(t *testing.T) {
	x := ints(t, ir.I64, 7, -7, 7, -7, 8, -8, 0, 5, math.MinInt64, math.MinInt64, math.MaxInt64, -1, 1)
	y := ints(t, ir.I64, 2, 2, -2, -2, 2, 2, 3, 0, -1, 3, -1, math.MaxInt64, math.MinInt64)
	want := []int64{3, -4, -4, 3, 4, -4, 0, 0, 0, -3074457345618258603, -math.MaxInt64, -1, -1}
	undefined := map[int]bool{7: true, 8: true}
	run(t, []unit{{name: "floor", in: []*eval.Tensor{x, y}, out: x.Type(), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
		k.Lanes(k.Int(len(want)), func(i kernel.V) { out.Store(i, k.FloorDiv(in[0].Load(i), in[1].Load(i))) })
	}, check: func(t *testing.T, g *eval.Tensor) {
		for i, w := range want {
			if !undefined[i] && g.I[i] != w {
				t.Errorf("%d / %d = %d, want %d", x.I[i], y.I[i], g.I[i], w)
			}
		}
	}}})
}

// NaN wins over every number, and -0 is below +0.
func TestExtremes(t *testing.T) {
	vals := []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p-149}
	var a, b []float32
	for _, x := range vals {
		for _, y := range vals {
			a, b = append(a, x), append(b, y)
		}
	}
	in := []*eval.Tensor{floats(t, ir.F32, a), floats(t, ir.F32, b)}
	of := func(name string, f func(k *kernel.K, x, y kernel.V) kernel.V, want func(x, y float32) float32) unit {
		return unit{name: name, in: in, out: ir.T(ir.F32, ir.Int(len(a))), body: func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
			k.Lanes(k.Int(len(a)), func(i kernel.V) { out.Store(i, f(k, in[0].Load(i), in[1].Load(i))) })
		}, check: wantFloats(func(i int) float32 { return want(a[i], b[i]) })}
	}
	run(t, []unit{
		of("min", (*kernel.K).MinNaN, func(x, y float32) float32 { return min(x, y) }),
		of("max", (*kernel.K).MaxNaN, func(x, y float32) float32 { return max(x, y) }),
	})
}
