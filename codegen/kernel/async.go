package kernel

import (
	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// What feeds matrix products on NVIDIA's GPUs: shared memory beyond what PTX declares,
// copies into it that go on while lanes work, and loads of operands as the matrix
// instruction has them.

// PoolAlign suits every access to a pool, products of warpgroups among them, and has
// offsets in it say which banks they touch.
const PoolAlign = 1024

// SharedPool is bytes of shared memory, which a kernel can have once, or each part of its
// grid: on NVIDIA's GPUs the launch gives them, since PTX declares 48 KB at most. GPU only.
func (k *K) SharedPool(bytes int) *Buf {
	if k.T.Kind != target.NVPTX {
		k.gpu("pool of shared memory")
		return k.Shared(tir.U8, bytes)
	}
	if k.poolTaken || bytes <= 0 {
		k.fail("a pool of %d bytes of shared memory, beside one of %d", bytes, k.pool)
	}
	k.poolTaken, k.pool = true, max(k.pool, bytes)
	arr, zero := types.NewArray(0, types.I8), constant.NewInt(types.I64, 0)
	if k.poolVar == nil {
		// LLVM writes the names of what others define as they are, so this one has no dot.
		g := k.m.NewGlobal(k.f.Name()+"_pool", arr)
		g.Linkage, g.AddrSpace, g.Align, g.Typ = enum.LinkageExternal, k.T.Shared, PoolAlign, pointer(arr, k.T.Shared)
		k.poolVar = g
	}
	return &Buf{k: k, ptr: k.b.NewGetElementPtr(arr, k.poolVar, zero, zero), mem: tir.U8, as: k.T.Shared}
}

// nvidia reports misuse on other targets.
func (k *K) nvidia(what string) bool {
	if k.T.Kind != target.NVPTX {
		k.fail("%s: not on %s", what, k.T.Name)
		return false
	}
	return true
}

// CopyAsync starts a copy of 16 bytes to element i of shared memory from element j of
// another buffer, both at multiples of 16 bytes. It is done when this lane has waited
// for the group that it is of; other lanes see it behind a barrier after that. NVIDIA
// only.
func (b *Buf) CopyAsync(i V, from *Buf, j V) {
	k := b.k
	if !k.nvidia("copy to shared memory") {
		return
	}
	if b.as != k.T.Shared || from.as != k.T.Global {
		k.fail("a copy of address space %d to %d", from.as, b.as)
		return
	}
	k.intrinsic("llvm.nvvm.cp.async.cg.shared.global.16", types.Void, b.vecAddress(i, types.I8), from.vecAddress(j, types.I8))
}

// CommitCopies makes a group of the copies that this lane has started since the last
// one; there may be none.
func (k *K) CommitCopies() {
	if k.nvidia("group of copies") {
		k.intrinsic("llvm.nvvm.cp.async.commit.group", types.Void)
	}
}

// WaitCopies waits until all but the last n groups of this lane's copies are done.
func (k *K) WaitCopies(n int) {
	if k.nvidia("wait for copies") {
		k.intrinsic("llvm.nvvm.cp.async.wait.group", types.Void, constant.NewInt(types.I32, int64(n)))
	}
}

// LoadMatrices reads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l
// says with i where row l%8 of matrix l/8 is, 16 bytes at a multiple of that, and gets
// of each matrix, a word, elements l%4*2 and the next of row l/4; transposed, of column
// l/4. All lanes of the warp must get here. NVIDIA only.
func (b *Buf) LoadMatrices(i V, transposed bool) Vec {
	k := b.k
	if !k.nvidia("load of matrices") || b.as != k.T.Shared {
		k.fail("load of matrices from address space %d", b.as)
		return k.ZeroVec(I32, 4)
	}
	name := "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3"
	if transposed {
		name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3"
	}
	out := k.intrinsic(name, types.NewStruct(types.I32, types.I32, types.I32, types.I32), b.vecAddress(i, types.I8))
	return k.fields(out, I32)
}

// fields are the four values that an intrinsic returns.
func (k *K) fields(x value.Value, t Elem) Vec {
	out := make([]V, 4)
	for i := range out {
		out[i] = V{t: t, v: k.b.NewExtractValue(x, uint64(i))}
	}
	return k.MakeVec(out...)
}

// WaveMaxUnsigned is the largest of the lanes' x, i32 taken to be unsigned, by one
// instruction: the same in all lanes of the warp, which must all get here. NVIDIA only.
func (k *K) WaveMaxUnsigned(x V) V {
	if x.t != I32 || !k.nvidia("maximum of a warp") {
		k.fail("maximum of %v in a warp", x.t)
		return x
	}
	return V{t: I32, v: k.intrinsic("llvm.nvvm.redux.sync.umax", types.I32, k.raw(x), constant.NewInt(types.I32, -1))}
}
