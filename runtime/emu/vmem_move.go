package emu

import (
	"sync/atomic"
	"unsafe"
)

// How data moves between memory and vector registers, by the bytes of a lane: from
// and to any addresses in a block of memory (gather, scatter), and if the lanes
// follow one another there (unpack, pack).

// mover is the loops for a width. v has a register for each word.
type mover struct {
	words   int
	gather  func(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64)
	scatter func(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64)
	unpack  func(v []Vec, p unsafe.Pointer)
	pack    func(v []Vec, p unsafe.Pointer)
}

// movers are those of each width in bytes.
var movers = map[uint64]mover{
	1:  {1, gather8, scatter8, unpack8, pack8},
	2:  {1, gather16, scatter16, unpack16, pack16},
	4:  {1, gather32, scatter32, unpack32, pack32},
	8:  {2, gather64, scatter64, unpack64, pack64},
	12: {3, gather96, scatter96, unpack96, pack96},
	16: {4, gather128, scatter128, unpack128, pack128},
}

// coherentMovers are for accesses that other work-groups must see in order (sc0, sc1):
// the work-groups are goroutines, to which only the operations of sync/atomic say so.
// Code that LLVM compiles uses them for atomic loads and stores, of one or two words.
var coherentMovers = map[uint64]mover{
	4: {1, gather32, scatterAtomic32, nil, nil},
	8: {2, gather64, scatterAtomic64, nil, nil},
}

func gather8(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		d[i] = uint32(*(*uint8)(unsafe.Add(base, offset[i])))
	}
}

func gather16(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		d[i] = uint32(*(*uint16)(unsafe.Add(base, offset[i])))
	}
}

// gather32 loads words atomically if they are aligned, which costs little: LLVM begins
// a loop of compare and swap with a load that is not marked as anything.
func gather32(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		if p := (*uint32)(unsafe.Add(base, offset[i])); uintptr(unsafe.Pointer(p))%4 == 0 {
			d[i] = atomic.LoadUint32(p)
		} else {
			d[i] = *p
		}
	}
}

// gather64 does the same for two words.
func gather64(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := (*[2]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*uint64)(unsafe.Add(base, offset[i]))
		x := uint64(0)
		if uintptr(unsafe.Pointer(p))%8 == 0 {
			x = atomic.LoadUint64(p)
		} else {
			x = *p
		}
		d[0][i], d[1][i] = uint32(x), uint32(x>>32)
	}
}

func gather96(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := (*[3]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*[3]uint32)(unsafe.Add(base, offset[i]))
		d[0][i], d[1][i], d[2][i] = p[0], p[1], p[2]
	}
}

func gather128(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	d := (*[4]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*[4]uint32)(unsafe.Add(base, offset[i]))
		d[0][i], d[1][i], d[2][i], d[3][i] = p[0], p[1], p[2], p[3]
	}
}

func scatter8(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		*(*uint8)(unsafe.Add(base, offset[i])) = uint8(s[i])
	}
}

func scatter16(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		*(*uint16)(unsafe.Add(base, offset[i])) = uint16(s[i])
	}
}

func scatter32(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := &v[0]
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		*(*uint32)(unsafe.Add(base, offset[i])) = s[i]
	}
}

func scatter64(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := (*[2]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*[2]uint32)(unsafe.Add(base, offset[i]))
		p[0], p[1] = s[0][i], s[1][i]
	}
}

func scatter96(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := (*[3]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*[3]uint32)(unsafe.Add(base, offset[i]))
		p[0], p[1], p[2] = s[0][i], s[1][i], s[2][i]
	}
}

func scatter128(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	s := (*[4]Vec)(v)
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		p := (*[4]uint32)(unsafe.Add(base, offset[i]))
		p[0], p[1], p[2], p[3] = s[0][i], s[1][i], s[2][i], s[3][i]
	}
}

func unpack8(v []Vec, p unsafe.Pointer) {
	d := &v[0]
	for i, x := range (*[Lanes]uint8)(p) {
		d[i] = uint32(x)
	}
}

func unpack16(v []Vec, p unsafe.Pointer) {
	d := &v[0]
	for i, x := range (*[Lanes]uint16)(p) {
		d[i] = uint32(x)
	}
}

func unpack32(v []Vec, p unsafe.Pointer) { v[0] = *(*Vec)(p) }

func unpack64(v []Vec, p unsafe.Pointer) {
	d, s := (*[2]Vec)(v), (*[Lanes][2]uint32)(p)
	for i := range s {
		d[0][i], d[1][i] = s[i][0], s[i][1]
	}
}

func unpack96(v []Vec, p unsafe.Pointer) {
	d, s := (*[3]Vec)(v), (*[Lanes][3]uint32)(p)
	for i := range s {
		d[0][i], d[1][i], d[2][i] = s[i][0], s[i][1], s[i][2]
	}
}

func unpack128(v []Vec, p unsafe.Pointer) {
	d, s := (*[4]Vec)(v), (*[Lanes][4]uint32)(p)
	for i := range s {
		d[0][i], d[1][i], d[2][i], d[3][i] = s[i][0], s[i][1], s[i][2], s[i][3]
	}
}

func pack8(v []Vec, p unsafe.Pointer) {
	d := (*[Lanes]uint8)(p)
	for i, x := range &v[0] {
		d[i] = uint8(x)
	}
}

func pack16(v []Vec, p unsafe.Pointer) {
	d := (*[Lanes]uint16)(p)
	for i, x := range &v[0] {
		d[i] = uint16(x)
	}
}

func pack32(v []Vec, p unsafe.Pointer) { *(*Vec)(p) = v[0] }

func pack64(v []Vec, p unsafe.Pointer) {
	s, d := (*[2]Vec)(v), (*[Lanes][2]uint32)(p)
	for i := range d {
		d[i] = [2]uint32{s[0][i], s[1][i]}
	}
}

func pack96(v []Vec, p unsafe.Pointer) {
	s, d := (*[3]Vec)(v), (*[Lanes][3]uint32)(p)
	for i := range d {
		d[i] = [3]uint32{s[0][i], s[1][i], s[2][i]}
	}
}

func pack128(v []Vec, p unsafe.Pointer) {
	s, d := (*[4]Vec)(v), (*[Lanes][4]uint32)(p)
	for i := range d {
		d[i] = [4]uint32{s[0][i], s[1][i], s[2][i], s[3][i]}
	}
}

// scatterAtomic32 and 64 are atomic for aligned addresses. What is not aligned is not
// atomic on the device either.

func scatterAtomic32(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		if p := unsafe.Add(base, offset[i]); uintptr(p)%4 == 0 {
			atomic.StoreUint32((*uint32)(p), v[0][i])
		} else {
			scatter32(v, base, offset, 1<<i)
		}
	}
}

func scatterAtomic64(v []Vec, base unsafe.Pointer, offset *[Lanes]uint64, mask uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := lowest(m)
		if p := unsafe.Add(base, offset[i]); uintptr(p)%8 == 0 {
			atomic.StoreUint64((*uint64)(p), uint64(v[0][i])|uint64(v[1][i])<<32)
		} else {
			scatter64(v, base, offset, 1<<i)
		}
	}
}
