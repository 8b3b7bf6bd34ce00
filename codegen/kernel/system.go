package kernel

import (
	tir "github.com/kiln-project/kiln/ir"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/enum"
	"github.com/llir/llvm/ir/types"
)

// Memory that the host and other devices change or look at while a kernel runs. All
// of it is in 64-bit words, which no machine tears.

// Memory is what lies at an address, a 64-bit integer.
func (k *K) Memory(address V, mem tir.DType) *Buf {
	if address.t != I64 {
		k.fail("an address that is %v", address.t)
		address = k.Int(0)
	}
	return &Buf{k: k, ptr: k.b.NewIntToPtr(k.raw(address), pointer(k.memType(mem), k.T.Global)), mem: mem, as: k.T.Global}
}

// LoadSystem reads word i as it is in memory now, past every cache that a writer
// outside of this device does not reach.
func (b *Buf) LoadSystem(i V) V {
	k := b.k
	if !k.systemWord(b) {
		return k.Int(0)
	}
	l := k.b.NewLoad(types.I64, b.address(k.raw(i)))
	l.Atomic, l.Ordering, l.Align = true, enum.AtomicOrderingMonotonic, 8
	return V{t: I64, v: l}
}

// StoreSystem writes word i where every device and the host see it.
func (b *Buf) StoreSystem(i, x V) {
	k := b.k
	if !k.systemWord(b) {
		return
	}
	if x.t != I64 {
		k.fail("store of %v to a word of the system", x.t)
		return
	}
	s := k.b.NewStore(k.raw(x), b.address(k.raw(i)))
	s.Atomic, s.Ordering, s.Align = true, enum.AtomicOrderingMonotonic, 8
}

func (k *K) systemWord(b *Buf) bool {
	if !k.T.GPU() || b.mem != tir.I64 {
		k.fail("words of the system are i64 on a GPU, not %s on %s", b.mem, k.T.Name)
		return false
	}
	return true
}

// AcquireSystem: what this lane reads from here on is no older than what it has read
// with LoadSystem.
func (k *K) AcquireSystem() { k.b.Insts = append(k.b.Insts, ir.NewFence(enum.AtomicOrderingAcquire)) }

// ReleaseSystem: who sees what this lane stores with StoreSystem from here on sees all
// that it, and before a Barrier its group, has stored.
func (k *K) ReleaseSystem() { k.b.Insts = append(k.b.Insts, ir.NewFence(enum.AtomicOrderingRelease)) }
