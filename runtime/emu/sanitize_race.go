package emu

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

// The race sanitizer. It reports
//   - "lds race": two waves of a group access a byte of LDS between two barriers, and
//     one of them writes it. A wave's own accesses are in order; atomics race only
//     with accesses that are none;
//   - "groups write": two groups leave different values in a byte of global memory;
//   - "group reads what another writes": a group reads a byte of global memory that
//     another group of the launch writes.
//
// The last two concern plain accesses before the group's first acquire (buffer_inv
// sc1): those of two groups cannot be ordered by anything, whatever order the groups
// happened to run in, so there are no false alarms. What a group does after an
// acquire, as the last block of a reduction does, is not checked. Loads and stores
// with sc0 or sc1 set by an atomic access of the source are taken for atomics.
// Memory that the launch's buffers say is only read is not looked at.
type raceSanitizer struct {
	reports *collector
	shared  []Buffer // that the launch writes; nil: all memory

	mu     sync.Mutex
	writes map[uint64]*writtenPage // by address / racePageBytes
	reads  map[uint64]*readPage
}

const racePageBytes = 1 << 12

// by is who accessed a byte: group is its index + 1, at the instruction's.
type by struct {
	group, at int32
	wave      uint8
	lane      int8
}

// writtenPage is what groups wrote to some bytes of global memory: the group with the
// lowest index of those that wrote the byte, if they all wrote the same. Else more
// has an entry, with the same for each value.
type writtenPage struct {
	first [racePageBytes]by
	value [racePageBytes]byte
	more  map[int][]byteWrite
}

type byteWrite struct {
	by
	value byte
}

// readPage is who read some bytes: the two groups with the lowest indexes.
type readPage [racePageBytes][2]by

// groupPage is what one group did with some bytes: the last write and the first read
// of each.
type groupPage struct {
	wrote, read [racePageBytes / 64]uint64 // bytes that have an entry, as bits
	value       [racePageBytes]byte
	writes      [racePageBytes]by
	reads       [racePageBytes]by
}

func newRaceSanitizer(reports *collector, s *Sanitize) *raceSanitizer {
	r := &raceSanitizer{reports: reports, writes: map[uint64]*writtenPage{}, reads: map[uint64]*readPage{}}
	if s.Buffers != nil {
		r.shared = []Buffer{}
		for _, b := range sortedBuffers(s.Buffers) {
			if b.Mode&ModeWrite != 0 {
				r.shared = append(r.shared, b)
			}
		}
	}
	return r
}

func (r *raceSanitizer) watch(g *group) watcher {
	return &raceWatcher{raceSanitizer: r, bytes: make([]ldsByte, len(g.lds)), pages: map[uint64]*groupPage{}}
}

// ldsByte is who accessed a byte of LDS since the last barrier.
type ldsByte struct {
	readers, atomics uint16 // waves, as bits
	writer           uint8  // wave + 1
	readAt, writeAt  int32  // instructions; writeAt is the atomic's if there is no writer
}

type raceWatcher struct {
	blind
	*raceSanitizer
	at     int
	bytes  []ldsByte // of LDS
	lo, hi uint32    // where bytes has entries

	acquired bool
	words    [Lanes]int // of the data that the instruction has stored
	near     *Buffer
	pages    map[uint64]*groupPage // by address / racePageBytes
	spare    []*groupPage
	nearPage *groupPage
	nearAt   uint64 // of nearPage
}

func (x *raceWatcher) start(*group) {
	x.barrier(nil)
	x.acquired = false
}

func (x *raceWatcher) before(w *wave, at int) {
	x.at = at
	in := w.group.k.insts[at]
	if w.group.k.uses[at].class == classStore {
		clear(x.words[:])
	}
	if in.Op == "buffer_inv" {
		if _, ok := in.mod("sc1"); ok {
			x.acquired = true
		}
	}
}

func (x *raceWatcher) barrier(*group) {
	if x.lo < x.hi {
		clear(x.bytes[x.lo:x.hi])
	}
	x.lo, x.hi = uint32(len(x.bytes)), 0
}

func (x *raceWatcher) lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	end := uint64(offset) + uint64(size)
	if end > uint64(len(x.bytes)) {
		return // ends the launch
	}
	x.lo, x.hi = min(x.lo, offset), max(x.hi, uint32(end))
	self := uint16(1) << w.id
	for i := offset; i < uint32(end); i++ {
		b := &x.bytes[i]
		other, what := -1, ""
		var at int32
		switch {
		case b.writer != 0 && int(b.writer) != w.id+1:
			other, at, what = int(b.writer)-1, b.writeAt, "wrote"
		case kind != accessAtomic && b.atomics&^self != 0:
			other, at, what = bits.TrailingZeros16(b.atomics&^self), b.writeAt, "changed"
		case kind != accessRead && b.readers&^self != 0:
			other, at, what = bits.TrailingZeros16(b.readers&^self), b.readAt, "read"
		}
		if other >= 0 {
			does := map[accessKind]string{accessRead: "reads", accessWrite: "writes", accessAtomic: "changes"}[kind]
			k := w.group.k
			x.reports.report(CheckRace, "lds race", w, x.at, lane, uint64(i), "%s byte %d of LDS, which wave %d %s since the last barrier, at +0x%x: %s",
				does, i, other, what, k.insts[at].Offset, k.insts[at].Text)
		}
		switch kind {
		case accessRead:
			b.readers |= self
			b.readAt = int32(x.at)
		case accessWrite:
			b.writer, b.writeAt = uint8(w.id+1), int32(x.at)
		case accessAtomic:
			b.atomics |= self
			if b.writer == 0 {
				b.writeAt = int32(x.at)
			}
		}
	}
}

func (x *raceWatcher) access(w *wave, in *Inst, lane int, address, size uint64, kind accessKind) {
	word := 0
	if lane >= 0 && kind == accessWrite {
		word = x.words[lane]
		x.words[lane] += int(size+3) / 4
	}
	if x.acquired || kind == accessAtomic || coherent(in) || !x.tracked(address) {
		return
	}
	who := by{int32(w.group.index() + 1), int32(x.at), uint8(w.id), int8(lane)}
	u := &w.group.k.uses[x.at]
	for i := range size {
		p, at := x.page(address + i)
		bit := uint64(1) << (at % 64)
		if kind == accessRead {
			if p.read[at/64]&bit == 0 {
				p.read[at/64] |= bit
				p.reads[at] = who
			}
			continue
		}
		if n := word + int(i/4); n < len(u.data) {
			s := u.data[n]
			p.wrote[at/64] |= bit
			p.writes[at] = who
			p.value[at] = byte(w.v[s.reg][lane&(Lanes-1)] >> dataShift(in) >> (8 * (i % 4)))
		}
	}
}

// page is the group's page of an address, and the place in it.
func (x *raceWatcher) page(address uint64) (*groupPage, uint64) {
	number, at := address/racePageBytes, address%racePageBytes
	if x.nearPage != nil && x.nearAt == number {
		return x.nearPage, at
	}
	p := x.pages[number]
	if p == nil {
		if n := len(x.spare); n > 0 {
			p, x.spare = x.spare[n-1], x.spare[:n-1]
		} else {
			p = &groupPage{}
		}
		x.pages[number] = p
	}
	x.nearPage, x.nearAt = p, number
	return p, at
}

// coherent tells whether an access goes past the caches that are not coherent, as
// LLVM makes atomic loads and stores of the scopes agent and system do.
func coherent(in *Inst) bool {
	_, sc1 := in.mod("sc1")
	return sc1
}

// tracked tells whether the launch may write what is at an address.
func (x *raceWatcher) tracked(address uint64) bool {
	if x.shared == nil || x.near != nil && x.near.holds(address) {
		return true
	}
	for i := range x.shared {
		if x.shared[i].holds(address) {
			x.near = &x.shared[i]
			return true
		}
	}
	return false
}

// end adds what the group did to what others did. The outcome does not depend on
// the order of the groups.
func (x *raceWatcher) end(*group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(x.pages)) {
		p := x.pages[number]
		for i := range p.wrote {
			for m := p.wrote[i]; m != 0; m &= m - 1 {
				at := 64*i + bits.TrailingZeros64(m)
				page(x.writes, number).add(at, byteWrite{p.writes[at], p.value[at]})
			}
			for m := p.read[i]; m != 0; m &= m - 1 {
				at := 64*i + bits.TrailingZeros64(m)
				page(x.reads, number).add(at, p.reads[at])
			}
		}
		p.wrote, p.read = [racePageBytes / 64]uint64{}, [racePageBytes / 64]uint64{}
		x.spare = append(x.spare, p)
	}
	clear(x.pages)
	x.nearPage = nil
}

// page is an entry of a map, a new one if need be.
func page[P any](pages map[uint64]*P, number uint64) *P {
	p := pages[number]
	if p == nil {
		p = new(P)
		pages[number] = p
	}
	return p
}

func (p *writtenPage) add(at int, w byteWrite) {
	first := &p.first[at]
	if more, ok := p.more[at]; ok {
		i := slices.IndexFunc(more, func(o byteWrite) bool { return o.value == w.value })
		switch {
		case i < 0:
			p.more[at] = append(more, w)
		case w.group < more[i].group:
			more[i] = w
		}
		return
	}
	switch {
	case first.group == 0:
		*first, p.value[at] = w.by, w.value
	case p.value[at] != w.value:
		if p.more == nil {
			p.more = map[int][]byteWrite{}
		}
		p.more[at] = []byteWrite{{*first, p.value[at]}, w}
	case w.group < first.group:
		*first = w.by
	}
}

// lowest are the writers of a byte by index, one for each value.
func (p *writtenPage) lowest(at int) []byteWrite {
	if more, ok := p.more[at]; ok {
		slices.SortFunc(more, func(a, b byteWrite) int { return cmp.Compare(a.group, b.group) })
		return more
	}
	return []byteWrite{{p.first[at], p.value[at]}}
}

func (p *readPage) add(at int, r by) {
	two := &p[at]
	switch {
	case two[0].group == 0 || r.group < two[0].group:
		two[0], two[1] = r, two[0]
	case two[1].group == 0 || r.group < two[1].group:
		two[1] = r
	}
}

// finish compares what the groups did.
func (r *raceSanitizer) finish(bool) {
	for number, p := range r.writes {
		for at := range p.more {
			list, address := p.lowest(at), number*racePageBytes+uint64(at)
			r.reports.reportAt(CheckRace, "groups write", r.site(list[1].by), address, "writes 0x%02x to %s, and %s writes 0x%02x",
				list[1].value, r.named(address), r.who(list[0].by), list[0].value)
		}
		readers := r.reads[number]
		if readers == nil {
			continue
		}
		for at := range readers {
			if p.first[at].group == 0 {
				continue
			}
			first, address := p.lowest(at)[0].by, number*racePageBytes+uint64(at)
			for _, reader := range readers[at] {
				if reader.group != 0 && reader.group != first.group {
					r.reports.reportAt(CheckRace, "group reads what another writes", r.site(reader), address, "reads %s, which %s writes, with nothing that orders the groups",
						r.named(address), r.who(first))
					break
				}
			}
		}
	}
}

func (r *raceSanitizer) site(b by) site {
	g := int(b.group - 1)
	x, y := r.reports.l.Grid[0], r.reports.l.Grid[1]
	return site{int64(g), [3]int{g % x, g / x % y, g / (x * y)}, int(b.wave), int(b.at), int(b.lane)}
}

// who names an access.
func (r *raceSanitizer) who(b by) string {
	s := r.site(b)
	return fmt.Sprintf("work-group %v, wave %d at %s", s.id, s.wave, r.reports.where(s.at))
}

// named is where an address is: in a buffer, or else a number.
func (r *raceSanitizer) named(address uint64) string {
	for i := range r.shared {
		if b := &r.shared[i]; b.holds(address) {
			return b.at(address)
		}
	}
	return fmt.Sprintf("0x%x", address)
}

// where names an instruction.
func (c *collector) where(at int) string {
	in := c.k.insts[at]
	return fmt.Sprintf("+0x%x: %s", in.Offset, strings.TrimSpace(in.Text))
}
