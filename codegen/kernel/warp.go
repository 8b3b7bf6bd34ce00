package kernel

import (
	"math"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Matrix products on NVIDIA's warps, and what makes bf16 of narrower weights there: no
// instruction does, so the bits of a code are moved into a bf16, whose exponent a
// multiplication makes right. A bf16 multiplication does not flush subnormal numbers.

// WarpMMA is A B + C: a holds two words of each of the lane's two rows, b two of its
// column, in the order that m's maps say; c and the result four f32. All lanes of the
// warp must get here.
func (k *K) WarpMMA(m *target.MMA, a, b, c Vec) Vec {
	if m == nil || a.t != I32 || a.n != 4 || b.t != I32 || b.n != 2 || c.t != F32 || c.n != 4 {
		k.fail("product of a warp on %s: of %d and %d words, added to %d %v; want 4, 2, and 4 f32", k.T.Name, a.n, b.n, c.n, c.t)
		return c
	}
	var args []value.Value
	for _, x := range []Vec{a, b, c} {
		for i := range x.n {
			args = append(args, k.raw(k.At(x, i)))
		}
	}
	out := k.intrinsic(m.Intrinsic, types.NewStruct(types.Float, types.Float, types.Float, types.Float), args...)
	return k.fields(out, F32)
}

// ReluBF16 rounds two f32 numbers to bf16, and those below 0 to 0, in one word: lo is in
// its lower half. NaN stays NaN. NVIDIA only.
func (k *K) ReluBF16(lo, hi V) V {
	if lo.t != F32 || hi.t != F32 || !k.nvidia("bf16 numbers from 0 on") {
		k.fail("bf16 numbers of %v and %v", lo.t, hi.t)
		return k.Int32(0)
	}
	pair := k.intrinsic("llvm.nvvm.ff2bf16x2.rn.relu", types.NewVector(2, bfloat), k.raw(hi), k.raw(lo))
	return V{t: I32, v: k.b.NewBitCast(pair, types.I32)}
}

// MulBF16 multiplies two bf16 numbers of a word with two others. GPUs with such numbers
// only.
func (k *K) MulBF16(x, y V) V {
	return V{t: I32, v: k.b.NewBitCast(k.b.NewFMul(k.pairOf(x), k.pairOf(y)), types.I32)}
}

// AddBF16 and SubBF16 add two bf16 numbers of a word to two others, and subtract them. To
// be had where MulBF16 is.
func (k *K) AddBF16(x, y V) V {
	return V{t: I32, v: k.b.NewBitCast(k.b.NewFAdd(k.pairOf(x), k.pairOf(y)), types.I32)}
}

func (k *K) SubBF16(x, y V) V {
	return V{t: I32, v: k.b.NewBitCast(k.b.NewFSub(k.pairOf(x), k.pairOf(y)), types.I32)}
}

// pow2BF16 is a word with 2^e twice.
func (k *K) pow2BF16(e int) V {
	half := (e + 127) << 7
	return k.Int32(half<<16 | half)
}

// e4m3ToBF16 is CodesToBF16 on NVIDIA's GPUs. Exponents of e4m3 are 120 lower in a bf16.
func (k *K) e4m3ToBF16(x Vec) Vec {
	unit := k.pow2BF16(120)
	var out []V
	for i := range x.n {
		for half := range 2 {
			// Two codes, each the lower byte of a half, with its sign in all bits above.
			p := k.prmt(k.At(x, i), k.Int32(0), 0x9180+half*0x2222)
			v := k.And(k.Shl(p, k.Int32(4)), k.Int32(-0x780F7810)) // 87F0 in each half
			out = append(out, k.MulBF16(v, unit))
		}
	}
	return k.MakeVec(out...)
}

// prmt is perm by nibbles, as the instruction takes them: with 8 added to its number, a
// byte stands for its sign, in all bits.
func (k *K) prmt(low, high V, nibbles int) V {
	return V{t: I32, v: k.intrinsic("llvm.nvvm.prmt", types.I32, k.raw(low), k.raw(high), constant.NewInt(types.I32, int64(nibbles)))}
}

// E2M1Apart is packed e2m1 codes, eight to a word, times scale, a power of two, as
// bf16 numbers, two to a word: code i of a word beside code i+4, as BF16Apart lays
// bf16 numbers out. It is exact where the product is within bf16's exponents. NVIDIA
// GPUs only.
func (k *K) E2M1Apart(x Vec, scale V) Vec {
	if !k.nvidia("e2m1 to bf16 by halves") {
		return x
	}
	return k.scaleBF16(k.scaleBF16(k.e2m1Halves(x), k.Float(0x1p126)), scale)
}

// E2M1RowsApart is E2M1Apart of rows, each with a scale of its own, an e8m0 code. All
// lanes of the warp must get here.
func (k *K) E2M1RowsApart(rows []Vec, scales []V) []Vec {
	if !k.nvidia("e2m1 to bf16 by halves") {
		return rows
	}
	// One multiplication makes the exponent right and scales, but for scales above 2: the
	// factor is no bf16 then. Few weights have such scales, and few warps see one.
	const two, unit = 128, 126 << 7
	pair := func(code V, first int) V { return k.Add(k.Mul(code, k.Int32(1<<23|1<<7)), k.Int32(first<<16|first)) }
	out := make([]*VecVar, len(rows))
	largest := scales[0]
	for _, s := range scales[1:] {
		largest = k.Max(largest, s)
	}
	some := k.WaveAny(k.Cmp(GT, largest, k.Int32(two)))
	for i, row := range rows {
		factor := pair(k.Min(scales[i], k.Int32(two)), unit)
		out[i] = k.VecVar(k.MapVec(func(v ...V) V { return k.MulBF16(v[0], factor) }, k.e2m1Halves(row)))
	}
	k.If(some, func() {
		for i, x := range out {
			rest := k.scaleBF16(x.Get(), k.Select(k.Cmp(EQ, scales[i], k.Int32(255)), k.Float(math.NaN()), k.Bits(k.Shl(k.Max(k.Sub(scales[i], k.Int32(1)), k.Int32(127)), k.Int32(23)))))
			x.Set(rest)
		}
	})
	var list []Vec
	for _, x := range out {
		list = append(list, x.Get())
	}
	return list
}

// e2m1Halves is the bits of e2m1 codes in those of bf16 numbers, in the order of
// E2M1Apart. Exponents of e2m1 are 126 lower in a bf16.
func (k *K) e2m1Halves(x Vec) Vec {
	const sign, number = 1 << 12, 1 << 6 // what moves a code's sign and the rest of it to their places
	var out []V
	for i := range x.n {
		for j := range 4 {
			word := k.At(x, i)
			if j >= 2 {
				word = k.LShr(word, k.Int32(8))
			}
			code := k.And(word, k.Int32(0x000F000F<<(4*(j%2)))) // code j, and j+4 in the upper half
			v := k.Mul(code, k.Int32((sign+number)>>(4*(j%2))))
			out = append(out, k.And(v, k.Int32(-0x7E3F7E40))) // 81C0 in each half
		}
	}
	return k.MakeVec(out...)
}

// e2m1InOrder is E2M1ToBF16 on NVIDIA's GPUs.
func (k *K) e2m1InOrder(x Vec, scale V) Vec {
	unit := k.Float(0x1p126)
	apart := k.scaleBF16(k.scaleBF16(k.e2m1Halves(x), unit), scale)
	var out []V
	for i := 0; i < apart.n; i += 4 {
		for _, halves := range []func(lo, hi V) V{k.LowerHalves, k.UpperHalves} { // the first four codes, then the others
			for j := i; j < i+4; j += 2 {
				out = append(out, halves(k.At(apart, j), k.At(apart, j+1)))
			}
		}
	}
	return k.MakeVec(out...)
}

// scaleBF16 is bf16 numbers, two to a word, times a power of two or NaN, which bf16 has.
func (k *K) scaleBF16(x Vec, scale V) Vec {
	both := k.UpperHalves(k.Bits(scale), k.Bits(scale))
	return k.MapVec(func(v ...V) V { return k.MulBF16(v[0], both) }, x)
}

// BF16Apart is eight bf16 numbers, number i beside number i+4. GPU only.
func (k *K) BF16Apart(x Vec) Vec {
	if x.n != 4 {
		k.fail("%d words of bf16, want 4", x.n)
		return x
	}
	var out []V
	for i := range 2 {
		lo, hi := k.At(x, i), k.At(x, i+2)
		out = append(out, k.LowerHalves(lo, hi), k.UpperHalves(lo, hi))
	}
	return k.MakeVec(out...)
}
