package codegen

import (
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
)

// arenaAlign is the alignment of arena buffers: a cache line, and the widest
// vector access.
const arenaAlign = 64

// layout gives every arena buffer an offset and returns the arena's size. Two
// buffers share bytes only if no launch needs both: a buffer's first and last
// launch are both inside its life.
func layout(bufs []buffer) int64 {
	var order []int
	for i := range bufs {
		if bufs[i].space == plan.Arena && bufs[i].last >= bufs[i].first {
			order = append(order, i)
		}
	}
	// Large first; ties by first use, then by id, so that the result is one.
	slices.SortFunc(order, func(a, b int) int {
		x, y := &bufs[a], &bufs[b]
		switch {
		case x.bytes != y.bytes:
			return int(min(1, max(-1, y.bytes-x.bytes)))
		case x.first != y.first:
			return x.first - y.first
		}
		return a - b
	})
	var size int64
	var placed []int // by offset
	for _, i := range order {
		b := &bufs[i]
		need := (b.bytes + arenaAlign - 1) / arenaAlign * arenaAlign
		b.offset = 0
		for _, j := range placed {
			o := &bufs[j]
			if o.last < b.first || b.last < o.first {
				continue
			}
			if b.offset+need <= o.offset {
				break // fits in the gap before o
			}
			b.offset = max(b.offset, (o.offset+o.bytes+arenaAlign-1)/arenaAlign*arenaAlign)
		}
		at, _ := slices.BinarySearchFunc(placed, b.offset, func(j int, off int64) int {
			switch {
			case bufs[j].offset < off:
				return -1
			case bufs[j].offset > off:
				return 1
			}
			return 0
		})
		placed = slices.Insert(placed, at, i)
		size = max(size, b.offset+need)
	}
	return size
}
