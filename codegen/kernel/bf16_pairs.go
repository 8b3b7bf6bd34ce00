package kernel

import (
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Numbers of bf16, two to a word. NVIDIA's GPUs compare both at once; AMD's have them as
// f32.

// UnpackBF16 is the two bf16 numbers of a word as f32, the lower one first.
func (k *K) UnpackBF16(word V) [2]V {
	return [2]V{k.Bits(k.Shl(word, k.Int32(16))), k.Bits(k.And(word, k.Int32(-1<<16)))}
}

// pairOf is a word as two bf16 numbers.
func (k *K) pairOf(word V) value.Value {
	return k.b.NewBitCast(k.raw(word), types.NewVector(2, bfloat))
}

// MaxBF16 is the larger of each two bf16 numbers of words, or NaN if either is NaN; -0 is
// below +0. NVIDIA GPUs only.
func (k *K) MaxBF16(x, y V) V {
	if !k.nvidia("maximum of two bf16") {
		return x
	}
	p := k.pairOf(x)
	return V{t: I32, v: k.b.NewBitCast(k.intrinsic("llvm.maximum."+mangle(p.Type()), p.Type(), p, k.pairOf(y)), types.I32)}
}

// MaxNumBF16 is the larger number of x and of y, in each half of the words. What is NaN
// in x is skipped; y has no NaN. Of zeros with different signs it is either. GPU only.
func (k *K) MaxNumBF16(x, y V) V {
	if !k.gpu("maximum of bf16 pairs") {
		return x
	}
	if k.T.Kind == target.NVPTX {
		p := k.pairOf(x)
		return V{t: I32, v: k.b.NewBitCast(k.intrinsic("llvm.maxnum."+mangle(p.Type()), p.Type(), p, k.pairOf(y)), types.I32)}
	}
	a, b := k.UnpackBF16(x), k.UnpackBF16(y)
	return k.UpperHalves(k.Bits(k.Max(a[0], b[0])), k.Bits(k.Max(a[1], b[1])))
}

// AtLeastBF16 reports whether the numbers of x are at least those of y, the lower ones
// first. NaN is not, and nothing is at least NaN. GPU only.
func (k *K) AtLeastBF16(x, y V) []V {
	if !k.gpu("comparison of bf16 pairs") {
		return []V{x, y}
	}
	out := make([]V, 2)
	if k.T.Kind == target.NVPTX {
		both := k.b.NewFCmp(enum.FPredOGE, k.pairOf(x), k.pairOf(y))
		for i := range out {
			out[i] = V{t: Bool, v: k.b.NewExtractElement(both, constant.NewInt(types.I32, int64(i)))}
		}
		return out
	}
	a, b := k.UnpackBF16(x), k.UnpackBF16(y)
	for i := range out {
		out[i] = k.Cmp(GE, a[i], b[i])
	}
	return out
}

// AtLeastMaskBF16 has all bits of a half set where the number of x is at least that of y, as
// AtLeastBF16 says. NVIDIA GPUs only.
func (k *K) AtLeastMaskBF16(x, y V) V {
	if !k.nvidia("mask of two bf16") {
		return x
	}
	const text, constraints = "set.ge.u32.bf16x2 $0, $1, $2;", "=r,r,r"
	word := ir.NewInlineAsm(types.NewPointer(types.NewFunc(types.I32, types.I32, types.I32)), text, constraints)
	return V{t: I32, v: k.b.NewCall(word, k.raw(x), k.raw(y))}
}

// CountBits is how many bits of an i32 are set.
func (k *K) CountBits(x V) V {
	return V{t: I32, uniform: x.uniform, v: k.intrinsic("llvm.ctpop.i32", types.I32, k.raw(x))}
}

// FirstBit is the lowest set bit of an i32, which has one. GPU only.
func (k *K) FirstBit(x V) V {
	if !k.gpu("first bit") {
		return x
	}
	return V{t: I32, uniform: x.uniform, v: k.intrinsic("llvm.cttz.i32", types.I32, k.raw(x), constant.True)}
}

// WaveSum adds an i32 over the lanes of the wave, which must all get here: the same in all
// of them. GPU only.
func (k *K) WaveSum(x V) V {
	if x.uniform || x.t != I32 || !k.gpu("sum of a wave") {
		k.fail("sum of a wave of a uniform value or of %v", x.t)
		return x
	}
	return k.waveSum(x)
}
