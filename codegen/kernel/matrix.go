package kernel

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Matrix instructions. Operands are vectors in lanes; which element a lane holds is
// told by the maps of target.MFMA. Since A and B only have to agree on k, a kernel
// may give a lane any k, such as those that lie together in memory, if it gives the
// same to the lane of the other operand. All lanes of the wave must get here.

// Wave is the index of this lane's wave in its group, the same in all its lanes: a
// loop may depend on it if there is no barrier inside. GPU only.
func (k *K) Wave() V {
	w := k.b.NewTrunc(k.b.NewLShr(k.tid, constant.NewInt(types.I64, log2(k.T.Wave))), types.I32)
	if k.T.Kind == target.AMDGPU { // tells LLVM that it is the same in all lanes
		return k.Convert(V{t: I32, v: k.intrinsic("llvm.amdgcn.readfirstlane.i32", types.I32, w)}, I64)
	}
	return k.Convert(V{t: I32, v: w}, I64)
}

// WaveLane is this lane's index in its wave, as i64. GPU only.
func (k *K) WaveLane() V {
	return V{t: I64, v: k.b.NewAnd(k.tid, constant.NewInt(types.I64, int64(k.T.Wave-1)))}
}

// InOrder keeps what was emitted before this point before what is emitted after it,
// in the instructions too: LLVM would delay loads to save registers. It does nothing
// at run time.
func (k *K) InOrder() {
	if k.T.Kind == target.AMDGPU {
		const crosses = 0 // kinds of instructions that may
		k.intrinsic("llvm.amdgcn.sched.barrier", types.Void, constant.NewInt(types.I32, crosses))
	}
}

// LaneXor is x, an i32, i64, f32 or f64, of the lane whose index in the wave differs
// in the bits of mask. All lanes of the wave must get here. GPU only.
func (k *K) LaneXor(x V, mask int) V { return k.laneXor(x, mask) }

// FromLane is x, an i32, i64, f32 or f64, of another lane of the wave. All its lanes
// must get here. GPU only.
func (k *K) FromLane(x, lane V) V {
	return k.exchange(x, k.raw(k.Convert(lane, I32)))
}

func log2(n int) int64 {
	var l int64
	for ; n > 1; n >>= 1 {
		l++
	}
	return l
}

// MMA is A B + C: a and b hold the elements of the instruction's formats, c and the
// result four f32.
func (k *K) MMA(m *target.MFMA, a, b, c Vec) Vec {
	if !k.matrixReady(m, false, a, b, c) {
		return c
	}
	zero := constant.NewInt(types.I32, 0) // cbsz, abid, blgp: no broadcast
	out := k.intrinsic("llvm.amdgcn.mfma."+m.Intrinsic, c.v.Type(), k.matrixOperand(m, a), k.matrixOperand(m, b), c.v, zero, zero, zero)
	return k.vec(F32, c.n, out)
}

// MMAScaled is MMA of block-scaled operands. The scales are e8m0 codes in the low
// bytes of i32 words, of the 32 k that target.MFMA.ScaledK says.
func (k *K) MMAScaled(m *target.MFMA, a, b, c Vec, scaleA, scaleB V) Vec {
	if !k.matrixReady(m, true, a, b, c) {
		return c
	}
	i32 := func(n int64) value.Value { return constant.NewInt(types.I32, n) }
	const lowByte = 0
	name := fmt.Sprintf("llvm.amdgcn.mfma.%s.%s.%s", m.Intrinsic, mangle(a.v.Type()), mangle(b.v.Type()))
	out := k.intrinsic(name, c.v.Type(), a.v, b.v, c.v, i32(matrixFormat[m.A]), i32(matrixFormat[m.B]),
		i32(lowByte), k.raw(scaleA), i32(lowByte), k.raw(scaleB))
	return k.vec(F32, c.n, out)
}

// matrixFormat is the number by which scaled instructions know a format (cbsz for A,
// blgp for B).
var matrixFormat = map[tir.DType]int64{tir.F8E4M3: 0, tir.F4E2M1: 4}

// matrixReady reports whether the vectors are what the instruction takes.
func (k *K) matrixReady(m *target.MFMA, scaled bool, a, b, c Vec) bool {
	switch {
	case m == nil || m.Scaled != scaled:
		k.fail("matrix product on %s: no instruction for these operands", k.T.Name)
	case a.t != I32 || b.t != I32 || 4*int64(a.n) != m.A.Bytes(m.PerLane()) || 4*int64(b.n) != m.B.Bytes(m.PerLane()):
		k.fail("%s of %d and %d words: they are not %d elements of %v and of %v", m.Name, a.n, b.n, m.PerLane(), m.A, m.B)
	case c.t != F32 || c.n != target.ResultRun:
		k.fail("%s adds to %d %v, want %d f32", m.Name, c.n, c.t, target.ResultRun)
	default:
		return true
	}
	return false
}

// matrixOperand has the type that an intrinsic without scales takes.
func (k *K) matrixOperand(m *target.MFMA, x Vec) value.Value {
	n := uint64(m.PerLane())
	switch {
	case m.A != tir.BF16:
		return k.b.NewBitCast(x.v, types.I64)
	case n == 4:
		return k.b.NewBitCast(x.v, types.NewVector(n, types.I16))
	}
	return k.b.NewBitCast(x.v, types.NewVector(n, bfloat))
}

// PackBF16 rounds two f32 to bf16 in one word, lo in its low half.
func (k *K) PackBF16(lo, hi V) V {
	pair := k.MakeVec(lo, hi)
	v := k.b.NewFPTrunc(pair.v, types.NewVector(2, bfloat))
	return V{t: I32, v: k.b.NewBitCast(v, types.I32)}
}

// UpperHalves is the upper halves of two words, i32, in one, that of lo in the low
// half: two bf16 numbers, or f32 numbers cut off to bf16. GPU only.
func (k *K) UpperHalves(lo, hi V) V { return k.perm(hi, lo, 0x07060302) }

// LowerHalves is the lower halves of two words, i32, in one. GPU only.
func (k *K) LowerHalves(lo, hi V) V { return k.perm(hi, lo, 0x05040100) }

// CodesToBF16 is codes of an 8-bit float format, four to a word, as bf16 numbers, two
// to a word, in the same order. It is exact. The format must be the target's own, and
// no code NaN on NVIDIA's GPUs.
func (k *K) CodesToBF16(x Vec, d tir.DType) Vec {
	if k.T.Kind == target.NVPTX && d == tir.F8E4M3 {
		return k.e4m3ToBF16(x)
	}
	if !k.ownFloat8(d) || k.T.Kind != target.AMDGPU {
		k.fail("%v to bf16: %s has no instruction for it", d, k.T.Name)
		return x
	}
	var out []V
	for i := range x.n {
		for half := range 2 {
			out = append(out, k.bf16Pair(k.decodePair(k.At(x, i), half == 1)))
		}
	}
	return k.MakeVec(out...)
}

// decodePair is the two codes of the target's own 8-bit float format in half a word.
func (k *K) decodePair(word V, upper bool) value.Value {
	return k.intrinsic("llvm.amdgcn.cvt.pk.f32.fp8", types.NewVector(2, types.Float), k.raw(word), constant.NewBool(upper))
}

// E4M3ToBF16 is OCP e4m3 codes that are no NaN, four to a word, times scale, a power
// of two or NaN, as bf16 numbers, two to a word, in the same order: exact where the
// product is within bf16's exponents. A chip whose format is e4m3fnuz reads half of
// what a code means, and -0 as +0. NVIDIA GPUs, and AMD GPUs with instructions for
// codes.
func (k *K) E4M3ToBF16(x Vec, scale V) Vec {
	if k.T.Kind == target.NVPTX {
		return k.scaleBF16(k.e4m3ToBF16(x), scale)
	}
	if !k.T.Convert8 || k.T.Kind != target.AMDGPU {
		k.fail("e4m3 to bf16: %s has no instruction for it", k.T.Name)
		return x
	}
	if k.T.FNUZ {
		scale = k.Mul(scale, k.Float(2))
	}
	s := k.MakeVec(scale, scale)
	var out []V
	for i := range x.n {
		word := k.At(x, i)
		if k.T.FNUZ {
			word = k.withoutMinusZero(word)
		}
		for half := range 2 {
			out = append(out, k.bf16Pair(k.b.NewFMul(k.decodePair(word, half == 1), s.v)))
		}
	}
	return k.MakeVec(out...)
}

// withoutMinusZero is a word of four codes, those that are 0x80 made 0: e4m3fnuz has
// its NaN there. A magnitude that is not 0 carries into the sign's bit.
func (k *K) withoutMinusZero(word V) V {
	magnitudes := k.Int32(0x7F7F7F7F)
	some := k.Add(k.And(word, magnitudes), magnitudes)
	return k.And(word, k.Or(some, magnitudes))
}

// bf16Pair is a pair of f32 that bf16 holds exactly as one word.
func (k *K) bf16Pair(pair value.Value) V {
	x := k.vec(F32, 2, pair)
	return k.UpperHalves(k.Bits(k.At(x, 0)), k.Bits(k.At(x, 1)))
}

// E2M1ToBF16 is packed e2m1 codes, eight to a word, times scale, a power of two, as
// bf16 numbers, two to a word, in the same order. It is exact where the f32 product
// is within bf16's exponents, which are f32's. GPU only.
func (k *K) E2M1ToBF16(x Vec, scale V) Vec {
	if k.T.Kind == target.NVPTX {
		return k.e2m1InOrder(x, scale)
	}
	if k.T.Kind != target.AMDGPU {
		k.fail("e2m1 to bf16 in vectors: not on %s", k.T.Name)
		return x
	}
	var out []V
	if k.T.Convert4 {
		pair := types.NewVector(2, types.Float)
		for i := range x.n {
			word := k.raw(k.At(x, i))
			for b := range 4 {
				v := k.intrinsic("llvm.amdgcn.cvt.scalef32.pk.f32.fp4", pair, word, k.raw(scale), constant.NewInt(types.I32, int64(b)))
				out = append(out, k.bf16Pair(v))
			}
		}
		return k.MakeVec(out...)
	}
	table := k.e2m1Table(scale)
	for i := range x.n {
		out = append(out, table.lookup(k.At(x, i))...)
	}
	return k.MakeVec(out...)
}

// perm picks four bytes: those of low have the numbers 0 to 3, those of high 4 to 7.
// Each byte of which is a number, that of the first result byte the lowest.
func (k *K) perm(high, low V, which int) V {
	if k.T.Kind == target.NVPTX { // a number is a nibble
		nibbles := which&7 | which>>8&7<<4 | which>>16&7<<8 | which>>24&7<<12
		return k.prmt(low, high, nibbles)
	}
	return k.permBy(high, low, k.Int32(which))
}

// permBy is perm by a value. AMD GPUs only.
func (k *K) permBy(high, low, which V) V {
	return V{t: I32, v: k.intrinsic("llvm.amdgcn.perm", types.I32, k.raw(high), k.raw(low), k.raw(which))}
}

// e2m1Table has the eight magnitudes of e2m1 times a scale as bf16, the upper and the
// lower bytes apart, so that perm looks four of them up by their codes.
type e2m1Table struct {
	k      *K
	hi, lo [2]V
}

func (k *K) e2m1Table(scale V) e2m1Table {
	t := e2m1Table{k: k}
	magnitudes := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for half := range 2 {
		var pairs [2]V
		for i := range pairs {
			at := 4*half + 2*i
			lo, hi := k.Bits(k.Mul(scale, k.Float(magnitudes[at]))), k.Bits(k.Mul(scale, k.Float(magnitudes[at+1])))
			pairs[i] = k.UpperHalves(lo, hi)
		}
		t.lo[half] = k.perm(pairs[1], pairs[0], 0x06040200)
		t.hi[half] = k.perm(pairs[1], pairs[0], 0x07050301)
	}
	return t
}

// lookup is the eight numbers of a word of codes.
func (t e2m1Table) lookup(word V) []V {
	k := t.k
	// Of the even and of the odd codes: two words with a number in each half.
	halves := func(codes V) [2]V {
		index := k.And(codes, k.Int32(0x07070707))
		sign := k.Shl(k.And(codes, k.Int32(0x08080808)), k.Int32(4))
		hi, lo := k.Or(k.permBy(t.hi[1], t.hi[0], index), sign), k.permBy(t.lo[1], t.lo[0], index)
		return [2]V{k.perm(hi, lo, 0x05010400), k.perm(hi, lo, 0x07030602)}
	}
	even, odd := halves(word), halves(k.LShr(word, k.Int32(4)))
	var out []V
	for i := range even {
		out = append(out, k.LowerHalves(even[i], odd[i]), k.UpperHalves(even[i], odd[i]))
	}
	return out
}
