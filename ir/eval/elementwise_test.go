package eval

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// unaryOf is each op on float64.
var unaryOf = map[string]func(x float64) float64{
	"neg":     func(x float64) float64 { return math.Copysign(x, -1) * math.Copysign(1, x) },
	"abs":     math.Abs,
	"exp":     math.Exp,
	"log1p":   math.Log1p,
	"sqrt":    math.Sqrt,
	"rsqrt":   func(x float64) float64 { return 1 / math.Sqrt(x) },
	"sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	"cos":     math.Cos,
	"sin":     math.Sin,
}

func unaryProp(op string) func(t *rapid.T) {
	return func(t *rapid.T) {
		types := floatTypes
		switch op {
		case "neg", "abs":
			types = numTypes
		case "not":
			types = []ir.DType{ir.Bool}
		}
		dt := rapid.SampledFrom(types).Draw(t, "dtype")
		x := drawTensor(t, dt, drawShape(t, 0, 3)...)
		got, err := apply(t, op, nil, x)
		if x.F != nil {
			var want []float64
			for _, v := range floats(x) {
				want = append(want, roundTo(dt, unaryOf[op](v)))
			}
			if err != nil {
				t.Fatal(err)
			}
			wantShape(t, op, got[0], dt, x.Shape...)
			wantFloats(t, op, got[0], want)
			return
		}
		want, refused := bigInts(dt, x.I, func(i int, z *big.Int) {
			switch v := big.NewInt(x.I[i]); op {
			case "neg":
				z.Neg(v)
			case "abs":
				z.Abs(v)
			case "not":
				z.Sub(big.NewInt(1), v)
			}
		})
		wantIntsOrError(t, op, got, err, want, refused)
	}
}

// bigInts computes exact integers and reports whether one is outside dt.
func bigInts(dt ir.DType, over []int64, f func(i int, z *big.Int)) (want []int64, refused bool) {
	lo, hi := big.NewInt(intBounds[dt][0]), big.NewInt(intBounds[dt][1])
	for i := range over {
		z := new(big.Int)
		f(i, z)
		if z.Cmp(lo) < 0 || z.Cmp(hi) > 0 {
			return nil, true
		}
		want = append(want, z.Int64())
	}
	return want, false
}

func wantIntsOrError(t rapid.TB, op string, got []*Tensor, err error, want []int64, refused bool) {
	t.Helper()
	switch {
	case refused && err == nil:
		t.Fatalf("%s: no error, but a result is not representable: %v", op, got[0].I)
	case !refused && err != nil:
		t.Fatal(err)
	case !refused:
		wantInts(t, op, got[0], want)
	}
}

// Every bf16 and f16 number through every float function: one rounding.
func TestUnaryExhaustive(t *testing.T) {
	for _, dt := range []ir.DType{ir.BF16, ir.F16} {
		x := zeroTensor(dt, 1<<16)
		for i := range x.F {
			if x.F[i] = math.Float32frombits(uint32(i) << 16); dt == ir.F16 {
				x.F[i] = float32(halfValue(uint16(i)))
			}
		}
		in := floats(x)
		for op, f := range unaryOf {
			want := make([]float64, len(in))
			for i, v := range in {
				want[i] = roundTo(dt, f(v))
			}
			wantFloats(t, op, apply1(t, op, nil, x), want)
		}
	}
}

// 1/(1+e^-x) far from zero, against forms that do not cancel or overflow.
func TestSigmoidTails(t *testing.T) {
	for _, x := range []float32{-103, -88, -30, -17, 0, 17, 30, 88, 800} {
		want := 1 / (1 + math.Exp(-math.Abs(float64(x))))
		if x < 0 {
			want = math.Exp(float64(x)) / (1 + math.Exp(float64(x)))
		}
		got := apply1(t, "sigmoid", nil, f32s([]float32{x}))
		wantFloats(t, fmt.Sprintf("sigmoid(%v)", x), got, []float64{r32(want)})
	}
}

func binaryProp(op string) func(t *rapid.T) {
	return func(t *rapid.T) {
		types := numTypes
		switch op {
		case "mod":
			types = intTypes
		case "and", "or":
			types = []ir.DType{ir.Bool}
		}
		dt := rapid.SampledFrom(types).Draw(t, "dtype")
		shape := drawShape(t, 0, 4)
		x, y := drawTensor(t, dt, drawRepeated(t, shape)...), drawTensor(t, dt, drawRepeated(t, shape)...)
		full := joined(x.Shape, y.Shape)
		got, err := apply(t, op, nil, x, y)
		var a, c []int // positions of each result's operands
		each(full, func(ix []int) {
			a, c = append(a, repeated(x.Shape, ix)), append(c, repeated(y.Shape, ix))
		})
		if test, ok := comparisons[op]; ok {
			want := make([]int64, len(a))
			for i := range a {
				sign, ordered := 0, true
				if x.F != nil {
					p, q := x.F[a[i]], y.F[c[i]]
					sign, ordered = compare(p, q), p == p && q == q
				} else {
					sign = compare(x.I[a[i]], y.I[c[i]])
				}
				if ordered && test(sign) || !ordered && op == "ne" {
					want[i] = 1
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			wantShape(t, op, got[0], ir.Bool, full...)
			wantInts(t, op, got[0], want)
			return
		}
		if x.F != nil {
			want := make([]float64, len(a))
			for i := range a {
				want[i] = roundTo(dt, binaryOf[op](float64(x.F[a[i]]), float64(y.F[c[i]])))
			}
			if err != nil {
				t.Fatal(err)
			}
			wantShape(t, op, got[0], dt, full...)
			wantFloats(t, op, got[0], want)
			return
		}
		byZero := false
		want, refused := bigInts(dt, make([]int64, len(a)), func(i int, z *big.Int) {
			p, q := big.NewInt(x.I[a[i]]), big.NewInt(y.I[c[i]])
			if (op == "div" || op == "mod") && q.Sign() == 0 {
				byZero = true
				return
			}
			bigBinary[op](z, p, q)
		})
		wantIntsOrError(t, op, got, err, want, refused || byZero)
	}
}

// joined is the broadcast shape of two shapes that fit.
func joined(a, b []int) []int {
	if len(a) == 0 {
		return b
	}
	out := slices.Clone(a)
	for i := range b {
		out[i] = max(out[i], b[i])
	}
	return out
}

func compare[V float32 | int64](a, b V) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// comparisons are by the sign of x - y; NaN is unequal to everything.
var comparisons = map[string]func(sign int) bool{
	"eq": func(s int) bool { return s == 0 }, "ne": func(s int) bool { return s != 0 },
	"lt": func(s int) bool { return s < 0 }, "le": func(s int) bool { return s <= 0 },
	"gt": func(s int) bool { return s > 0 }, "ge": func(s int) bool { return s >= 0 },
}

// binaryOf is exact or, for div and far-apart sums, rounded to a float64 that
// has more than twice the bits of every operand format, which makes a second
// rounding harmless.
var binaryOf = map[string]func(x, y float64) float64{
	"add": func(x, y float64) float64 { return x + y },
	"sub": func(x, y float64) float64 { return x - y },
	"mul": func(x, y float64) float64 { return x * y },
	"div": func(x, y float64) float64 { return x / y },
	"min": func(x, y float64) float64 { return pickOne(x, y, x < y || x == y && math.Signbit(x)) },
	"max": func(x, y float64) float64 { return pickOne(x, y, x > y || x == y && !math.Signbit(x)) },
}

func pickOne(x, y float64, first bool) float64 {
	switch {
	case x != x || y != y:
		return math.NaN()
	case first:
		return x
	}
	return y
}

var bigBinary = map[string]func(z, x, y *big.Int){
	"add": func(z, x, y *big.Int) { z.Add(x, y) },
	"sub": func(z, x, y *big.Int) { z.Sub(x, y) },
	"mul": func(z, x, y *big.Int) { z.Mul(x, y) },
	"div": bigFloor,
	"mod": func(z, x, y *big.Int) {
		bigFloor(z, x, y)
		z.Sub(x, z.Mul(z, y))
	},
	"min": func(z, x, y *big.Int) { z.Set(bigPick(x, y, -1)) },
	"max": func(z, x, y *big.Int) { z.Set(bigPick(x, y, 1)) },
	"and": func(z, x, y *big.Int) { z.Mul(x, y) },
	"or":  func(z, x, y *big.Int) { z.Set(bigPick(x, y, 1)) },
}

func bigPick(x, y *big.Int, sign int) *big.Int {
	if x.Cmp(y) == sign {
		return x
	}
	return y
}

// bigFloor is the floor of x/y: big.Int.Div rounds so that the remainder is not
// negative, which is the floor for y > 0.
func bigFloor(z, x, y *big.Int) {
	p, q := new(big.Int).Set(x), new(big.Int).Set(y)
	if q.Sign() < 0 {
		p.Neg(p)
		q.Neg(q)
	}
	z.Div(p, q)
}

func TestIntegerArithmetic(t *testing.T) {
	x := func(dt ir.DType, v ...int64) *Tensor { return &Tensor{DType: dt, Shape: []int{len(v)}, I: v} }
	const minI64, maxI64 = math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		op   string
		args []*Tensor
		want []int64
		err  string
	}{
		{"div", []*Tensor{x(ir.I32, 7, -7, 7, -7, 0), x(ir.I32, 2, 2, -2, -2, -3)}, []int64{3, -4, -4, 3, 0}, ""},
		{"mod", []*Tensor{x(ir.I32, 7, -7, 7, -7, 6), x(ir.I32, 4, 4, -4, -4, -3)}, []int64{3, 1, -1, -3, 0}, ""},
		{"mod", []*Tensor{x(ir.I64, minI64, minI64), x(ir.I64, -1, maxI64)}, []int64{0, maxI64 - 1}, ""},
		{"div", []*Tensor{x(ir.I32, 1, 5), x(ir.I32, 1, 0)}, nil, "div by zero at element 1"},
		{"mod", []*Tensor{x(ir.U8, 1, 5), x(ir.U8, 0, 1)}, nil, "mod by zero at element 0"},
		{"div", []*Tensor{x(ir.I64, minI64), x(ir.I64, -1)}, nil, "out of range of i64"},
		{"add", []*Tensor{x(ir.I64, maxI64), x(ir.I64, 1)}, nil, "out of range of i64"},
		{"add", []*Tensor{x(ir.I64, minI64), x(ir.I64, -1)}, nil, "out of range of i64"},
		{"sub", []*Tensor{x(ir.I64, 0), x(ir.I64, minI64)}, nil, "out of range of i64"},
		{"sub", []*Tensor{x(ir.I64, -1), x(ir.I64, minI64)}, []int64{maxI64}, ""},
		{"mul", []*Tensor{x(ir.I64, 1<<32), x(ir.I64, 1<<31)}, nil, "out of range of i64"},
		{"mul", []*Tensor{x(ir.I64, 1<<32), x(ir.I64, -1<<31)}, []int64{minI64}, ""},
		{"mul", []*Tensor{x(ir.I64, minI64), x(ir.I64, -1)}, nil, "out of range of i64"},
		{"mul", []*Tensor{x(ir.I64, -1), x(ir.I64, minI64)}, nil, "out of range of i64"},
		{"mul", []*Tensor{x(ir.I64, 3037000500), x(ir.I64, 3037000500)}, nil, "out of range of i64"},
		{"neg", []*Tensor{x(ir.I64, minI64)}, nil, "out of range of i64"},
		{"abs", []*Tensor{x(ir.I64, minI64)}, nil, "out of range of i64"},
		{"add", []*Tensor{x(ir.I32, math.MaxInt32), x(ir.I32, 1)}, nil, "2147483648 is out of range of i32"},
		{"mul", []*Tensor{x(ir.I8, -128), x(ir.I8, -1)}, nil, "128 is out of range of i8"},
		{"neg", []*Tensor{x(ir.U8, 1)}, nil, "-1 is out of range of u8"},
		{"sub", []*Tensor{x(ir.U8, 3), x(ir.U8, 4)}, nil, "-1 is out of range of u8"},
	} {
		what := fmt.Sprintf("%s %v", c.op, c.args[0].I)
		got, err := apply(t, c.op, nil, c.args...)
		if !matches(err, c.err) {
			t.Errorf("%s: error %v, want %q", what, err, c.err)
		} else if err == nil {
			wantInts(t, what, got[0], c.want)
		}
	}
}

// matches reports whether err's text contains want, "" meaning no error.
func matches(err error, want string) bool {
	if want == "" || err == nil {
		return want == "" && err == nil
	}
	return strings.Contains(err.Error(), want)
}

func selectProp(t *rapid.T) {
	dt := rapid.SampledFrom(valueTypes).Draw(t, "dtype")
	shape := drawShape(t, 0, 4)
	c := drawTensor(t, ir.Bool, drawRepeated(t, shape)...)
	x, y := drawTensor(t, dt, drawRepeated(t, shape)...), drawTensor(t, dt, drawRepeated(t, shape)...)
	full := joined(c.Shape, joined(x.Shape, y.Shape))
	got := apply1(t, "select", nil, c, x, y)
	wantShape(t, "select", got, dt, full...)
	i := 0
	each(full, func(ix []int) {
		from, at := y, repeated(y.Shape, ix)
		if c.I[repeated(c.Shape, ix)] == 1 {
			from, at = x, repeated(x.Shape, ix)
		}
		if cell(got, i) != cell(from, at) {
			t.Fatalf("select: element %d is %s, want %s", i, show(got, i), show(from, at))
		}
		i++
	})
}
