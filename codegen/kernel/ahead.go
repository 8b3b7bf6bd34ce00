package kernel

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/llir/llvm/ir"
	"github.com/llir/llvm/ir/types"
)

// Launches of a graph on NVIDIA's GPUs overlap: a kernel begins while the last groups of
// the one before are at work, and waits for their end before it touches memory (PTX ISA,
// "griddepcontrol"; CUDA Programming Guide, "Programmatic Dependent Launch"). Each kernel
// does so before any access of memory, on every path. So the end of a launch means that
// all before it have ended, whose results are to be seen then; a kernel that nothing
// overlaps with, or that runs without a graph, has nothing to wait for.
//
// What a kernel can do before is ask the L2 cache for memory. That yields no value, so
// that it does not matter if a launch before still writes there.

// beginAhead makes the block that Ahead adds to.
func (k *K) beginAhead() {
	ahead := k.f.NewBlock("ahead")
	k.b.NewBr(ahead)
	k.b, k.ahead = ahead, ahead
}

// awaitLaunches waits for the launches before, and lets the next begin where there is
// room, to wait in turn.
func (k *K) awaitLaunches() {
	k.assembler(types.Void, "griddepcontrol.wait;", "~{memory}")
	k.assembler(types.Void, "griddepcontrol.launch_dependents;", "~{memory}")
	k.awaited = k.b
}

// NextAtEnd has the next launch begin when the groups of this one have ended, and not
// where there is room before. A processor whose group ends takes as many of the next as it
// has room for: if they would all be at work at once, they are unevenly spread then. It
// still waits for the end of the launch, as kernels always do.
func (k *K) NextAtEnd() {
	if k.awaited != nil && !k.nextAtEnd {
		k.awaited.Insts = slices.Delete(k.awaited.Insts, 1, 2) // behind the wait
	}
	k.nextAtEnd = true
}

// Ahead runs body before the kernel waits for launches before it, wherever Ahead is
// called. In it are arithmetic of parameters, of Group and of Lane, and Prefetch; no
// other access of memory. On other targets body is not run.
func (k *K) Ahead(body func()) {
	if k.T.Kind != target.NVPTX {
		return
	}
	here, group := k.b, k.group
	k.b, k.before = k.ahead, true
	if p := k.part; p != nil {
		k.uniformIf(k.And(k.Cmp(GE, p.whole, p.from), k.Cmp(LT, p.whole, p.to)), func() {
			k.group = k.Sub(p.whole, p.from)
			body()
		})
	} else {
		body()
	}
	k.ahead, k.b, k.group, k.before = k.b, here, group, false
}

// gridPart is a part of the grid: groups of the whole, from one to before another.
type gridPart struct{ whole, from, to V }

// PrefetchBytes is what a lane asks for at once: a line of the L2 cache.
const PrefetchBytes = 128

// Prefetch asks the L2 cache for the line with element i of a buffer: each lane for one.
// To be called in Ahead.
func (b *Buf) Prefetch(i V) {
	k := b.k
	if !k.nvidia("prefetch") {
		return
	}
	if b.as != k.T.Global || !k.before {
		k.fail("prefetch of address space %d, ahead of the launches before: %v", b.as, k.before)
		return
	}
	k.assembler(types.Void, "prefetch.global.L2 [$0];", "l,~{memory}", b.vecAddress(i, types.I8))
}

// PrefetchRange asks for bytes from element i on. Where that is within a line, the last
// line may be left out; none beyond the bytes is asked for.
func (b *Buf) PrefetchRange(i, bytes V) {
	k := b.k
	from := b.At(i).Bytes()
	k.Lanes(k.UDiv(k.Add(bytes, k.Int(PrefetchBytes-1)), k.Int(PrefetchBytes)), func(line V) {
		from.Prefetch(k.Mul(line, k.Int(PrefetchBytes)))
	})
}

// endAhead leads from what comes before the wait to it.
func (k *K) endAhead(start *ir.Block) {
	if k.ahead != nil {
		k.ahead.NewBr(start)
	}
}
