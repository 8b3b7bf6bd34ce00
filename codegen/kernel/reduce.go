package kernel

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Sum adds a varying f32 over the lanes of the group; the order is fixed by the
// target alone. All lanes must get here.
func (k *K) Sum(x V) V { return k.reduce(x, k.Add) }

// MaxOf is the largest over the lanes; NaN is skipped.
func (k *K) MaxOf(x V) V { return k.reduce(x, k.Max) }

func (k *K) reduce(x V, combine func(a, b V) V) V {
	if x.uniform {
		k.fail("reduction of a uniform value")
		return x
	}
	if !k.T.GPU() {
		return k.hostReduce(k.raw(x), x.t, combine)
	}
	w := k.waveReduce(x, combine)
	waves := k.T.Lanes / k.T.Wave
	if waves == 1 {
		return w
	}
	// One value per wave through shared memory, then every lane combines them in
	// wave order.
	lds := k.Shared(tir.F32, waves)
	wave := k.UDiv(V{t: I64, v: k.tid}, k.Int(k.T.Wave))
	first := k.Cmp(EQ, k.And(V{t: I64, v: k.tid}, k.Int(k.T.Wave-1)), k.Int(0))
	k.Barrier() // the last reader of an earlier reduction is done
	k.uniformIf(first, func() { lds.Store(wave, w) })
	k.Barrier()
	sum := lds.Load(k.Int(0))
	for i := 1; i < waves; i++ {
		sum = combine(sum, lds.Load(k.Int(i)))
	}
	return sum
}

// hostReduce halves the vector until one element is left.
func (k *K) hostReduce(v value.Value, t Elem, combine func(a, b V) V) V {
	for n := k.T.Lanes / 2; n >= 1; n /= 2 {
		vt := v.Type().(*types.VectorType)
		part := func(from int) value.Value {
			idx := "<"
			for i := range n {
				if i > 0 {
					idx += ", "
				}
				idx += fmt.Sprintf("i32 %d", from+i)
			}
			m := &rawConst{types.NewVector(uint64(n), types.I32), idx + ">"}
			return k.b.NewShuffleVector(v, constant.NewPoison(vt), m)
		}
		// Combining works on any vector length: the values say their own type.
		v = combine(V{t: t, v: part(0)}, V{t: t, v: part(n)}).v
	}
	return V{t: t, uniform: true, v: k.b.NewExtractElement(v, constant.NewInt(types.I32, 0))}
}

// waveReduce combines the lanes of one wave; every lane gets the result. In each
// step lane i combines with lane i^s: both compute the same bits, since adding
// and taking the maximum commute.
func (k *K) waveReduce(x V, combine func(a, b V) V) V {
	lane := k.b.NewTrunc(k.b.NewAnd(k.tid, constant.NewInt(types.I64, int64(k.T.Wave-1))), types.I32)
	i32 := func(n int) value.Value { return constant.NewInt(types.I32, int64(n)) }
	for s := k.T.Wave / 2; s >= 1; s /= 2 {
		var other value.Value
		switch k.T.Kind {
		case target.AMDGPU:
			addr := k.b.NewShl(k.b.NewXor(lane, i32(s)), i32(2)) // in bytes
			bits := k.intrinsic("llvm.amdgcn.ds.bpermute", types.I32, addr, k.b.NewBitCast(k.raw(x), types.I32))
			other = k.b.NewBitCast(bits, types.Float)
		case target.NVPTX:
			other = k.intrinsic("llvm.nvvm.shfl.sync.bfly.f32", types.Float, i32(-1), k.raw(x), i32(s), i32(31))
		}
		x = combine(x, V{t: x.t, v: other})
	}
	return x
}
