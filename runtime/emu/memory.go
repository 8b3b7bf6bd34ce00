package emu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

var le = binary.LittleEndian

// region is memory that a kernel may touch, at the addresses lo..hi-1. It is the
// process's own: lo is where base points, unless the region is a window that has
// addresses of its own.
type region struct {
	lo, hi uint64
	base   unsafe.Pointer
	label  string
	// readOnly regions are code, kernel arguments, and what a launch only reads.
	readOnly bool
}

// regionOf makes a region of bytes that stay where they are.
func regionOf(b []byte, label string) region {
	p := unsafe.Pointer(unsafe.SliceData(b))
	return region{lo: uint64(uintptr(p)), hi: uint64(uintptr(p)) + uint64(len(b)), base: p, label: label}
}

// regions are sorted by address and do not overlap.
type regions []region

func (rs regions) find(address uint64) *region {
	i, _ := slices.BinarySearchFunc(rs, address, func(r region, a uint64) int {
		if r.hi <= a {
			return -1
		}
		if r.lo > a {
			return 1
		}
		return 0
	})
	if i < len(rs) && rs[i].lo <= address {
		return &rs[i]
	}
	return nil
}

// with adds regions. Overlap is an error: an address has one meaning.
func (rs regions) with(more ...region) (regions, error) {
	all := append(slices.Clone(rs), more...)
	slices.SortStableFunc(all, func(a, b region) int {
		if a.lo < b.lo {
			return -1
		}
		return b2i(a.lo > b.lo)
	})
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.hi > b.lo {
			return nil, fmt.Errorf("%s and %s overlap", a.label, b.label)
		}
	}
	return all, nil
}

func b2i(b bool) int { return int(b2u(b)) }

// pointer resolves size bytes at an address for one lane; lane -1 is the scalar
// unit. Where the kernel may not go ends the wave, and the result is nil.
func (w *wave) pointer(in *Inst, lane int, address, size uint64, write bool) unsafe.Pointer {
	r := w.near
	if r == nil || address < r.lo || address >= r.hi || size > r.hi-address {
		r = w.group.regions.find(address)
		if w.group.lenient() && (r == nil || size > r.hi-address || write && r.readOnly) && size <= uint64(len(w.lost)) {
			return w.loses(address, size)
		}
		if r == nil || size > r.hi-address {
			w.outside(in, lane, address, size, r)
			return nil
		}
		w.near = r
	}
	if write && r.readOnly {
		if w.group.lenient() && size <= uint64(len(w.lost)) {
			return w.loses(address, size)
		}
		w.fail(in, "%s writes %d bytes at %s, which is only to be read", w.who(lane), size, r.at(address))
		return nil
	}
	return unsafe.Add(r.base, address-r.lo)
}

// lenient tells whether an access that is not allowed is reported by the memory
// sanitizer, and has no effect.
func (g *group) lenient() bool {
	s := g.launch.Sanitize
	return s != nil && s.Checks&CheckMemory != 0
}

// loses gives an access that is not allowed memory of its own, full of poison.
func (w *wave) loses(address, size uint64) unsafe.Pointer {
	for i := range len(w.lost) / 4 {
		le.PutUint32(w.lost[4*i:], poison)
	}
	w.nowhere = region{lo: address, hi: address + size, base: unsafe.Pointer(&w.lost[0]), label: "nowhere"}
	w.near = &w.nowhere
	return w.nowhere.base
}

// at says where in a region an address is.
func (r *region) at(address uint64) string { return fmt.Sprintf("%s+%d", r.label, address-r.lo) }

func (w *wave) outside(in *Inst, lane int, address, size uint64, r *region) {
	if r != nil {
		w.fail(in, "%s accesses %d bytes at %s, across its end (%d bytes)", w.who(lane), size, r.at(address), r.hi-r.lo)
		return
	}
	place := w.group.regions.nearest(address)
	if place == "" {
		place = fmt.Sprintf("at 0x%x", address)
	}
	w.fail(in, "%s accesses %d bytes outside of all memory, %s", w.who(lane), size, place)
}

// nearest says where from a region an address is that misses it by little; "" if none is near.
func (rs regions) nearest(address uint64) string {
	const little = 1 << 20
	best, text := uint64(little), ""
	for i := range rs {
		r := &rs[i]
		if d := address - r.hi; address >= r.hi && d < best {
			best, text = d, fmt.Sprintf("%d bytes after the end of %s (%d bytes)", d, r.label, r.hi-r.lo)
		}
		if d := r.lo - address; address < r.lo && d < best {
			best, text = d, fmt.Sprintf("%d bytes before %s", d, r.label)
		}
	}
	return text
}

// who names a lane in a report.
func (w *wave) who(lane int) string {
	g := w.group
	if lane < 0 {
		return fmt.Sprintf("work-group %v, wave %d", g.id, w.id)
	}
	return fmt.Sprintf("work-group %v, wave %d, lane %d", g.id, w.id, lane)
}
