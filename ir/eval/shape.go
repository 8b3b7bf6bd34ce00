package eval

import (
	"math"
	"math/bits"

	"github.com/kiln-project/kiln/ir"
)

func makeConst(op *ir.Op) (kernel, error) {
	v, dt := op.Float("value"), op.DType("dtype")
	round := rounder64(dt)
	return func(_, out []*Tensor) error {
		if dt.IsInt() {
			out[0].I[0] = int64(v)
			return checkInt(dt, int64(v))
		}
		out[0].F[0] = round(v)
		return nil
	}, nil
}

func makeIota(op *ir.Op) (kernel, error) {
	shape, axis := shapeOf(op.Results[0]), op.Int("axis")
	inner := product(shape[axis+1:])
	return func(_, out []*Tensor) error {
		for i := range out[0].I {
			out[0].I[i] = int64(i / inner % shape[axis])
		}
		return nil
	}, nil
}

func makeBroadcast(op *ir.Op) (kernel, error) {
	b := newBroadcast(shapeOf(op.Results[0]), shapeOf(op.Args[0]))
	return func(in, out []*Tensor) error {
		b.rows(func(o, n int, off, step []int) {
			for i := range n {
				copyElement(out[0], o+i, in[0], off[0]+i*step[0])
			}
		})
		return nil
	}, nil
}

// copyElement moves one element between tensors of one dtype.
func copyElement(dst *Tensor, i int, src *Tensor, j int) {
	switch {
	case dst.F != nil:
		dst.F[i] = src.F[j]
	case dst.I != nil:
		dst.I[i] = src.I[j]
	case dst.DType == ir.F4E2M1:
		dst.setCode(i, src.code(j))
	default:
		dst.Codes[i] = src.Codes[j]
	}
}

func makeTranspose(op *ir.Op) (kernel, error) {
	perm, in := op.Ints("perm"), shapeOf(op.Args[0])
	stride := make([]int, len(in))
	for i, s := len(in)-1, 1; i >= 0; i-- {
		stride[i], s = s, s*in[i]
	}
	out := shapeOf(op.Results[0])
	walk := make([]int, len(perm)) // stride in the operand per result axis
	for i, p := range perm {
		walk[i] = stride[p]
	}
	return func(in, res []*Tensor) error {
		switch {
		case res[0].F != nil:
			permute(res[0].F, in[0].F, out, walk)
		case res[0].I != nil:
			permute(res[0].I, in[0].I, out, walk)
		default:
			permute(res[0].Codes, in[0].Codes, out, walk)
		}
		return nil
	}, nil
}

func permute[V any](dst, src []V, shape, walk []int) {
	idx := make([]int, len(shape))
	last := len(shape) - 1
	off := 0
	for i := 0; i < len(dst); {
		if last < 0 {
			dst[i] = src[0]
			return
		}
		for j, step := 0, walk[last]; j < shape[last]; j++ {
			dst[i] = src[off+j*step]
			i++
		}
		for a := last - 1; a >= 0; a-- {
			idx[a]++
			off += walk[a]
			if idx[a] < shape[a] {
				break
			}
			off -= idx[a] * walk[a]
			idx[a] = 0
		}
	}
}

// makeSlice and makeConcat move whole runs: the part of a row-major tensor
// inside one index of the axes before the cut axis is contiguous.

func makeSlice(op *ir.Op) (kernel, error) {
	axis, start, size := op.Int("axis"), op.Int("start"), op.Int("size")
	shape := shapeOf(op.Args[0])
	outer := product(shape[:axis])
	return func(in, out []*Tensor) error {
		run := func(total int) (from, n, stride int) { // in stored units
			stride = total / outer
			per := stride / shape[axis]
			return start * per, size * per, stride
		}
		eachStore(in[0], out[0], func(total int, move func(dst, src, n int)) {
			from, n, stride := run(total)
			for i := range outer {
				move(i*n, i*stride+from, n)
			}
		})
		return nil
	}, nil
}

func makeConcat(op *ir.Op) (kernel, error) {
	axis := op.Int("axis")
	shape := shapeOf(op.Results[0])
	outer := product(shape[:axis])
	return func(in, out []*Tensor) error {
		at := map[int]int{} // per store: where the next operand goes inside a run
		for _, x := range in {
			store := 0
			eachStorePair(x, out[0], func(inTotal, outTotal int, move func(dst, src, n int)) {
				n, stride := inTotal/outer, outTotal/outer
				for i := range outer {
					move(i*stride+at[store], i*n, n)
				}
				at[store] += n
				store++
			})
		}
		return nil
	}, nil
}

// eachStore calls f for each storage the tensor uses (values, or codes and
// scales) with its length in src and a function that moves a run.
func eachStore(src, dst *Tensor, f func(total int, move func(dst, src, n int))) {
	eachStorePair(src, dst, func(in, _ int, move func(dst, src, n int)) { f(in, move) })
}

func eachStorePair(src, dst *Tensor, f func(in, out int, move func(dst, src, n int))) {
	if src.F != nil {
		f(len(src.F), len(dst.F), func(d, s, n int) { copy(dst.F[d:d+n], src.F[s:s+n]) })
	}
	if src.I != nil {
		f(len(src.I), len(dst.I), func(d, s, n int) { copy(dst.I[d:d+n], src.I[s:s+n]) })
	}
	if src.Codes != nil {
		f(len(src.Codes), len(dst.Codes), func(d, s, n int) { copy(dst.Codes[d:d+n], src.Codes[s:s+n]) })
	}
	if src.Scales != nil {
		f(len(src.Scales), len(dst.Scales), func(d, s, n int) { copy(dst.Scales[d:d+n], src.Scales[s:s+n]) })
	}
}

func makeHadamardMatrix(op *ir.Op) (kernel, error) {
	n := op.Int("n")
	return func(_, out []*Tensor) error {
		for i := range n {
			for j := range n {
				out[0].F[i*n+j] = float32(1 - 2*(bits.OnesCount(uint(i&j))%2))
			}
		}
		return nil
	}, nil
}

// makeRopeFreqs follows the golden run's rounding: f32 powers, and the YaRN ramp
// multiplied by the f32 reciprocal of its width.
func makeRopeFreqs(op *ir.Op) (kernel, error) {
	dim, base, orig := op.Int("dim"), op.Float("base"), float64(op.Int("orig"))
	factor, fast, slow := op.Float("factor"), op.Float("beta_fast"), op.Float("beta_slow")
	return func(_, out []*Tensor) error {
		f := out[0].F
		for i := range f {
			f[i] = 1 / float32(math.Pow(base, float64(float32(2*i)/float32(dim))))
		}
		if orig == 0 {
			return nil
		}
		corr := func(rotations float64) float64 {
			return float64(dim) * math.Log(orig/(rotations*2*math.Pi)) / (2 * math.Log(base))
		}
		lo, hi := max(math.Floor(corr(fast)), 0), min(math.Ceil(corr(slow)), float64(dim-1))
		if lo == hi {
			hi += 0.001
		}
		for i := range f {
			ramp := float32(float64(i)-lo) * (1 / float32(hi-lo))
			keep := 1 - min(max(ramp, 0), 1) // share of the unscaled frequency
			// Each product is rounded by its conversion: a fused multiply-add would not.
			f[i] = float32(float32(f[i]/float32(factor))*(1-keep)) + float32(f[i]*keep)
		}
		return nil
	}, nil
}

func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}
