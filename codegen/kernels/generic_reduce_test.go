package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// sums are f64 on both sides; only their order may differ, so that about one
// result in 2^20 rounds the other way.
var sums = limit{ulps: 1, share: 1e-3}

// summable takes the numbers out of x that are so large that the order of a sum
// decides what is left of the others.
func summable(x *eval.Tensor) *eval.Tensor {
	for i, v := range x.F {
		if v := math.Abs(float64(v)); v > 1e20 && v < math.Inf(1) {
			x.F[i] = -3
		}
	}
	return x
}

// reduceShapes reduce an axis in each way: a group along a run, a lane per
// result along rows, across columns, and across few columns.
var reduceShapes = []struct {
	shape []int
	axis  int
}{
	{[]int{1}, 0}, {[]int{7}, 0}, {[]int{9000}, 0}, {[]int{5, 8}, 1}, {[]int{5, 9}, 1}, {[]int{300, 5}, 1}, {[]int{300, 5}, 0}, {[]int{5, 300}, 0},
	{[]int{3, 5000}, 1}, {[]int{2, 5000}, 0}, {[]int{2, 3, 7}, 1}, {[]int{2, 70, 9}, 1}, {[]int{3, 4, 1}, 2}, {[]int{3, 1, 4}, 1}, {[]int{2, 3, 4, 257}, 3}, {[]int{2, 3, 4, 5}, 0},
}

func TestReduceSum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	c := newBatch(t)
	for _, dt := range floatTypes {
		for _, s := range reduceShapes {
			for _, st := range []style{ordinary, special} {
				x := summable(random(t, r, st, dt, s.shape...))
				for _, to := range floatTypes {
					c.op("reduce_sum", ir.A("axis", s.axis, "to", to), sums, x)
				}
			}
		}
	}
	c.run()
}

func TestReduceMax(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	c := newBatch(t)
	for _, dt := range floatTypes {
		for _, s := range reduceShapes {
			x := random(t, r, special, dt, s.shape...)
			c.op("reduce_max", ir.A("axis", s.axis), exact, x)
			finite, zeros, low := x.Clone(), x.Clone(), x.Clone()
			for i := range finite.F {
				if v := finite.F[i]; v != v {
					finite.F[i] = -2
				}
				zeros.F[i] = float32(math.Copysign(0, r.Float64()-0.7))
				low.F[i] = float32(math.Inf(-1))
			}
			c.op("reduce_max", ir.A("axis", s.axis), exact, finite)
			c.op("reduce_max", ir.A("axis", s.axis), exact, zeros)
			c.op("reduce_max", ir.A("axis", s.axis), exact, low)
		}
	}
	c.run()
}

func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	c := newBatch(t)
	for i, s := range []struct{ x, w []int }{
		{[]int{1, 1}, []int{1, 1}}, {[]int{3, 5}, []int{4, 5}}, {[]int{1, 7}, []int{300, 7}}, {[]int{300, 3}, []int{1, 3}}, {[]int{5, 8}, []int{3, 8}},
		{[]int{1, 9}, []int{1, 9}}, {[]int{5, 300}, []int{7, 300}}, {[]int{4, 64}, []int{2, 64}}, {[]int{9, 1000}, []int{1, 1000}}, {[]int{40, 2}, []int{41, 2}},
		{[]int{3, 5, 9}, []int{3, 2, 9}}, {[]int{3, 5, 6}, []int{3, 2, 6}}, {[]int{1, 5, 9}, []int{3, 2, 9}}, {[]int{3, 5, 9}, []int{1, 2, 9}}, {[]int{1, 5, 9}, []int{1, 2, 9}},
		{[]int{2, 1, 4, 5, 17}, []int{1, 3, 4, 2, 17}}, {[]int{2, 1, 4, 5, 3}, []int{1, 3, 4, 2, 3}}, {[]int{2, 3, 5, 16}, []int{2, 1, 6, 16}}, {[]int{2, 3, 5, 4}, []int{1, 3, 6, 4}},
	} {
		for j, dt := range floatTypes {
			c.op("dot", ir.A("to", floatTypes[(i+j)%3]), sums, random(t, r, ordinary, dt, s.x...), random(t, r, ordinary, floatTypes[(i+2*j)%3], s.w...))
		}
		c.op("dot", ir.A("to", ir.F32), sums, summable(random(t, r, special, ir.F32, s.x...)), summable(random(t, r, special, ir.F32, s.w...)))
	}
	c.run()
}

// A sum is rounded once: here f32 would lose what decides a tie of the narrow
// format.
func TestSumsRoundOnce(t *testing.T) {
	c := newBatch(t)
	for _, n := range []int{3, 9, 300} {
		x, ones := blank(t, ir.T(ir.F32, ir.Int(2), ir.Int(n))), blank(t, ir.T(ir.F32, ir.Int(1), ir.Int(n)))
		copy(x.F, []float32{1, 0x1p-8, 0x1p-40})
		copy(x.F[n:], []float32{1, 0x1p-11, 0x1p-40})
		for i := range ones.F {
			ones.F[i] = 1
		}
		for _, to := range []ir.DType{ir.BF16, ir.F16} {
			c.op("reduce_sum", ir.A("axis", 1, "to", to), exact, x)
			c.op("dot", ir.A("to", to), exact, x, ones)
		}
	}
	c.run()
}

// A row's bits are the same whatever rows stand beside it, for every op that
// sums.
func TestSumsAreRowInvariant(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rows = 23
	x, w := random(t, r, ordinary, ir.F32, rows, 333), random(t, r, ordinary, ir.F32, 5, 333)
	first := func(n int) *eval.Tensor { return floatsOf(t, ir.F32, x.F[:n*333], n, 333) }
	c := newBatch(t)
	for _, n := range []int{1, 2, 3, 4, 7, rows} {
		c.op("dot", ir.A("to", ir.F32), sums, first(n), w)
		c.op("reduce_sum", ir.A("axis", 1), sums, first(n))
	}
	got := c.outputs("x86-64-v3")
	for i := range c.what {
		all := got[fmt.Sprintf("y%d", len(c.what)-2+i%2)]
		for j, v := range got[fmt.Sprintf("y%d", i)].F {
			if math.Float32bits(v) != math.Float32bits(all.F[j]) {
				t.Errorf("%s: element %d is %v, and %v among %d rows", c.what[i], j, v, all.F[j], rows)
			}
		}
	}
}

func TestTopK(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	c := newBatch(t)
	scores := func(kind string, dt ir.DType, rows, n int) *eval.Tensor {
		st := ordinary
		if kind == "special" || kind == "patterns" {
			st = map[string]style{"special": special, "patterns": patterns}[kind]
		}
		x := random(t, r, st, dt, rows, n)
		for i := range x.F {
			switch kind {
			case "ties":
				x.F[i] = float32(r.IntN(3))
			case "equal":
				x.F[i] = 1
			case "none":
				x.F[i] = []float32{float32(math.NaN()), float32(math.Inf(-1))}[r.IntN(2)]
			case "few":
				if r.IntN(n) > 2 {
					x.F[i] = float32(math.Inf(-1))
				}
			case "zeros":
				x.F[i] = float32(math.Copysign(0, r.Float64()-0.5))
			}
		}
		return x
	}
	for _, s := range []struct{ rows, n, k int }{
		{1, 1, 1}, {3, 7, 1}, {3, 8, 3}, {2, 9, 9}, {2, 5, 16}, {2, 256, 8}, {3, 300, 16}, {2, 8, 17}, {2, 9, 20}, {2, 64, 64}, {3, 300, 40}, {1, 1000, 1024}, {1, 5000, 1000},
	} {
		for _, kind := range []string{"ordinary", "ties", "equal", "none", "few", "zeros", "special", "patterns"} {
			c.op("topk", ir.A("k", s.k), exact, scores(kind, ir.F32, s.rows, s.n))
		}
		c.op("topk", ir.A("k", s.k), exact, scores("ordinary", ir.BF16, s.rows, s.n))
		c.op("topk", ir.A("k", s.k), exact, scores("patterns", ir.F16, s.rows, s.n))
	}
	c.op("topk", ir.A("k", 5), exact, random(t, r, ordinary, ir.F32, 77))
	c.op("topk", ir.A("k", 2), exact, random(t, r, ordinary, ir.F32, 2, 3, 1, 11))
	c.op("topk", ir.A("k", 1024), exact, random(t, r, ordinary, ir.F32, 2, 100003))
	c.op("topk", ir.A("k", 6), exact, random(t, r, ordinary, ir.BF16, 1, 100003))
	c.op("topk", ir.A("k", 9000), exact, scores("ties", ir.F32, 2, 10007)) // too many for shared memory
	c.run(bothHosts...)
}
