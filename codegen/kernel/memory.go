package kernel

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/target"
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Buf is memory of one element format.
type Buf struct {
	k   *K
	ptr value.Value
	mem tir.DType
	as  types.AddrSpace
}

// memType is the LLVM type of one stored element. f4e2m1 is two to a byte.
func (k *K) memType(d tir.DType) types.Type {
	switch d {
	case tir.F32:
		return types.Float
	case tir.BF16:
		if k.T.BFloat {
			return bfloat
		}
		return types.I16
	case tir.F16:
		return types.I16
	case tir.I64:
		return types.I64
	case tir.I32:
		return types.I32
	}
	return types.I8
}

// Shared reserves n elements for the group: LDS on a GPU, stack on the host.
func (k *K) Shared(d tir.DType, n int) *Buf {
	arr := types.NewArray(uint64(n), k.memType(d))
	zero := constant.NewInt(types.I64, 0)
	if !k.T.GPU() {
		a := ir.NewAlloca(arr)
		a.Align = 64
		k.entry.Insts = append([]ir.Instruction{a}, k.entry.Insts...)
		return &Buf{k: k, ptr: k.b.NewGetElementPtr(arr, a, zero, zero), mem: d}
	}
	if k.parts != nil {
		at := constant.NewInt(types.I64, k.parts.reserve(n*elemBytes(arr.ElemType)))
		return &Buf{k: k, ptr: k.b.NewBitCast(k.b.NewGetElementPtr(k.parts.array, k.parts.g, zero, at), pointer(arr.ElemType, k.T.Shared)), mem: d, as: k.T.Shared}
	}
	k.n++
	g := k.m.NewGlobal(fmt.Sprintf("%s.lds%d", k.f.Name(), k.n), arr)
	g.Linkage, g.AddrSpace, g.Align, g.Typ, g.Init = enum.LinkageInternal, k.T.Shared, 16, pointer(arr, k.T.Shared), constant.NewPoison(arr)
	return &Buf{k: k, ptr: k.b.NewGetElementPtr(arr, g, zero, zero), mem: d, as: k.T.Shared}
}

// partShared is the shared memory of all parts of a grid: as much as that with the most
// needs, since no group has two of them.
type partShared struct {
	g     *ir.Global
	array *types.ArrayType // grows
	used  int64            // by the part being built
}

const sharedAlign = 16

func (k *K) newPartShared() *partShared {
	arr := types.NewArray(sharedAlign, types.I8)
	g := k.m.NewGlobal(k.f.Name()+".lds", arr)
	g.Linkage, g.AddrSpace, g.Align, g.Typ, g.Init = enum.LinkageInternal, k.T.Shared, sharedAlign, pointer(arr, k.T.Shared), constant.NewPoison(arr)
	return &partShared{g: g, array: arr}
}

// reserve takes the next bytes for the part.
func (p *partShared) reserve(bytes int) int64 {
	at := p.used
	p.used += (int64(bytes) + sharedAlign - 1) / sharedAlign * sharedAlign
	p.array.Len = max(p.array.Len, uint64(p.used))
	return at
}

// ldsDone is the operand of s_waitcnt that waits for LDS and scalar memory (lgkmcnt 0)
// and for nothing else: vmcnt 63, expcnt 7, as the ISA documents of MI300 encode them.
const ldsDone = 0xC07F

// Barrier waits until all lanes of the group are here and each sees what the
// others stored, in shared memory and in buffers.
func (k *K) Barrier() {
	switch k.T.Kind {
	case target.AMDGPU:
		k.b.NewFence(enum.AtomicOrderingRelease).SyncScope = "workgroup"
		// The fence alone is not enough: LLVM 22 drops its wait at the head of a loop whose
		// body leaves LDS writes under way.
		k.intrinsic("llvm.amdgcn.s.waitcnt", types.Void, constant.NewInt(types.I32, ldsDone))
		k.intrinsic("llvm.amdgcn.s.barrier", types.Void)
		k.b.NewFence(enum.AtomicOrderingAcquire).SyncScope = "workgroup"
	case target.NVPTX:
		k.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", types.Void, constant.NewInt(types.I32, 0))
	}
}

// address is a typed pointer to element i of the buffer.
func (b *Buf) address(i value.Value) value.Value {
	g := b.k.b.NewGetElementPtr(b.k.memType(b.mem), b.ptr, i)
	g.InBounds = true
	return g
}

// Load reads element i and converts it: narrow floats to f32, 8-bit integers to
// i32, bool bytes to bool. Lanes that do not act read nothing and get zero.
// f4e2m1 is read by LoadNibble.
func (b *Buf) Load(i V) V {
	if b.mem == tir.F4E2M1 {
		b.k.fail("load of packed f4e2m1: use LoadNibble")
		return b.k.Float(0)
	}
	return b.k.decode(b.fetch(i), b.mem, i.uniform)
}

// LoadBits reads element i as it lies in memory, without conversion: an i64 for
// 64-bit elements, else an i32 filled up with zeros.
func (b *Buf) LoadBits(i V) V {
	k := b.k
	if b.mem == tir.F4E2M1 {
		k.fail("load of packed f4e2m1: view it as bytes")
		return k.Int32(0)
	}
	v := b.fetch(i)
	out := V{t: I32, uniform: i.uniform, v: v}
	switch t := k.memType(b.mem).(type) {
	case *types.IntType:
		if t.BitSize == 64 {
			out.t = I64
		} else if t.BitSize < 32 {
			out.v = k.b.NewZExt(v, like(v, types.I32))
		}
	case *types.FloatType:
		out.v = k.b.NewBitCast(v, like(v, types.I32))
	default: // bfloat
		out.v = k.b.NewZExt(k.b.NewBitCast(v, like(v, types.I16)), like(v, types.I32))
	}
	return out
}

// StoreBits writes what LoadBits read from an element of the same size, for the
// lanes that act.
func (b *Buf) StoreBits(i, x V) {
	k := b.k
	t := k.memType(b.mem)
	if want := elemBytes(t) == 8; b.mem == tir.F4E2M1 || want != (x.t == I64) || !want && x.t != I32 {
		k.fail("store of the bits of %v to %s", x.t, b.mem)
		return
	}
	b.write(i, x, func(v value.Value) value.Value {
		switch t := t.(type) {
		case *types.IntType:
			if t.BitSize < 32 {
				return k.b.NewTrunc(v, like(v, t))
			}
			return v
		case *types.FloatType:
			return k.b.NewBitCast(v, like(v, t))
		}
		return k.b.NewBitCast(k.b.NewTrunc(v, like(v, types.I16)), like(v, bfloat))
	})
}

// fetch reads element i in its memory type.
func (b *Buf) fetch(i V) value.Value {
	k := b.k
	t := k.memType(b.mem)
	if i.t != I64 {
		i = k.Convert(i, I64)
	}
	switch {
	case i.uniform || k.T.GPU():
		return k.b.NewLoad(t, b.address(k.raw(i)))
	case i.laneForm() && i.stride == 1:
		vt := types.NewVector(uint64(k.T.Lanes), t)
		p := k.b.NewBitCast(b.address(i.base), pointer(vt, b.as))
		if k.mask == nil {
			l := k.b.NewLoad(vt, p)
			l.Align = ir.Align(elemBytes(t))
			return l
		}
		name := "llvm.masked.load." + mangle(vt) + ".p0"
		return k.intrinsic(name, vt, p, constant.NewInt(types.I32, int64(elemBytes(t))), k.mask, constant.NewZeroInitializer(vt))
	}
	return k.gather(b, t, k.raw(i))
}

func elemBytes(t types.Type) int {
	switch t := t.(type) {
	case *types.IntType:
		return int(t.BitSize) / 8
	case *types.FloatType:
		return 4
	}
	return 2
}

// gather loads one element per lane; lanes that do not act read nothing.
func (k *K) gather(b *Buf, t types.Type, idx value.Value) value.Value {
	vt := types.NewVector(uint64(k.T.Lanes), t)
	ptrs := b.address(idx)
	mask := k.mask
	if mask == nil {
		mask = splat(types.NewVector(uint64(k.T.Lanes), types.I1), constant.True)
	}
	name := "llvm.masked.gather." + mangle(vt) + fmt.Sprintf(".v%dp0", k.T.Lanes)
	return k.intrinsic(name, vt, ptrs, constant.NewInt(types.I32, int64(elemBytes(t))), mask, constant.NewZeroInitializer(vt))
}

// Store converts x to the buffer's format and writes element i, for the lanes
// that act.
func (b *Buf) Store(i, x V) {
	k := b.k
	if b.mem == tir.F4E2M1 {
		k.fail("store to packed f4e2m1: view it as bytes")
		return
	}
	b.write(i, x, func(v value.Value) value.Value {
		return k.encode(V{t: x.t, uniform: x.uniform && i.uniform, v: v}, b.mem)
	})
}

// write stores encode(x) to element i.
func (b *Buf) write(i, x V, encode func(value.Value) value.Value) {
	k := b.k
	if i.t != I64 {
		i = k.Convert(i, I64)
	}
	t := k.memType(b.mem)
	if i.uniform || k.T.GPU() {
		if i.uniform && !x.uniform && !k.T.GPU() {
			k.fail("store of a varying value to one element")
			return
		}
		if k.mask != nil && i.uniform {
			k.fail("store to one element by lanes of which some may not act")
			return
		}
		k.b.NewStore(encode(k.raw(x)), b.address(k.raw(i)))
		return
	}
	v := encode(k.vary(x))
	vt := types.NewVector(uint64(k.T.Lanes), t)
	one := constant.NewInt(types.I32, int64(elemBytes(t)))
	if i.laneForm() && i.stride == 1 {
		p := k.b.NewBitCast(b.address(i.base), pointer(vt, b.as))
		if k.mask == nil {
			k.b.NewStore(v, p).Align = ir.Align(elemBytes(t))
			return
		}
		k.intrinsic("llvm.masked.store."+mangle(vt)+".p0", types.Void, v, p, one, k.mask)
		return
	}
	mask := k.mask
	if mask == nil {
		mask = splat(types.NewVector(uint64(k.T.Lanes), types.I1), constant.True)
	}
	k.intrinsic("llvm.masked.scatter."+mangle(vt)+fmt.Sprintf(".v%dp0", k.T.Lanes), types.Void, v, b.address(k.raw(i)), one, mask)
}

// At is the buffer from element i on; i is uniform. In packed f4e2m1 it must be
// even, as the start of every row is.
func (b *Buf) At(i V) *Buf {
	if b.mem == tir.F4E2M1 {
		i = b.k.LShr(i, b.k.Int(1))
	}
	return &Buf{k: b.k, ptr: b.address(b.k.raw(i)), mem: b.mem, as: b.as}
}

// Either is a where cond holds, which is uniform, else b, which has the same format.
func (k *K) Either(cond V, a, b *Buf) *Buf {
	if a.mem != b.mem || a.as != b.as {
		k.fail("either memory of %s or of %s", a.mem, b.mem)
		return a
	}
	return &Buf{k: k, ptr: k.b.NewSelect(k.raw(cond), a.ptr, b.ptr), mem: a.mem, as: a.as}
}

// Bytes is the same memory as raw bytes.
func (b *Buf) Bytes() *Buf { return b.As(tir.U8) }

// As is the same memory as elements of another format.
func (b *Buf) As(d tir.DType) *Buf {
	c := *b
	c.mem = d
	c.ptr = b.k.b.NewBitCast(b.ptr, pointer(b.k.memType(d), b.as))
	return &c
}
