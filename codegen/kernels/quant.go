package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// codeFormat is a block-scaled format as kernels see it.
type codeFormat struct {
	max, floor float64
	encode     func(*kernel.K, kernel.V) kernel.V // f32 -> code
	decode     func(*kernel.K, kernel.V) kernel.V // code -> f32
	// stored is the scale that memory has, in scales of a block: codes that mean half
	// of what they do in memory have scales that mean twice as much.
	stored float64
}

var (
	e4m3 = codeFormat{448, 1e-4, (*kernel.K).EncodeE4M3, (*kernel.K).DecodeE4M3, 1}
	e2m1 = codeFormat{6, 6 * 0x1p-126, (*kernel.K).EncodeE2M1, (*kernel.K).DecodeE2M1, 1}
	// e4m3Half is e4m3 in e4m3fnuz codes, which mean half as much: with half the
	// largest number the scale doubles, and what a product sees has the bits that
	// e4m3 gives, but for -0, which becomes +0.
	e4m3Half = codeFormat{224, 1e-4, (*kernel.K).EncodeHalf, (*kernel.K).DecodeFNUZ, 0.5}
)

// codeFormatOf is the format that quantBlock takes for dt on a target, and
// whether it knows one.
func codeFormatOf(dt ir.DType, t *target.Target) (codeFormat, bool) {
	switch {
	case dt == ir.F8E4M3 && t.FNUZ:
		return e4m3Half, true
	case dt == ir.F8E4M3:
		return e4m3, true
	case dt == ir.F4E2M1:
		return e2m1, true
	}
	return codeFormat{}, false
}

// quantBlock rounds n elements through a block-scaled format: y = decode(code) *
// scale. A block with NaN or Inf becomes NaN. On a GPU every lane of the group
// takes part, so n may be smaller than the group.
func quantBlock(k *kernel.K, x, y *kernel.Buf, n int, f codeFormat) {
	inv := blockScale(k, x, n, f)
	k.Lanes(k.Int(n), func(i kernel.V) {
		y.Store(i, k.Mul(f.decode(k, f.encode(k, k.Mul(x.Load(i), inv.inverse))), inv.scale))
	})
}

type scaleOf struct{ scale, inverse kernel.V }

// blockScale is the power-of-two scale of a block, and its exact inverse.
func blockScale(k *kernel.K, x *kernel.Buf, n int, f codeFormat) scaleOf {
	top, bad := k.Var(k.Float(f.floor)), k.Var(k.Float(0))
	k.Lanes(k.Int(n), func(i kernel.V) {
		v := x.Load(i)
		top.Set(k.Max(k.Abs(v), top.Get()))
		// 0*v is NaN for NaN and Inf only.
		bad.Set(k.Add(bad.Get(), k.Mul(v, k.Float(0))))
	})
	return scaleOfMax(k, k.MaxOf(top.Get()), k.Sum(bad.Get()), f)
}

// scaleOfMax is the scale of a block with the largest absolute value top; bad is NaN
// if a number of it is NaN or Inf, else 0.
func scaleOfMax(k *kernel.K, top, bad kernel.V, f codeFormat) scaleOf {
	s, _ := k.Pow2Ceil(k.Mul(top, k.Float(float64(float32(1/f.max)))))
	// The inverse of a power of two is exact; adding the flag makes both NaN.
	return scaleOf{scale: k.Add(s, bad), inverse: k.Div(k.Float(1), s)}
}
