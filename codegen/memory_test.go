package codegen

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// TestLayout: buffers whose lives meet never share bytes, offsets are aligned,
// everything is inside the arena, and the arena is no larger than without reuse.
func TestLayout(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		bufs := make([]buffer, 1+r.IntN(60))
		var total int64
		for i := range bufs {
			b := &bufs[i]
			*b = buffer{dt: ir.F32, space: plan.Arena, bytes: int64(1 + r.IntN(5000)), first: r.IntN(40) - 1}
			b.last = b.first + r.IntN(10+r.IntN(40))
			switch r.IntN(10) {
			case 0:
				b.space = plan.State
			case 1:
				b.last = b.first - 1 // never used
			}
			total += (b.bytes + plan.Align - 1) / plan.Align * plan.Align
		}
		again := slices.Clone(bufs)
		var a arena
		size := a.layout(bufs)
		if a.layout(again) != size || !slices.Equal(bufs, again) {
			t.Fatal("two layouts of equal buffers differ")
		}
		plain := slices.Clone(bufs)
		lowest(plain)
		if !slices.Equal(bufs, plain) {
			t.Fatal("a buffer is not at the lowest offset that is free")
		}
		if size > total {
			t.Fatalf("arena of %d bytes for %d bytes of buffers", size, total)
		}
		for i, a := range bufs {
			if a.space != plan.Arena || a.last < a.first {
				continue
			}
			if a.offset%plan.Align != 0 || a.offset+a.bytes > size {
				t.Fatalf("buffer %d at %d..%d of %d", i, a.offset, a.offset+a.bytes, size)
			}
			for j, b := range bufs[:i] {
				if b.space == plan.Arena && b.last >= b.first && a.first <= b.last && b.first <= a.last &&
					a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes {
					t.Fatalf("buffers %d and %d live together and share bytes", i, j)
				}
			}
		}
	}
}

// lowest lays out buffers in the order of layout, and looks at all that are placed for
// each.
func lowest(bufs []buffer) {
	var order []int
	for i := range bufs {
		if bufs[i].space == plan.Arena && bufs[i].last >= bufs[i].first {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(bufs[b].bytes, bufs[a].bytes), bufs[a].first-bufs[b].first, a-b)
	})
	up := func(n int64) int64 { return (n + plan.Align - 1) / plan.Align * plan.Align }
	for n, i := range order {
		b := &bufs[i]
		b.offset = 0
		for again := true; again; {
			again = false
			for _, j := range order[:n] {
				o := &bufs[j]
				if o.first <= b.last && b.first <= o.last && o.offset < b.offset+up(b.bytes) && b.offset < o.offset+up(o.bytes) {
					b.offset, again = o.offset+up(o.bytes), true
				}
			}
		}
	}
}
