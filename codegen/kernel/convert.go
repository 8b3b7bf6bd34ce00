package kernel

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Conversions between memory formats and computed values. Narrow floats are
// decoded by moving their bits into an f32 and scaling: an f32 whose exponent
// field is a small number times 2^k has the right value, subnormals included.

func floatConst(t *types.FloatType, x float64) constant.Constant {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		bits := math.Float64bits(x)
		if math.IsNaN(x) {
			bits = 0x7FF8000000000000
		}
		return &rawConst{t, "0x" + hex64(bits)}
	}
	return &constant.Float{Typ: t, X: big.NewFloat(x)}
}

func hex64(b uint64) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 16)
	for i := 15; i >= 0; i-- {
		out[i] = digits[b&15]
		b >>= 4
	}
	return string(out)
}

// like gives a vector or scalar type of elem with the shape of v.
func like(v value.Value, elem types.Type) types.Type {
	if vt, ok := v.Type().(*types.VectorType); ok {
		return types.NewVector(vt.Len, elem)
	}
	return elem
}

// decode turns a loaded element into a computed value.
func (k *K) decode(v value.Value, d tir.DType, uniform bool) V {
	out := V{t: F32, uniform: uniform}
	word := func() V { return V{t: I32, uniform: uniform, v: k.b.NewZExt(v, like(v, types.I32))} }
	switch d {
	case tir.F32:
		out.v = v
	case tir.BF16:
		if k.T.BFloat {
			out.v = k.b.NewFPExt(v, like(v, types.Float))
			break
		}
		return k.Bits(k.Shl(word(), k.Int32(16)))
	case tir.F16:
		return k.decodeF16(word())
	case tir.F8E4M3:
		return k.DecodeE4M3(word())
	case tir.F8E4M3FNUZ:
		return k.DecodeFNUZ(word())
	case tir.E8M0:
		return k.DecodeE8M0(word())
	case tir.I64:
		out.t, out.v = I64, v
	case tir.I32:
		out.t, out.v = I32, v
	case tir.I8:
		out.t, out.v = I32, k.b.NewSExt(v, like(v, types.I32))
	case tir.U8:
		return word()
	case tir.Bool:
		return k.Cmp(NE, word(), k.Int32(0))
	}
	return out
}

// DecodeE8M0 is 2^(c-127); 255 is NaN, 0 is 2^-127.
func (k *K) DecodeE8M0(c V) V {
	x := k.Bits(k.Shl(c, k.Int32(23)))
	x = k.Select(k.Cmp(EQ, c, k.Int32(0)), k.Float(0x1p-127), x)
	return k.Select(k.Cmp(EQ, c, k.Int32(255)), k.Float(math.NaN()), x)
}

// DecodeE2M1 is the value of a 4-bit code in an i32.
func (k *K) DecodeE2M1(c V) V {
	sign := k.Shl(k.And(c, k.Int32(8)), k.Int32(28))
	if k.T.Permute8 && !c.uniform { // it looks at the low three bits of an index
		x := V{t: F32, v: k.intrinsic("llvm.x86.avx2.permps", magnitudesE2M1.typ, magnitudesE2M1, k.vary(c))}
		return k.Bits(k.Or(k.Bits(x), sign))
	}
	x := k.Mul(k.Bits(k.Shl(k.And(c, k.Int32(7)), k.Int32(22))), k.Float(0x1p126))
	return k.Bits(k.Or(k.Bits(x), sign))
}

// magnitudesE2M1 are the absolute values of the codes 0 to 7.
var magnitudesE2M1 = func() *rawConst {
	var list []string
	for _, m := range []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6} {
		list = append(list, "float 0x"+hex64(math.Float64bits(m)))
	}
	return &rawConst{types.NewVector(8, types.Float), "<" + strings.Join(list, ", ") + ">"}
}()

func (k *K) decodeF16(c V) V {
	mag := k.And(c, k.Int32(0x7FFF))
	x := k.Mul(k.Bits(k.Shl(mag, k.Int32(13))), k.Float(0x1p112))
	wide := k.Bits(k.Or(k.Shl(mag, k.Int32(13)), k.Int32(0x7F800000)))
	x = k.Select(k.Cmp(GE, mag, k.Int32(0x7C00)), wide, x)
	return k.Bits(k.Or(k.Bits(x), k.Shl(k.And(c, k.Int32(0x8000)), k.Int32(16))))
}

// encode turns a computed value into a stored element.
func (k *K) encode(x V, d tir.DType) value.Value {
	want := map[tir.DType]Elem{tir.I64: I64, tir.I32: I32, tir.I8: I32, tir.U8: I32, tir.Bool: Bool, tir.E8M0: I32, tir.F8E4M3: I32, tir.F8E4M3FNUZ: I32}
	t, ok := want[d]
	if !ok {
		t = F32
	}
	if x.t != t {
		k.fail("store of %v to %s", x.t, d)
		return constant.NewZeroInitializer(k.memType(d))
	}
	v := k.raw(x)
	switch d {
	case tir.BF16:
		if k.T.BFloat {
			return k.b.NewFPTrunc(v, like(v, bfloat))
		}
		return k.b.NewTrunc(k.raw(k.bf16Bits(x)), like(v, types.I16))
	case tir.F16:
		return k.b.NewTrunc(k.raw(k.f16Bits(x)), like(v, types.I16))
	case tir.I8, tir.U8, tir.E8M0, tir.F8E4M3, tir.F8E4M3FNUZ:
		return k.b.NewTrunc(v, like(v, types.I8))
	case tir.Bool:
		return k.b.NewZExt(v, like(v, types.I8))
	}
	return v
}

// bf16Bits rounds f32 to nearest even; NaN stays NaN.
func (k *K) bf16Bits(x V) V {
	u := k.Bits(x)
	odd := k.And(k.LShr(u, k.Int32(16)), k.Int32(1))
	r := k.LShr(k.Add(u, k.Add(odd, k.Int32(0x7FFF))), k.Int32(16))
	nan := k.Or(k.LShr(u, k.Int32(16)), k.Int32(0x40))
	return k.Select(k.Cmp(NE, x, x), nan, r)
}

// RoundBF16 rounds f32 to the bf16 grid.
func (k *K) RoundBF16(x V) V {
	if k.T.BFloat {
		v := k.b.NewFPTrunc(k.raw(x), like(k.raw(x), bfloat))
		return V{t: F32, uniform: x.uniform, v: k.b.NewFPExt(v, like(v, types.Float))}
	}
	return k.Bits(k.Shl(k.bf16Bits(x), k.Int32(16)))
}

// Narrow rounds f64 to f32 so that a store as format d rounds the number once:
// for f32 to nearest even, for bf16 and f16 to odd. f32 has more than two bits
// more than those, so that their rounding of the odd neighbour is that of x.
func (k *K) Narrow(x V, d tir.DType) V {
	f := k.Convert(x, F32)
	if d != tir.BF16 && d != tir.F16 {
		return f
	}
	wide := k.Convert(f, F64)
	up := k.Convert(k.Cmp(GT, k.Abs(wide), k.Abs(x)), I32)
	odd := k.Bits(k.Or(k.Sub(k.Bits(f), up), k.Int32(1)))
	// Exact, or NaN.
	return k.Select(k.Or(k.Cmp(EQ, wide, x), k.Cmp(NE, x, x)), f, odd)
}

// f16Bits rounds f32 to IEEE half, nearest even.
func (k *K) f16Bits(x V) V {
	u := k.Bits(x)
	sign := k.And(k.LShr(u, k.Int32(16)), k.Int32(0x8000))
	a := k.And(u, k.Int32(0x7FFFFFFF))
	// Normal: round the mantissa to 10 bits, rebias; overflow becomes infinity.
	odd := k.And(k.LShr(a, k.Int32(13)), k.Int32(1))
	norm := k.Sub(k.LShr(k.Add(a, k.Add(odd, k.Int32(0xFFF))), k.Int32(13)), k.Int32(112<<10))
	norm = k.Select(k.Cmp(GE, norm, k.Int32(0x7C00)), k.Int32(0x7C00), norm)
	// Subnormal: adding 2^-1 * 2^10 ulps aligns the last bit of the sum with 2^-24.
	magic := k.Float(0.5)
	sub := k.Sub(k.Bits(k.Add(k.Bits(a), magic)), k.Bits(magic))
	r := k.Select(k.Cmp(LT, a, k.Int32(0x38800000)), sub, norm)
	nan := k.Or(k.And(k.LShr(a, k.Int32(13)), k.Int32(0x3FF)), k.Int32(0x7E00))
	r = k.Select(k.Cmp(GT, a, k.Int32(0x7F800000)), nan, r)
	return k.Or(sign, r)
}

// smallFloat is a code format without infinities, as its encoder needs it.
type smallFloat struct {
	man, bias int     // mantissa bits, exponent bias
	signBit   int     // place of the sign in the code
	max       float64 // larger numbers saturate
	nan       int     // the code of NaN
}

var codeE2M1 = smallFloat{man: 1, bias: 1, signBit: 3, max: 6, nan: 7}

// encodeMagnitude rounds |x| to nearest even and saturates. A normal result keeps
// the upper mantissa bits and is rebiased; a subnormal one appears at the end of
// a sum with a number whose last bit is the subnormal step.
func (k *K) encodeMagnitude(x V, f smallFloat) V {
	drop := 23 - f.man
	a := k.Bits(k.Min(k.Abs(x), k.Float(f.max)))
	odd := k.And(k.LShr(a, k.Int32(drop)), k.Int32(1))
	norm := k.LShr(k.Add(a, k.Add(odd, k.Int32(1<<(drop-1)-1))), k.Int32(drop))
	norm = k.Sub(norm, k.Int32((127-f.bias)<<f.man))
	magic := k.Float(math.Ldexp(1, 1-f.bias-f.man+23))
	sub := k.Sub(k.Bits(k.Add(k.Bits(a), magic)), k.Bits(magic))
	return k.Select(k.Cmp(LT, a, k.Int32((128-f.bias)<<23)), sub, norm)
}

// signed puts the sign of x to a magnitude; NaN gets its own code.
func (k *K) signed(x, magnitude V, f smallFloat) V {
	sign := k.And(k.LShr(k.Bits(x), k.Int32(31-f.signBit)), k.Int32(1<<f.signBit))
	return k.Select(k.Cmp(NE, x, x), k.Int32(f.nan), k.Or(sign, magnitude))
}

// EncodeE2M1 rounds f32 to a 4-bit code, nearest even, saturating at 6; NaN
// gives 7, as ir/num does.
func (k *K) EncodeE2M1(x V) V { return k.signed(x, k.encodeMagnitude(x, codeE2M1), codeE2M1) }

// Pow2Ceil is the smallest power of two >= x, for positive normal f32 x, from its
// bits, with its exponent field as second result.
func (k *K) Pow2Ceil(x V) (V, V) {
	u := k.Bits(x)
	up := k.Convert(k.Cmp(NE, k.And(u, k.Int32(0x7FFFFF)), k.Int32(0)), I32)
	exp := k.Add(k.LShr(u, k.Int32(23)), up)
	return k.Bits(k.Shl(exp, k.Int32(23))), exp
}

// LoadNibble reads element i of packed f4e2m1 codes.
func (b *Buf) LoadNibble(i V) V {
	k := b.k
	if i.laneForm() && i.stride == 1 && k.mask == nil && k.T.Lanes%2 == 0 {
		return k.DecodeE2M1(b.nibbles(i))
	}
	c := b.Bytes().Load(k.LShr(i, k.Int(1)))
	odd := k.Convert(k.And(i, k.Int(1)), I32)
	c = k.LShr(c, k.Shl(odd, k.Int32(2)))
	return k.DecodeE2M1(k.And(c, k.Int32(15)))
}

// LoadAny is Load for every format: packed f4e2m1 is unpacked.
func (b *Buf) LoadAny(i V) V {
	if b.mem == tir.F4E2M1 {
		return b.LoadNibble(i)
	}
	return b.Load(i)
}

// LoadWeight is Load for weights: packed f4e2m1 is unpacked, and OCP e4m3 is taken
// to hold no NaN, which loading a checkpoint has checked.
func (b *Buf) LoadWeight(i V) V {
	switch b.mem {
	case tir.F4E2M1:
		return b.LoadNibble(i)
	case tir.F8E4M3:
		return b.k.DecodeE4M3Finite(b.Bytes().Load(i))
	}
	return b.Load(i)
}

// RoundF16 rounds f32 to the f16 grid.
func (k *K) RoundF16(x V) V { return k.decodeF16(k.f16Bits(x)) }

// EncodeE8M0 rounds up to a power of two; NaN, infinities and negative numbers
// give 255, everything up to 2^-127 gives 0.
func (k *K) EncodeE8M0(x V) V {
	_, exp := k.Pow2Ceil(x)
	exp = k.Select(k.Cmp(LE, x, k.Float(0x1p-127)), k.Int32(0), exp)
	bad := k.Or(k.Cmp(LT, x, k.Float(0)), k.Not(k.Cmp(LE, x, k.Float(0x1p127))))
	return k.Select(bad, k.Int32(255), exp)
}

// nibbles loads one code per lane of a contiguous run that starts at an even
// element: half as many bytes, each spread over two lanes.
func (b *Buf) nibbles(i V) V {
	k := b.k
	n := k.T.Lanes
	vt := types.NewVector(uint64(n/2), types.I8)
	at := k.b.NewLShr(i.base, constant.NewInt(types.I64, 1))
	bytes := k.b.NewLoad(vt, k.b.NewBitCast(b.Bytes().address(at), pointer(vt, b.as)))
	bytes.Align = 1
	pick, shift := "<", "<"
	for j := range n {
		if j > 0 {
			pick, shift = pick+", ", shift+", "
		}
		pick += fmt.Sprintf("i32 %d", j/2)
		shift += fmt.Sprintf("i32 %d", 4*(j%2))
	}
	idx := types.NewVector(uint64(n), types.I32)
	spread := k.b.NewShuffleVector(bytes, constant.NewPoison(vt), &rawConst{idx, pick + ">"})
	wide := k.b.NewLShr(k.b.NewZExt(spread, idx), &rawConst{idx, shift + ">"})
	return k.And(V{t: I32, v: wide}, k.Int32(15))
}
