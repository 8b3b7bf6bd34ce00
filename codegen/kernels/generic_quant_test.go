package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// blocks are tensors whose blocks stress the choice of a scale: ordinary,
// tiny, huge, exact powers, all zero, and some with NaN or infinities.
func blocks(t *testing.T, r *rand.Rand, dt ir.DType, block int, shape ...int) *eval.Tensor {
	t.Helper()
	x := random(t, r, ordinary, dt, shape...)
	for i := range x.F {
		scale := []float64{1, 0x1p-130, 0x1p-140, 0x1p110, 1e-6, 0, 448, 6}[i/block%8]
		v := float64(x.F[i]) * scale
		if scale == 448 || scale == 6 {
			v = scale * math.Pow(2, float64(r.IntN(9)-4))
		}
		x.F[i] = float32(v)
	}
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32}
	for i := range x.F {
		if i/block%11 == 10 && r.IntN(block) == 0 {
			x.F[i] = odd[r.IntN(len(odd))]
		}
	}
	return floatsOf(t, dt, x.F, shape...)
}

func TestQuantize(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	c := newBatch(t)
	floors := []float64{1e-4, 6 * 0x1p-126, 1e-50}
	for _, to := range codeTypes {
		for i, dt := range floatTypes {
			for j, s := range []struct {
				shape []int
				block int
			}{
				{[]int{1, 2}, 1}, {[]int{5, 6}, 3}, {[]int{70, 14}, 7}, {[]int{30, 16}, 8}, {[]int{9, 18}, 9}, {[]int{3, 4, 64}, 32}, {[]int{40, 512}, 128}, {[]int{2, 9000}, 9000}, {[]int{2, 1500}, 300},
			} {
				c.op("quantize", ir.A("to", to, "block", s.block, "floor", floors[(i+j)%3]), exact, blocks(t, r, dt, s.block, s.shape...))
			}
		}
		c.op("quantize", ir.A("to", to, "block", 16, "floor", 1e-4), exact, random(t, r, patterns, ir.F32, 200, 64))
		c.op("quantize", ir.A("to", to, "block", 16, "floor", 1e39), exact, random(t, r, patterns, ir.F32, 2, 64)) // no f32
	}
	c.run()
}

func TestDequantize(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	c := newBatch(t)
	for i, dt := range codeTypes {
		for j, s := range []struct {
			shape  []int
			b0, b1 int
		}{
			{[]int{1, 2}, 1, 1}, {[]int{5, 6}, 2, 4}, {[]int{3, 5, 6}, 2, 4}, {[]int{5, 18}, 1, 3}, {[]int{2, 3, 18}, 2, 9}, {[]int{300, 256}, 128, 128}, {[]int{2, 130, 64}, 128, 32},
			{[]int{7, 96}, 1, 32}, {[]int{2, 3, 7, 16}, 3, 8}, {[]int{3, 9000}, 2, 5000}, {[]int{5, 130}, 4, 64},
		} {
			c.op("dequantize", ir.A("to", floatTypes[(i+j)%3]), exact, randomScaled(t, r, special, dt, s.b0, s.b1, s.shape...))
			c.op("dequantize", ir.A("to", floatTypes[(i+j+1)%3]), exact, randomScaled(t, r, ordinary, dt, s.b0, s.b1, s.shape...))
		}
	}
	c.run()
}

// All codes and scales, and shapes whose scales have edge blocks.
func TestRecodeFNUZ(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	c := newBatch(t)
	all := blank(t, ir.Scaled(ir.F8E4M3, 1, 256, ir.Int(256), ir.Int(256)))
	for i := range all.Codes {
		all.Codes[i] = byte(i)
	}
	for i := range all.Scales {
		all.Scales[i] = byte(i)
	}
	c.op("recode_fnuz", nil, exact, all)
	for _, s := range []struct {
		shape  []int
		b0, b1 int
	}{{[]int{1, 1}, 1, 1}, {[]int{5, 6}, 2, 4}, {[]int{2, 3, 18}, 2, 9}, {[]int{131, 9000}, 128, 128}} {
		c.op("recode_fnuz", nil, exact, randomScaled(t, r, special, ir.F8E4M3, s.b0, s.b1, s.shape...))
	}
	c.run(bothHosts...)
}
