package emu

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Shadow knows which bits of a device's memory are undefined, from launch to launch:
// the caller keeps one for each arena. All is defined at first. Its methods may be
// called at any time; launches and the host must agree on who is at the memory.
type Shadow struct {
	mu    sync.RWMutex
	pages map[uint64]*shadowPage // by address / shadowPageBytes; none: all defined
	// made counts the pages, so that who remembers that there is none finds out.
	made atomic.Int64
}

const shadowPageBytes = 1 << 12

// shadowPage has a bit set for each that is undefined.
type shadowPage [shadowPageBytes]byte

// Undefine says that what n bytes hold means nothing: after an allocation.
func (s *Shadow) Undefine(address, n uint64) { s.fill(address, n, 0xff) }

// Define says that n bytes have been written from outside of kernels.
func (s *Shadow) Define(address, n uint64) { s.fill(address, n, 0) }

// Undefined finds the first of n bytes with an undefined bit.
func (s *Shadow) Undefined(address, n uint64) (at uint64, found bool) {
	s.each(address, n, false, func(at2 uint64, b []byte) bool {
		i := slices.IndexFunc(b, func(x byte) bool { return x != 0 })
		if i >= 0 {
			at, found = at2+uint64(i), true
		}
		return !found
	})
	return at, found
}

// Result is the report of a host that reads b while some of it is undefined. label names
// b; block is the memory that it lies in, from whose start the report counts.
func (s *Shadow) Result(b, block []byte, label string) (Report, bool) {
	if len(b) == 0 {
		return Report{}, false
	}
	at, found := s.Undefined(Address(b), uint64(len(b)))
	if !found {
		return Report{}, false
	}
	return Report{
		Check: CheckUninit, Kind: "undefined result", Lane: -1, Address: at, Count: 1,
		Detail: fmt.Sprintf("the host reads byte %d of %s, which is undefined", at-Address(block), label),
	}, true
}

func (s *Shadow) fill(address, n uint64, x byte) {
	s.each(address, n, x != 0, func(_ uint64, b []byte) bool {
		for i := range b {
			b[i] = x
		}
		return true
	})
}

// each calls f for the parts of n bytes that have pages; create makes those that
// are missing.
func (s *Shadow) each(address, n uint64, create bool, f func(address uint64, b []byte) bool) {
	for n > 0 {
		at := address % shadowPageBytes
		part := min(n, shadowPageBytes-at)
		p := s.page(address/shadowPageBytes, create)
		if p != nil && !f(address, p[at:at+part]) {
			return
		}
		address, n = address+part, n-part
	}
}

func (s *Shadow) page(number uint64, create bool) *shadowPage {
	s.mu.RLock()
	p := s.pages[number]
	s.mu.RUnlock()
	if p != nil || !create {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[uint64]*shadowPage{}
	}
	if p = s.pages[number]; p == nil {
		p = &shadowPage{}
		s.pages[number] = p
		s.made.Add(1)
	}
	return p
}

// shadowView remembers the page that it used last.
type shadowView struct {
	*Shadow
	near   *shadowPage
	number uint64
	made   int64 // of Shadow, when near was looked up; -1 at first
}

// page is nil if all bytes of the page are defined and create is not asked for.
func (v *shadowView) page(number uint64, create bool) *shadowPage {
	if v.number == number && (v.near != nil || !create && v.made == v.Shadow.made.Load()) {
		return v.near
	}
	v.made = v.Shadow.made.Load()
	v.near, v.number = v.Shadow.page(number, create), number
	return v.near
}

// word reads up to 4 bytes.
func (v *shadowView) word(address, n uint64) uint32 {
	x := uint32(0)
	for i := range n {
		a := address + i
		if p := v.page(a/shadowPageBytes, false); p != nil {
			x |= uint32(p[a%shadowPageBytes]) << (8 * i)
		}
	}
	return x
}

// setWord writes up to 4 bytes.
func (v *shadowView) setWord(address, n uint64, x uint32) {
	for i := range n {
		a, b := address+i, byte(x>>(8*i))
		if p := v.page(a/shadowPageBytes, b != 0); p != nil {
			p[a%shadowPageBytes] = b
		}
	}
}
