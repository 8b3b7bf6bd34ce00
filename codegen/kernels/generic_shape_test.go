package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// even makes the last extent fit packed f4e2m1.
func even(dt ir.DType, shape []int) []int {
	out := append([]int{}, shape...)
	if n := len(out) - 1; dt == ir.F4E2M1 && n >= 0 {
		out[n] *= 2
	}
	return out
}

func TestBroadcast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	c := newBatch(t)
	for _, dt := range allTypes {
		for _, s := range []struct{ from, to []int }{
			{nil, []int{1}}, {nil, []int{3, 7}}, {[]int{1}, []int{5000}}, {[]int{3, 1}, []int{3, 9}}, {[]int{1, 9}, []int{3, 9}},
			{[]int{5, 1, 7}, []int{5, 300, 7}}, {[]int{1, 3, 1, 5}, []int{2, 3, 4, 5}}, {[]int{2, 1, 9, 1}, []int{2, 3, 9, 17}}, {[]int{2, 1}, []int{2, 5000}},
		} {
			from, to := even(dt, s.from), even(dt, s.to)
			if dt == ir.F4E2M1 && (len(from) == 0 || from[len(from)-1] != to[len(to)-1]) {
				continue
			}
			c.op("broadcast", ir.A("shape", intDims(to)), exact, random(t, r, patterns, dt, from...))
		}
	}
	c.run()
}

func TestTranspose(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := newBatch(t)
	for _, dt := range allTypes {
		if dt == ir.F4E2M1 { // refused by the op table
			continue
		}
		for _, s := range []struct{ shape, perm []int }{
			{nil, nil}, {[]int{5}, []int{0}}, {[]int{3, 7}, []int{1, 0}}, {[]int{70, 9}, []int{1, 0}}, {[]int{1, 9}, []int{1, 0}},
			{[]int{5, 3, 16}, []int{1, 0, 2}}, {[]int{2, 3, 5}, []int{2, 1, 0}}, {[]int{2, 3, 5, 7}, []int{0, 2, 1, 3}}, {[]int{2, 3, 5, 8}, []int{3, 1, 0, 2}},
			{[]int{2, 3, 4, 5}, []int{0, 1, 2, 3}}, {[]int{2, 2300, 2}, []int{1, 0, 2}}, {[]int{3, 2, 5000}, []int{1, 0, 2}},
		} {
			c.op("transpose", ir.A("perm", s.perm), exact, random(t, r, patterns, dt, s.shape...))
		}
	}
	c.run()
}

func TestSliceAndConcat(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	c := newBatch(t)
	for _, dt := range allTypes {
		for _, s := range []struct {
			shape             []int
			axis, start, size int
		}{
			{[]int{9}, 0, 2, 5}, {[]int{3, 7}, 1, 0, 7}, {[]int{3, 7}, 1, 6, 1}, {[]int{5, 3, 7}, 0, 1, 3}, {[]int{5, 3, 7}, 1, 1, 2},
			{[]int{5, 32}, 1, 8, 16}, {[]int{7, 9000}, 1, 3, 5000}, {[]int{2, 3, 4, 8}, 1, 2, 1},
		} {
			shape := even(dt, s.shape)
			if dt == ir.F4E2M1 && s.axis >= len(shape)-2 {
				continue
			}
			c.op("slice", ir.A("axis", s.axis, "start", s.start, "size", s.size), exact, random(t, r, patterns, dt, shape...))
		}
		for _, s := range []struct {
			shape []int
			axis  int
			sizes []int
		}{
			{[]int{0}, 0, []int{3, 1, 8}}, {[]int{3, 0}, 1, []int{4, 5}}, {[]int{0, 7}, 0, []int{2, 3, 1}}, {[]int{2, 0, 8}, 1, []int{1, 6}},
			{[]int{2, 3, 0}, 2, []int{64, 3, 64}}, {[]int{0, 5000}, 0, []int{1, 1}}, {[]int{4}, 0, []int{4}},
		} {
			if dt == ir.F4E2M1 && s.axis == len(s.shape)-1 {
				continue
			}
			var parts []*eval.Tensor
			for _, n := range s.sizes {
				shape := even(dt, s.shape)
				shape[s.axis] = n
				parts = append(parts, random(t, r, patterns, dt, shape...))
			}
			c.op("concat", ir.A("axis", s.axis), exact, parts...)
		}
	}
	// Codes and scales move together.
	for _, dt := range codeTypes {
		x := randomScaled(t, r, special, dt, 2, 4, 5, 3, 10)
		c.op("slice", ir.A("axis", 0, "start", 1, "size", 3), exact, x)
		c.op("concat", ir.A("axis", 0), exact, x, randomScaled(t, r, special, dt, 2, 4, 2, 3, 10), x)
		c.op("concat", ir.A("axis", 1), exact, randomScaled(t, r, special, dt, 2, 4, 5, 4, 10), randomScaled(t, r, special, dt, 2, 4, 5, 2, 10), x)
		c.op("concat", ir.A("axis", 0), exact, randomScaled(t, r, special, dt, 128, 128, 256, 300), randomScaled(t, r, special, dt, 128, 128, 100, 300))
	}
	c.run()
}

func TestMadeOfAttributes(t *testing.T) {
	c := newBatch(t)
	for _, dt := range floatTypes {
		for _, v := range []float64{0, math.Copysign(0, -1), 0.1, -1e-40, 1e-7, 65519.9999, 1 + 0x1p-9 + 0x1p-40, 3e38, math.Inf(1), math.Inf(-1), math.NaN()} {
			c.output(fmt.Sprintf("const %v %s", v, dt), exact, c.b.Scalar(dt, v))
			// As an operand it is an immediate.
			c.output(fmt.Sprintf("broadcast const %v %s", v, dt), exact, c.b.Bin("mul", c.b.Scalar(dt, v), c.b.Scalar(dt, 1)))
		}
	}
	for _, dt := range intTypes {
		for _, v := range []int64{0, 1, 7, 127, intRange[dt][0], intRange[dt][1]} {
			if dt == ir.I64 { // constants are float64
				v >>= 11
			}
			c.output(fmt.Sprintf("const %v %s", v, dt), exact, c.b.Scalar(dt, float64(v)))
			c.output(fmt.Sprintf("broadcast const %v %s", v, dt), exact, c.b.Broadcast(c.b.Bin("max", c.b.Scalar(dt, float64(v)), c.b.Scalar(dt, 3)), ir.Int(3), ir.Int(5)))
		}
	}
	for _, s := range []struct {
		axis  int
		shape []int
	}{{0, []int{1}}, {0, []int{5000}}, {0, []int{5, 3}}, {1, []int{5, 3}}, {1, []int{2, 7, 9}}, {2, []int{2, 7, 9}}} {
		c.output(fmt.Sprintf("iota %v", s), exact, c.b.Iota(s.axis, intDims(s.shape)...))
	}
	for _, n := range []int{1, 2, 8, 128} {
		c.output(fmt.Sprintf("hadamard_matrix %d", n), exact, c.b.Op1("hadamard_matrix", ir.A("n", n)))
	}
	c.run()
}
