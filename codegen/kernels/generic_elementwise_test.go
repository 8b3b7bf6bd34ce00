package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// Sizes around a vector, a workgroup and a chunk.
var lengths = []int{1, 3, 7, 8, 9, 255, 257, 4097}

func TestUnaryExact(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	c := newBatch(t)
	for _, dt := range floatTypes {
		for _, op := range []string{"neg", "abs", "sqrt"} {
			for _, st := range []style{special, patterns} {
				c.op(op, nil, exact, random(t, r, st, dt, 1000))
			}
		}
		for _, n := range lengths {
			c.op("neg", nil, exact, random(t, r, patterns, dt, n))
		}
	}
	for _, dt := range intTypes {
		if dt == ir.U8 { // has no negative numbers
			c.op("abs", nil, exact, random(t, r, patterns, dt, 100))
			continue
		}
		x := random(t, r, patterns, dt, 1001)
		for i, v := range x.I {
			x.I[i] = max(v, intRange[dt][0]+1)
		}
		c.op("neg", nil, exact, x)
		c.op("abs", nil, exact, x)
	}
	c.op("not", nil, exact, random(t, r, patterns, ir.Bool, 77))
	c.run()
}

// The transcendental functions go through f64, so results are the evaluator's
// but where f64 itself is a rounding away: one ulp, of few elements.
func TestTranscendental(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	c := newBatch(t)
	worst := map[string]*float64{}
	for _, op := range []string{"exp", "log1p", "rsqrt", "sigmoid", "cos", "sin"} {
		w := new(float64)
		worst[op] = w
		l := limit{ulps: 1, worst: w, share: 1e-3}
		for _, dt := range floatTypes {
			for _, st := range []style{ordinary, special, patterns} {
				c.op(op, nil, l, random(t, r, st, dt, 20011))
			}
		}
		all := make([]float32, 1<<16) // every bf16
		for i := range all {
			all[i] = math.Float32frombits(uint32(i) << 16)
		}
		c.op(op, nil, l, floatsOf(t, ir.BF16, all, len(all)))
		// Near multiples of pi/2, where little is left after reduction, and where
		// results underflow or overflow.
		near := make([]float32, 0, 6000)
		for i := range 1500 {
			x := float32(float64(r.IntN(1<<(4+i%20))) * math.Pi / 2)
			near = append(near, x, math.Nextafter32(x, math.MaxFloat32), -x, float32(-88+r.Float64()*177))
		}
		c.op(op, nil, l, floatsOf(t, ir.F32, near, len(near)))
	}
	c.run()
	for _, op := range []string{"exp", "log1p", "rsqrt", "sigmoid", "cos", "sin"} {
		t.Logf("%s: worst %g ulp", op, *worst[op])
	}
}

func TestBinary(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	c := newBatch(t)
	arithmetic := []string{"add", "sub", "mul", "div", "min", "max"}
	compare := []string{"eq", "ne", "lt", "le", "gt", "ge"}
	for _, dt := range floatTypes {
		for _, op := range append(arithmetic, compare...) {
			for _, st := range []style{special, patterns} {
				c.op(op, nil, exact, random(t, r, st, dt, 2000), random(t, r, st, dt, 2000))
			}
		}
	}
	for _, dt := range intTypes {
		x, y := random(t, r, patterns, dt, 999), random(t, r, patterns, dt, 999)
		for _, op := range append([]string{"min", "max"}, compare...) {
			c.op(op, nil, exact, x, y)
		}
		// Sums and products that fit: the sum of halves, the product of roots.
		half, root := random(t, r, patterns, dt, 999), random(t, r, patterns, dt, 999)
		half2, root2 := random(t, r, patterns, dt, 999), random(t, r, patterns, dt, 999)
		for _, x := range []*eval.Tensor{half, half2} {
			for i := range x.I {
				x.I[i] /= 2
			}
		}
		for _, x := range []*eval.Tensor{root, root2} {
			for i := range x.I {
				x.I[i] %= int64(math.Sqrt(float64(intRange[dt][1])))
			}
		}
		c.op("add", nil, exact, half, half2)
		c.op("mul", nil, exact, root, root2)
		if dt == ir.U8 {
			for i := range half2.I {
				half2.I[i] = min(half.I[i], half2.I[i])
			}
		}
		c.op("sub", nil, exact, half, half2)
		small := random(t, r, patterns, dt, 999)
		for i := range small.I {
			small.I[i] = max(1, min(20, small.I[i]))
			if dt != ir.U8 && i%2 == 0 {
				small.I[i] = -small.I[i]
			}
			if x.I[i] == intRange[dt][0] && small.I[i] == -1 {
				small.I[i] = 3
			}
			if y.I[i] == 0 || x.I[i] == intRange[dt][0] && y.I[i] == -1 {
				y.I[i] = 5
			}
		}
		c.op("div", nil, exact, x, small)
		c.op("mod", nil, exact, x, small)
		c.op("div", nil, exact, x, y)
		c.op("mod", nil, exact, x, y)
	}
	for _, op := range []string{"and", "or"} {
		c.op(op, nil, exact, random(t, r, patterns, ir.Bool, 33), random(t, r, patterns, ir.Bool, 33))
	}
	c.run()
}

// Every way in which operands repeat, with select, which has three of them.
func TestBroadcastOperands(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	c := newBatch(t)
	for _, dt := range []ir.DType{ir.F32, ir.BF16, ir.I64, ir.Bool} {
		for _, s := range [][3][]int{
			{{}, {}, {}}, {{5}, {}, {1}}, {{3, 7}, {3, 1}, {1, 7}}, {{1, 1}, {9, 300}, {9, 1}}, {{4, 1, 5}, {1, 3, 5}, {4, 3, 1}},
			{{2, 3, 1, 9}, {2, 1, 4, 9}, {1, 3, 4, 1}}, {{2, 5000}, {2, 1}, {2, 5000}}, {{70, 3}, {70, 1}, {1, 3}}, {{2, 3, 4}, {}, {2, 1, 4}},
		} {
			c.op("select", nil, exact, random(t, r, patterns, ir.Bool, s[0]...), random(t, r, patterns, dt, s[1]...), random(t, r, patterns, dt, s[2]...))
		}
	}
	for range 40 {
		rank := r.IntN(5)
		x, y := make([]int, rank), make([]int, rank)
		for i := range rank {
			n := []int{1, 2, 3, 5, 8, 9, 17}[r.IntN(7)]
			x[i], y[i] = n, n
			switch r.IntN(4) {
			case 0:
				x[i] = 1
			case 1:
				y[i] = 1
			}
		}
		c.op("sub", nil, exact, random(t, r, ordinary, ir.F32, x...), random(t, r, ordinary, ir.F32, y...))
	}
	c.run()
}

func TestCast(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 5))
	c := newBatch(t)
	for _, from := range allTypes {
		for _, to := range allTypes {
			if to == ir.Bool {
				continue
			}
			switch {
			case from.IsInt() || from == ir.Bool:
				x := random(t, r, patterns, from, 2000)
				for i, v := range x.I { // what fits, and what f32 holds exactly
					if to.IsInt() {
						lo, hi := intRange[to][0], intRange[to][1]
						x.I[i] = max(lo, min(hi, v))
					} else if !to.IsFloat() {
						x.I[i] = v % (1 << 24)
					} else {
						x.I[i] = v % (1 << 53)
					}
				}
				c.op("cast", ir.A("to", to), exact, x)
			case from.IsFloat() && to.IsInt():
				x := random(t, r, ordinary, from, 2000)
				for i := range x.F {
					x.F[i] *= 8
					if to == ir.U8 {
						x.F[i] = float32(math.Abs(float64(x.F[i])))
					}
					x.F[i] = min(x.F[i], 127)
					x.F[i] = max(x.F[i], -128)
				}
				c.op("cast", ir.A("to", to), exact, x)
				if to == ir.I64 && from == ir.F32 {
					c.op("cast", ir.A("to", to), exact, floatsOf(t, from, []float32{0x1p62, -0x1p63, 0x1.fffffep62, 16777217, -0.99}, 5))
				}
			case to.IsInt(): // refused, see TestRefused
			case from.IsFloat():
				for _, st := range []style{ordinary, special, patterns} {
					c.op("cast", ir.A("to", to), exact, random(t, r, st, from, 3000))
				}
			default:
				x := random(t, r, patterns, from, 3000)
				c.op("cast", ir.A("to", to), exact, x)
			}
		}
	}
	c.run()
}
