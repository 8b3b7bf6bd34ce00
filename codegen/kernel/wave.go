package kernel

import (
	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// What waves of GPUs have of their own: one instruction where others need a ladder of
// exchanges, or a call.

// gpu reports misuse on hosts.
func (k *K) gpu(what string) bool {
	if !k.T.GPU() {
		k.fail("%s: not on %s", what, k.T.Name)
		return false
	}
	return true
}

// approximate calls the instruction of AMD or of NVIDIA for a function of f32.
func (k *K) approximate(what, amd, nvidia string, x V) V {
	if !k.gpu(what) {
		return x
	}
	name := amd
	if k.T.Kind == target.NVPTX {
		name = nvidia
	}
	return V{t: F32, uniform: x.uniform, v: k.intrinsic(name, types.Float, k.raw(x))}
}

// Exp2 is 2^x in f32 by the instruction, which has an error of at most 1 ulp on AMD
// and 2 on NVIDIA, and gives 0 for results below 2^-126. GPU only.
func (k *K) Exp2(x V) V {
	return k.approximate("exp2", "llvm.amdgcn.exp2.f32", "llvm.nvvm.ex2.approx.ftz.f", x)
}

// Rcp is 1/x in f32 by the instruction, which has an error of at most 1 ulp; NVIDIA's
// takes subnormal numbers for 0. GPU only.
func (k *K) Rcp(x V) V {
	return k.approximate("reciprocal", "llvm.amdgcn.rcp.f32", "llvm.nvvm.rcp.approx.ftz.f", x)
}

// FastRsqrt is 1/sqrt(x) in f32 by the instruction, which has an error of at most 1 ulp
// on AMD and 2 on NVIDIA, which takes subnormal numbers for 0. GPU only.
func (k *K) FastRsqrt(x V) V {
	return k.approximate("reciprocal square root", "llvm.amdgcn.rsq.f32", "llvm.nvvm.rsqrt.approx.ftz.f", x)
}

// ballot has a bit for each lane of the wave where cond holds: i64, or i32 where waves
// have 32 lanes.
func (k *K) ballot(cond V) value.Value {
	if k.T.Kind == target.NVPTX {
		return k.intrinsic("llvm.nvvm.vote.ballot.sync", types.I32, constant.NewInt(types.I32, -1), k.raw(cond))
	}
	return k.intrinsic("llvm.amdgcn.ballot.i64", types.I64, k.raw(cond))
}

// WaveAny reports whether cond holds in a lane of the wave: the same in all its
// lanes, which must all get here. GPU only.
func (k *K) WaveAny(cond V) V {
	if !k.gpu("vote of a wave") {
		return cond
	}
	if k.T.Kind == target.NVPTX {
		return k.Cmp(NE, V{t: I32, v: k.ballot(cond)}, k.Int32(0))
	}
	return k.Cmp(NE, V{t: I64, v: k.ballot(cond)}, k.Int(0))
}

// waveRank is the number of lanes of the wave before this one where cond holds, and of
// all its lanes.
func (k *K) waveRank(cond V) (before, count V) {
	votes := k.ballot(cond)
	i32 := func(v value.Value) V { return V{t: I32, v: v} }
	if k.T.Kind == target.NVPTX {
		pop := func(v value.Value) V { return i32(k.intrinsic("llvm.ctpop.i32", types.I32, v)) }
		below := k.b.NewSub(k.b.NewShl(constant.NewInt(types.I32, 1), k.waveLane()), constant.NewInt(types.I32, 1))
		return pop(k.b.NewAnd(votes, below)), pop(votes)
	}
	lo, hi := k.b.NewTrunc(votes, types.I32), k.b.NewTrunc(k.b.NewLShr(votes, constant.NewInt(types.I64, 32)), types.I32)
	below := k.intrinsic("llvm.amdgcn.mbcnt.lo", types.I32, lo, constant.NewInt(types.I32, 0))
	before = i32(k.intrinsic("llvm.amdgcn.mbcnt.hi", types.I32, hi, below))
	return before, i32(k.b.NewTrunc(k.intrinsic("llvm.ctpop.i64", types.I64, votes), types.I32))
}

// Rank is the number of lanes before this one where cond holds, i32, and, uniform, of
// all lanes of the group. All lanes must get here. GPU only.
func (k *K) Rank(cond V) (before, total V) {
	list, total := k.Ranks(cond)
	return list[0], total
}

// Ranks is Rank of a sequence of conditions: those before in it count first, in all
// lanes.
func (k *K) Ranks(conds ...V) (before []V, total V) {
	before = make([]V, len(conds))
	if !k.gpu("rank among lanes") {
		for i := range before {
			before[i] = k.Int32(0)
		}
		return before, k.Int32(0)
	}
	counts := make([]V, len(conds))
	for i, c := range conds {
		before[i], counts[i] = k.waveRank(c)
	}
	waves := k.T.Lanes / k.T.Wave
	m := k.Shared(tir.I32, len(conds)*waves)
	wave := k.Wave()
	k.Barrier() // the last reader of earlier ranks is done
	k.uniformIf(k.Cmp(EQ, k.WaveLane(), k.Int(0)), func() {
		for i, n := range counts {
			m.StoreBits(k.Add(wave, k.Int(i*waves)), n)
		}
	})
	k.Barrier()
	total = k.Int32(0)
	for i := range before {
		before[i] = k.Add(before[i], total)
		for w := range waves {
			n := m.LoadBits(k.Int(i*waves + w))
			before[i] = k.Add(before[i], k.Select(k.Cmp(GT, wave, k.Int(w)), n, k.Int32(0)))
			total = k.Add(total, n)
		}
	}
	v := k.raw(total)
	if k.T.Kind == target.AMDGPU { // tells LLVM that it is the same in all lanes
		v = k.intrinsic("llvm.amdgcn.readfirstlane.i32", types.I32, v)
	}
	return before, V{t: I32, uniform: true, v: v}
}

// Address is the address of element i of a buffer in memory, i64. GPU only.
func (b *Buf) Address(i V) V {
	k := b.k
	if !k.gpu("address") || b.as != k.T.Global {
		k.fail("address of shared memory")
		return k.Int(0)
	}
	return V{t: I64, v: k.b.NewPtrToInt(b.address(k.raw(i)), types.I64)}
}

// ReadAt is memory of a format at an address that Address gave; each lane may have
// another. GPU only.
func (k *K) ReadAt(address V, d tir.DType) *Buf {
	p := k.b.NewIntToPtr(k.raw(address), pointer(k.memType(d), k.T.Global))
	return &Buf{k: k, ptr: p, mem: d, as: k.T.Global}
}
