package kernel

import (
	"math"

	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
)

// The 8-bit floats. A target with Convert8 has instructions for one of the two
// formats; the other one, and both elsewhere, are converted by moving bits.

// ownFloat8 reports whether the target's instructions convert format d.
func (k *K) ownFloat8(d tir.DType) bool {
	own := tir.F8E4M3
	if k.T.FNUZ {
		own = tir.F8E4M3FNUZ
	}
	return k.T.Convert8 && d == own
}

// cvtDecode is the value of a code of the target's own format in the low byte of
// an i32 (AMD's v_cvt_f32_fp8).
func (k *K) cvtDecode(c V) V {
	const byteSelect = 0
	v := k.intrinsic("llvm.amdgcn.cvt.f32.fp8", types.Float, k.raw(c), constant.NewInt(types.I32, byteSelect))
	return V{t: F32, uniform: c.uniform, v: v}
}

// cvtEncode rounds to a code of the target's own format, nearest even (AMD's
// v_cvt_pk_fp8_f32, which converts two numbers to the low half of a word). x is
// within the format's range: what becomes of larger numbers depends on a mode bit.
func (k *K) cvtEncode(x V) V {
	v := k.raw(x)
	word := k.intrinsic("llvm.amdgcn.cvt.pk.fp8.f32", types.I32, v, v, constant.NewInt(types.I32, 0), constant.False)
	return k.And(V{t: I32, uniform: x.uniform, v: word}, k.Int32(0xFF))
}

// DecodeE4M3 is the value of an OCP e4m3 code in an i32; 0x7F and 0xFF are NaN.
func (k *K) DecodeE4M3(c V) V {
	if k.ownFloat8(tir.F8E4M3) {
		return k.cvtDecode(c)
	}
	nan := k.Cmp(EQ, k.And(c, k.Int32(0x7F)), k.Int32(0x7F))
	return k.Select(nan, k.Float(math.NaN()), k.DecodeE4M3Finite(c))
}

// DecodeE4M3Finite is DecodeE4M3 for weights, which hold no NaN codes.
func (k *K) DecodeE4M3Finite(c V) V {
	if k.ownFloat8(tir.F8E4M3) {
		return k.cvtDecode(c)
	}
	return k.decode8(c, 0x1p120)
}

// DecodeFNUZ is the value of an e4m3fnuz code in an i32; 0x80 is NaN.
func (k *K) DecodeFNUZ(c V) V {
	if k.ownFloat8(tir.F8E4M3FNUZ) {
		return k.cvtDecode(c)
	}
	return k.Select(k.Cmp(EQ, c, k.Int32(0x80)), k.Float(math.NaN()), k.decode8(c, 0x1p119))
}

// decode8 moves the bits of a code into an f32, whose exponent unit makes right.
func (k *K) decode8(c V, unit float64) V {
	x := k.Mul(k.Bits(k.Shl(k.And(c, k.Int32(0x7F)), k.Int32(20))), k.Float(unit))
	return k.Bits(k.Or(k.Bits(x), k.Shl(k.And(c, k.Int32(0x80)), k.Int32(24))))
}

var (
	codeE4M3 = smallFloat{man: 3, bias: 7, signBit: 7, max: 448, nan: 0x7F}
	codeFNUZ = smallFloat{man: 3, bias: 8, signBit: 7, max: 240, nan: 0x80}
	codeHalf = smallFloat{man: 3, bias: 8, signBit: 7, max: 224, nan: 0x80}
)

// EncodeE4M3 rounds f32 to an OCP e4m3 code, nearest even, saturating at 448;
// NaN gives 0x7F.
func (k *K) EncodeE4M3(x V) V {
	if k.ownFloat8(tir.F8E4M3) {
		return k.cvtWithin(x, codeE4M3)
	}
	return k.signed(x, k.encodeMagnitude(x, codeE4M3), codeE4M3)
}

// EncodeFNUZ rounds f32 to an e4m3fnuz code, nearest even, saturating at 240; NaN
// gives 0x80 and everything that rounds to zero gives 0.
func (k *K) EncodeFNUZ(x V) V { return k.encodeFNUZ(x, codeFNUZ) }

// EncodeHalf is EncodeFNUZ saturating at 224, half of what EncodeE4M3 saturates
// at: numbers get the codes that EncodeE4M3 gives their doubles, -0 apart.
func (k *K) EncodeHalf(x V) V { return k.encodeFNUZ(x, codeHalf) }

func (k *K) encodeFNUZ(x V, f smallFloat) V {
	if k.ownFloat8(tir.F8E4M3FNUZ) {
		return k.cvtWithin(x, f)
	}
	mag := k.encodeMagnitude(x, f)
	zero := k.And(k.Cmp(EQ, mag, k.Int32(0)), k.Cmp(EQ, x, x))
	return k.Select(zero, k.Int32(0), k.signed(x, mag, f))
}

// cvtWithin is cvtEncode of any number.
func (k *K) cvtWithin(x V, f smallFloat) V {
	inside := k.Max(k.Min(x, k.Float(f.max)), k.Float(-f.max))
	return k.Select(k.Cmp(NE, x, x), k.Int32(f.nan), k.cvtEncode(inside))
}
