package kernel

import (
	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// What AMD's waves have of their own: one instruction where others need a ladder of
// exchanges, or a call.

// amd reports misuse on other targets.
func (k *K) amd(what string) bool {
	if k.T.Kind != target.AMDGPU {
		k.fail("%s: not on %s", what, k.T.Name)
		return false
	}
	return true
}

// Exp2 is 2^x in f32 by the instruction, which has an error of at most 1 ulp and
// gives 0 for results below 2^-126. AMD GPUs only.
func (k *K) Exp2(x V) V {
	if !k.amd("exp2") {
		return x
	}
	return V{t: F32, uniform: x.uniform, v: k.intrinsic("llvm.amdgcn.exp2.f32", types.Float, k.raw(x))}
}

// Rcp is 1/x in f32 by the instruction, which has an error of at most 1 ulp. AMD GPUs
// only.
func (k *K) Rcp(x V) V {
	if !k.amd("reciprocal") {
		return x
	}
	return V{t: F32, uniform: x.uniform, v: k.intrinsic("llvm.amdgcn.rcp.f32", types.Float, k.raw(x))}
}

// ballot has a bit for each lane of the wave where cond holds.
func (k *K) ballot(cond V) value.Value {
	return k.intrinsic("llvm.amdgcn.ballot.i64", types.I64, k.raw(cond))
}

// WaveAny reports whether cond holds in a lane of the wave: the same in all its
// lanes. AMD GPUs only.
func (k *K) WaveAny(cond V) V {
	if !k.amd("vote of a wave") {
		return cond
	}
	return k.Cmp(NE, V{t: I64, v: k.ballot(cond)}, k.Int(0))
}

// Rank is the number of lanes before this one where cond holds, i32, and, uniform, of
// all lanes of the group. All lanes must get here. AMD GPUs only.
func (k *K) Rank(cond V) (before, total V) {
	if !k.amd("rank among lanes") {
		return k.Int32(0), k.Int32(0)
	}
	votes := k.ballot(cond)
	i32 := func(v value.Value) V { return V{t: I32, v: v} }
	lo, hi := k.b.NewTrunc(votes, types.I32), k.b.NewTrunc(k.b.NewLShr(votes, constant.NewInt(types.I64, 32)), types.I32)
	below := k.intrinsic("llvm.amdgcn.mbcnt.lo", types.I32, lo, constant.NewInt(types.I32, 0))
	before = i32(k.intrinsic("llvm.amdgcn.mbcnt.hi", types.I32, hi, below))
	count := i32(k.b.NewTrunc(k.intrinsic("llvm.ctpop.i64", types.I64, votes), types.I32))
	m, load := k.waveShared(I32)
	wave := k.Wave()
	k.Barrier() // the last reader of an earlier rank is done
	k.uniformIf(k.Cmp(EQ, k.WaveLane(), k.Int(0)), func() { m.StoreBits(wave, count) })
	k.Barrier()
	total = k.Int32(0)
	for i := range k.T.Lanes / k.T.Wave {
		w := load(i)
		before = k.Add(before, k.Select(k.Cmp(GT, wave, k.Int(i)), w, k.Int32(0)))
		total = k.Add(total, w)
	}
	total = V{t: I32, uniform: true, v: k.intrinsic("llvm.amdgcn.readfirstlane.i32", types.I32, k.raw(total))}
	return before, total
}

// Address is the address of element i of a buffer in memory, i64. AMD GPUs only.
func (b *Buf) Address(i V) V {
	k := b.k
	if !k.amd("address") || b.as != k.T.Global {
		k.fail("address of shared memory")
		return k.Int(0)
	}
	return V{t: I64, v: k.b.NewPtrToInt(b.address(k.raw(i)), types.I64)}
}

// ReadAt is memory of a format at an address that Address gave; each lane may have
// another. AMD GPUs only.
func (k *K) ReadAt(address V, d tir.DType) *Buf {
	p := k.b.NewIntToPtr(k.raw(address), pointer(k.memType(d), k.T.Global))
	return &Buf{k: k, ptr: p, mem: d, as: k.T.Global}
}
