package kernel

import (
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/constant"
	"github.com/llir/llvm/ir/types"
	"github.com/llir/llvm/ir/value"
)

// Vec is a short vector in every lane of a GPU: words (i32) of narrower elements,
// the first in the low bits, or f32 numbers. Hosts have none.
type Vec struct {
	t Elem
	n int
	v value.Value
}

// Len is the number of words or f32 numbers.
func (x Vec) Len() int { return x.n }

func vecType(t Elem, n int) *types.VectorType { return types.NewVector(uint64(n), elemTypes[t]) }

func (k *K) vec(t Elem, n int, v value.Value) Vec {
	if !k.T.GPU() {
		k.fail("vectors in lanes are of GPUs, %s has none", k.T.Name)
	}
	return Vec{t: t, n: n, v: v}
}

// ZeroVec is n zeros, i32 or f32.
func (k *K) ZeroVec(t Elem, n int) Vec {
	return k.vec(t, n, constant.NewZeroInitializer(vecType(t, n)))
}

// MakeVec joins numbers of one type, i32 or f32.
func (k *K) MakeVec(xs ...V) Vec {
	t := xs[0].t
	var v value.Value = constant.NewPoison(vecType(t, len(xs)))
	for i, x := range xs {
		if x.t != t || t != I32 && t != F32 {
			k.fail("vector of %v and %v", t, x.t)
			return k.ZeroVec(I32, len(xs))
		}
		v = k.b.NewInsertElement(v, k.raw(x), constant.NewInt(types.I32, int64(i)))
	}
	return k.vec(t, len(xs), v)
}

// At is number i of a vector.
func (k *K) At(x Vec, i int) V {
	return V{t: x.t, v: k.b.NewExtractElement(x.v, constant.NewInt(types.I32, int64(i)))}
}

// Part is n numbers from number from on.
func (k *K) Part(x Vec, from, n int) Vec {
	if from < 0 || from+n > x.n {
		k.fail("numbers %d to %d of a vector of %d", from, from+n-1, x.n)
		return k.ZeroVec(x.t, n)
	}
	return k.vec(x.t, n, k.shuffle(x.v, constant.NewPoison(x.v.Type()), n, func(i int) int { return from + i }))
}

// Join is the numbers of x and then those of y, which is as long.
func (k *K) Join(x, y Vec) Vec {
	if x.t != y.t || x.n != y.n {
		k.fail("join of %d %v and %d %v", x.n, x.t, y.n, y.t)
		return x
	}
	return k.vec(x.t, 2*x.n, k.shuffle(x.v, y.v, 2*x.n, func(i int) int { return i }))
}

// MapVec applies f to each number, or each pair of numbers of equally long vectors.
func (k *K) MapVec(f func(x ...V) V, xs ...Vec) Vec {
	out := make([]V, xs[0].n)
	for i := range out {
		args := make([]V, len(xs))
		for j, x := range xs {
			args[j] = k.At(x, i)
		}
		out[i] = f(args...)
	}
	return k.MakeVec(out...)
}

// VecVar is a mutable vector.
type VecVar struct {
	k    *K
	of   Vec // the shape
	slot value.Value
}

// VecVar makes a mutable vector.
func (k *K) VecVar(init Vec) *VecVar {
	x := &VecVar{k: k, of: init, slot: k.alloca(init.v.Type())}
	k.b.NewStore(init.v, x.slot)
	return x
}

// Get reads the vector.
func (x *VecVar) Get() Vec {
	return x.k.vec(x.of.t, x.of.n, x.k.b.NewLoad(x.of.v.Type(), x.slot))
}

// Set writes the vector.
func (x *VecVar) Set(v Vec) {
	if v.t != x.of.t || v.n != x.of.n {
		x.k.fail("variable of %d %v set to %d %v", x.of.n, x.of.t, v.n, v.t)
		return
	}
	x.k.b.NewStore(v.v, x.slot)
}

// Format is the format of the buffer's elements.
func (b *Buf) Format() tir.DType { return b.mem }

// vecBytes is the size of n elements of b, if vectors have it: 4, 8 or 16 bytes.
func (b *Buf) vecBytes(n int) (bytes int, ok bool) {
	bytes = int(b.mem.Bytes(n))
	return bytes, bytes == 4 || bytes == 8 || bytes == 16
}

// vecAddress is where the vector at element i lies; packed f4e2m1 has i even.
func (b *Buf) vecAddress(i V, t types.Type) value.Value {
	k := b.k
	if i.t != I64 {
		i = k.Convert(i, I64)
	}
	if b.mem == tir.F4E2M1 {
		i = k.LShr(i, k.Int(1))
	}
	return k.b.NewBitCast(b.address(k.raw(i)), pointer(t, b.as))
}

// LoadVec reads n elements from element i on, as they lie in memory: 4, 8 or 16
// bytes at a multiple of their size.
func (b *Buf) LoadVec(i V, n int) Vec {
	k := b.k
	bytes, ok := b.vecBytes(n)
	if !ok {
		k.fail("load of %d bytes at once", bytes)
		bytes = 4
	}
	t := vecType(I32, bytes/4)
	l := k.b.NewLoad(t, b.vecAddress(i, t))
	l.Align = ir.Align(bytes)
	return k.vec(I32, bytes/4, l)
}

// LoadVecIf is LoadVec in the lanes where in holds, zeros in the others, which read
// element 0 instead: a branch around loads would have each wait for the last.
func (b *Buf) LoadVecIf(in, i V, n int) Vec {
	k := b.k
	x := b.LoadVec(k.Select(in, i, k.Int(0)), n)
	return k.vec(I32, x.n, k.b.NewSelect(k.raw(in), x.v, constant.NewZeroInitializer(x.v.Type())))
}

// StoreVec writes a vector over the elements from i on, without conversion, at a
// multiple of its size.
func (b *Buf) StoreVec(i V, x Vec) {
	k := b.k
	if x.n != 1 && x.n != 2 && x.n != 4 {
		k.fail("store of %d bytes at once", 4*x.n)
		return
	}
	k.b.NewStore(x.v, b.vecAddress(i, x.v.Type())).Align = ir.Align(4 * x.n)
}

// AsF32 is a vector of words as f32 numbers with the same bits.
func (k *K) AsF32(x Vec) Vec {
	return k.vec(F32, x.n, k.b.NewBitCast(x.v, vecType(F32, x.n)))
}
