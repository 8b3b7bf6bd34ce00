package kernel

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Sum adds a varying value over the lanes of the group; the order is fixed by
// the target alone. All lanes must get here.
func (k *K) Sum(x V) V { return k.Reduce(x, k.Add) }

// MaxOf is the largest over the lanes; NaN is skipped.
func (k *K) MaxOf(x V) V { return k.Reduce(x, k.Max) }

// Reduce combines a varying i32, i64, f32 or f64 over the lanes of the group;
// the order is fixed by the target alone. combine must commute to the bit. The
// result is uniform. All lanes must get here.
func (k *K) Reduce(x V, combine func(a, b V) V) V {
	if x.uniform || x.t == Bool {
		k.fail("reduction of a uniform value or of bools")
		return x
	}
	if !k.T.GPU() {
		return k.hostReduce(k.raw(x), x.t, combine)
	}
	w := k.waveReduce(x, combine)
	w.uniform = true
	waves := k.T.Lanes / k.T.Wave
	if waves == 1 {
		return w
	}
	// One value per wave through shared memory, then every lane combines them in
	// wave order.
	m, load := k.waveShared(x.t)
	wave := k.UDiv(k.Lane(), k.Int(k.T.Wave))
	first := k.Cmp(EQ, k.And(k.Lane(), k.Int(k.T.Wave-1)), k.Int(0))
	k.Barrier() // the last reader of an earlier reduction is done
	k.uniformIf(first, func() { m.StoreBits(wave, k.bitsOf(w)) })
	k.Barrier()
	sum := load(0)
	for i := 1; i < waves; i++ {
		sum = combine(sum, load(i))
	}
	return sum
}

// waveShared is shared memory for one value of type t per wave, and how to read
// it.
func (k *K) waveShared(t Elem) (*Buf, func(wave int) V) {
	d := tir.I32
	if t == I64 || t == F64 {
		d = tir.I64
	}
	m := k.Shared(d, k.T.Lanes/k.T.Wave)
	return m, func(wave int) V {
		v := m.LoadBits(k.Int(wave))
		if t.float() {
			v = k.Bits(v)
		}
		return v
	}
}

// bitsOf is x as an integer of its size.
func (k *K) bitsOf(x V) V {
	if x.t.float() {
		return k.Bits(x)
	}
	return x
}

// shuffle permutes a vector; the elements of two follow those of one.
func (k *K) shuffle(one, two value.Value, n int, from func(i int) int) value.Value {
	idx := "<"
	for i := range n {
		if i > 0 {
			idx += ", "
		}
		idx += fmt.Sprintf("i32 %d", from(i))
	}
	return k.b.NewShuffleVector(one, two, &rawConst{types.NewVector(uint64(n), types.I32), idx + ">"})
}

// hostReduce halves the vector until one element is left.
func (k *K) hostReduce(v value.Value, t Elem, combine func(a, b V) V) V {
	for n := k.T.Lanes / 2; n >= 1; n /= 2 {
		part := func(from int) V {
			return V{t: t, v: k.shuffle(v, constant.NewPoison(v.Type()), n, func(i int) int { return from + i })}
		}
		// Combining works on any vector length: the values say their own type.
		v = combine(part(0), part(n)).v
	}
	return V{t: t, uniform: true, v: k.b.NewExtractElement(v, constant.NewInt(types.I32, 0))}
}

// waveReduce combines the lanes of one wave; every lane gets the result. In each
// step lane i combines with lane i^s: both compute the same bits, since combine
// commutes.
func (k *K) waveReduce(x V, combine func(a, b V) V) V {
	for s := k.T.Wave / 2; s >= 1; s /= 2 {
		other := k.laneXor(x, s)
		if s == dppRow/4 && k.T.Kind == target.AMDGPU {
			// The halves of a row are alike by now, so that turning it by a quarter is as good.
			other = k.words(x, func(v value.Value) value.Value { return k.dpp(v, dppRowRor+s) })
		}
		x = combine(x, other)
	}
	return x
}

// waveLane is the lane's index in its wave, as i32.
func (k *K) waveLane() value.Value {
	return k.b.NewTrunc(k.b.NewAnd(k.tid, constant.NewInt(types.I64, int64(k.T.Wave-1))), types.I32)
}

// exchange is x of another lane of the wave; a number outside it wraps around.
// GPU only.
func (k *K) exchange(x V, from value.Value) V {
	i32 := func(n int64) value.Value { return constant.NewInt(types.I32, n) }
	return k.words(x, func(v value.Value) value.Value {
		if k.T.Kind == target.NVPTX {
			return k.intrinsic("llvm.nvvm.shfl.sync.idx.i32", types.I32, i32(-1), v, from, i32(int64(k.T.Wave-1)))
		}
		return k.intrinsic("llvm.amdgcn.ds.bpermute", types.I32, k.b.NewShl(from, i32(2)), v) // lanes in bytes
	})
}

// words is x after each of its words went through f.
func (k *K) words(x V, f func(value.Value) value.Value) V {
	bits := k.bitsOf(x)
	v := k.raw(bits)
	if bits.t == I64 {
		half := constant.NewInt(types.I64, 32)
		lo, hi := f(k.b.NewTrunc(v, types.I32)), f(k.b.NewTrunc(k.b.NewLShr(v, half), types.I32))
		v = k.b.NewOr(k.b.NewZExt(lo, types.I64), k.b.NewShl(k.b.NewZExt(hi, types.I64), half))
	} else {
		v = f(v)
	}
	out := V{t: bits.t, v: v}
	if x.t.float() {
		out = k.Bits(out)
	}
	return out
}

// Sums adds several varying i32 over the lanes of the group, together, for the turn's
// time, uniform i64, of a loop: memory alternates between turns, so that they need one
// barrier each. Results are uniform. All lanes must get here. GPU only.
func (k *K) Sums(turn V, xs ...V) []V {
	if !k.gpu("sums in turn") {
		return xs
	}
	waves, n := k.T.Lanes/k.T.Wave, len(xs)
	m := k.Shared(tir.I32, 2*n*waves)
	at := k.Mul(k.And(turn, k.Int(1)), k.Int(n*waves))
	sums := make([]V, n)
	for i, x := range xs {
		if x.uniform || x.t != I32 {
			k.fail("sums of a uniform value or of %v", x.t)
			return xs
		}
		sums[i] = k.waveSum(x)
	}
	k.uniformIf(k.Cmp(EQ, k.And(k.Lane(), k.Int(k.T.Wave-1)), k.Int(0)), func() {
		for i, s := range sums {
			m.StoreBits(k.Add(at, k.Add(k.UDiv(k.Lane(), k.Int(k.T.Wave)), k.Int(i*waves))), s)
		}
	})
	k.Barrier()
	for i := range sums {
		total := m.LoadBits(k.Add(at, k.Int(i*waves)))
		for j := 1; j < waves; j++ {
			total = k.Add(total, m.LoadBits(k.Add(at, k.Int(i*waves+j))))
		}
		total.uniform = true
		sums[i] = total
	}
	return sums
}

// waveSum adds an i32 over the lanes of the wave.
func (k *K) waveSum(x V) V {
	if k.T.Kind == target.NVPTX {
		return V{t: I32, v: k.intrinsic("llvm.nvvm.redux.sync.add", types.I32, k.raw(x), constant.NewInt(types.I32, -1))}
	}
	return k.waveReduce(x, k.Add)
}

// Prefix is the sum of a varying i32 over the lanes before this one, and, uniform,
// over all of them. All lanes must get here.
func (k *K) Prefix(x V) (before, total V) {
	if x.uniform || x.t != I32 {
		k.fail("prefix sum of a uniform value or of %v", x.t)
		return x, x
	}
	if !k.T.GPU() {
		n := k.T.Lanes
		sum := k.raw(x)
		zero := constant.NewZeroInitializer(sum.Type())
		for s := 1; s < n; s *= 2 {
			sum = k.b.NewAdd(sum, k.shuffle(sum, zero, n, func(i int) int {
				if i < s {
					return n
				}
				return i - s
			}))
		}
		before = V{t: I32, v: k.b.NewSub(sum, k.raw(x))}
		return before, V{t: I32, uniform: true, v: k.b.NewExtractElement(sum, constant.NewInt(types.I32, int64(n-1)))}
	}
	lane := V{t: I32, v: k.waveLane()}
	sum := x
	for s := 1; s < k.T.Wave; s *= 2 {
		other := k.exchange(sum, k.raw(k.Sub(lane, k.Int32(s))))
		sum = k.Add(sum, k.Select(k.Cmp(GE, lane, k.Int32(s)), other, k.Int32(0)))
	}
	m, load := k.waveShared(I32)
	wave := k.UDiv(k.Lane(), k.Int(k.T.Wave))
	k.Barrier() // the last reader of an earlier prefix is done
	k.uniformIf(k.Cmp(EQ, lane, k.Int32(k.T.Wave-1)), func() { m.StoreBits(wave, sum) })
	k.Barrier()
	before, total = k.Sub(sum, x), k.Int32(0)
	for i := range k.T.Lanes / k.T.Wave {
		w := load(i)
		before = k.Add(before, k.Select(k.Cmp(GT, wave, k.Int(i)), w, k.Int32(0)))
		total = k.Add(total, w)
	}
	return before, total
}
