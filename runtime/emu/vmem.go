package emu

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"
)

// What all vector memory instructions have in common: an instruction computes the
// address of each lane (address), finds the block of memory where that is (place),
// and moves data between the block and registers (gather.go).

// place is a kind of memory that vector instructions address.
type place uint8

const (
	placeGlobal  place = iota // w.addr is a device address
	placeFlat                 // the same, with the windows of LDS and scratch
	placeLDS                  // w.addr is an offset in LDS
	placeScratch              // w.addr is an offset in the lane's scratch memory
)

// fullMask is EXEC with all lanes on.
const fullMask = ^uint64(0)

// access is a vector memory access: what is the same each time it is executed.
type access struct {
	in      *Inst
	place   place
	address func(w *wave) // computes w.addr for all lanes, those off included
	// run tells without address whether the lanes' accesses of size bytes follow one
	// another, and from where on; nil if only address can tell.
	run  func(w *wave, size uint64) (uint64, bool)
	size uint64 // bytes of a lane
	kind accessKind
	// align is a power of two of which the address has to be a multiple; 0 is any.
	align uint64
}

// begin computes the addresses of the lanes of mask and tells watchers of them. It
// returns the lanes that go on: none if the wave has failed.
func (a *access) begin(w *wave, mask uint64) uint64 {
	if mask == 0 {
		return 0
	}
	a.address(w)
	if w.group.watch != nil {
		a.observe(w, mask)
	}
	if a.align > 1 {
		a.checkAligned(w, mask)
	}
	if w.status == faulted {
		return 0
	}
	return mask
}

// observe shows each lane's access to the watcher.
func (a *access) observe(w *wave, mask uint64) {
	for m := mask; m != 0 && w.status != faulted; m &= m - 1 {
		i := lowest(m)
		switch p, lo := a.window(w.addr[i]); p {
		case placeLDS:
			w.group.watch.lds(w, a.in, i, uint32(w.addr[i]-lo), uint32(a.size), a.kind)
		case placeScratch:
			w.group.watch.scratch(w, a.in, i, uint32(w.addr[i]-lo), uint32(a.size), a.kind)
		case placeGlobal:
			w.group.watch.access(w, a.in, i, w.addr[i], a.size, a.kind)
		}
	}
}

// lowest is the first lane of a mask that is not empty. The compiler sees that it is
// below Lanes.
func lowest(mask uint64) int { return bits.TrailingZeros64(mask) & (Lanes - 1) }

// window is what an address lies in, and the address that this begins at.
func (a *access) window(address uint64) (place, uint64) {
	if a.place != placeFlat {
		return a.place, 0
	}
	switch address >> 32 {
	case sharedBase >> 32:
		return placeLDS, sharedBase
	case privateBase >> 32:
		return placeScratch, privateBase
	}
	return placeGlobal, 0
}

func (a *access) checkAligned(w *wave, mask uint64) {
	all := uint64(0)
	for _, x := range w.addr {
		all |= x
	}
	if all&(a.align-1) == 0 {
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		if i := lowest(m); w.addr[i]&(a.align-1) != 0 {
			w.fail(a.in, "%s accesses %s, which is not aligned to %d bytes", w.who(i), a.named(w, w.addr[i]), a.align)
			return
		}
	}
}

// named is an address for people: of memory, what it lies in, as numbers change from run
// to run.
func (a *access) named(w *wave, address uint64) string {
	if p, _ := a.window(address); p == placeGlobal {
		if r := w.group.regions.find(address); r != nil {
			return r.at(address)
		}
	}
	return fmt.Sprintf("0x%x", address)
}

// locate finds the block of memory of mask's lowest lane and sets w.offset for all
// lanes of mask that lie in it too. It returns the block's first byte and those
// lanes; nil if the lowest lane is where it may not be, which ends the wave.
func (a *access) locate(w *wave, mask uint64) (unsafe.Pointer, uint64) {
	first := lowest(mask)
	p, lo := a.window(w.addr[first])
	if a.place == placeFlat {
		for m := mask; m != 0; m &= m - 1 {
			i := lowest(m)
			if q, _ := a.window(w.addr[i]); q != p {
				mask &^= 1 << i
			}
		}
	}
	switch p {
	case placeLDS:
		lds := w.group.lds
		if !a.fits(w, mask, lo, uint64(len(lds)), "LDS", "the work-group") {
			return nil, 0
		}
		return unsafe.Pointer(unsafe.SliceData(lds)), mask
	case placeScratch:
		private := w.group.private
		if !a.fits(w, mask, lo, private, "scratch memory", "a work-item") {
			return nil, 0
		}
		for i := range w.offset {
			w.offset[i] += uint64(i) * private
		}
		return unsafe.Pointer(unsafe.SliceData(w.scratch)), mask
	}
	if w.pointer(a.in, first, w.addr[first], a.size, a.kind != accessRead) == nil {
		return nil, 0
	}
	r := w.near
	return r.base, inside(&w.offset, &w.addr, r.lo, r.hi-r.lo, a.size, mask)
}

// fits sets w.offset for all lanes of mask. It fails the wave unless each of them lies
// in the total bytes from lo.
func (a *access) fits(w *wave, mask, lo, total uint64, what, whose string) bool {
	some := uint64(0)
	if a.size <= total {
		some = inside(&w.offset, &w.addr, lo, total, a.size, mask)
	}
	if some == mask {
		return true
	}
	i := lowest(mask &^ some)
	w.fail(a.in, "%s accesses %d bytes at offset %d of %s, of which %s has %d bytes", w.who(i), a.size, w.addr[i]-lo, what, whose, total)
	return false
}

// inside sets offset for the lanes of mask whose size bytes lie in the total bytes
// from lo, and returns these lanes. total is at least size.
func inside(offset, addr *[Lanes]uint64, lo, total, size, mask uint64) uint64 {
	last := total - size
	if mask == fullMask {
		most := uint64(0)
		for i := range addr {
			x := addr[i] - lo
			offset[i] = x
			most = max(most, x)
		}
		if most <= last {
			return mask
		}
	}
	some := uint64(0)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		if x := addr[i] - lo; x <= last {
			offset[i] = x
			some |= 1 << i
		}
	}
	return some
}

// whole returns the memory of all lanes together if they are all on, their accesses
// follow one another, and one block has them; else nil. Addresses need not have been
// computed. Nobody may watch.
func (a *access) whole(w *wave) unsafe.Pointer {
	if a.run == nil || w.exec() != fullMask || w.group.watch != nil {
		return nil
	}
	x, ok := a.run(w, a.size)
	if !ok || x&(max(a.align, 1)-1) != 0 {
		return nil
	}
	return a.block(w, x)
}

// block returns the memory of all lanes from address x on, if one block has it.
// Otherwise it is nil: what is wrong, if anything is, is for locate to see.
func (a *access) block(w *wave, x uint64) unsafe.Pointer {
	total := Lanes * a.size
	switch a.place {
	case placeLDS:
		lds := w.group.lds
		if x > uint64(len(lds)) || total > uint64(len(lds))-x {
			return nil
		}
		return unsafe.Pointer(&lds[x])
	case placeScratch:
		return nil // each lane has its own
	}
	r := w.near
	if r == nil || x < r.lo || x >= r.hi {
		if r = w.group.regions.find(x); r == nil {
			return nil
		}
		w.near = r
	}
	if total > r.hi-x || a.kind != accessRead && r.readOnly {
		return nil
	}
	return unsafe.Add(r.base, x-r.lo)
}

// contiguous is whole for addresses that have been computed.
func (a *access) contiguous(w *wave, mask uint64) unsafe.Pointer {
	if mask != fullMask || w.group.watch != nil {
		return nil
	}
	x := w.addr[0]
	for i := range w.addr {
		if w.addr[i] != x {
			return nil
		}
		x += a.size
	}
	return a.block(w, w.addr[0])
}

// run32 tells whether a register counts up by size, without wrapping.
func run32(v *Vec, size uint64) bool {
	x := v[0]
	if uint64(x)+(Lanes-1)*size > math.MaxUint32 {
		return false
	}
	for i := range v {
		if v[i] != x {
			return false
		}
		x += uint32(size)
	}
	return true
}
