package emu

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// The memory sanitizer. It reports
//   - an access of global memory that no buffer of the launch allows: outside of all
//     of them, across the end of one, a write to one that is to be read, a read of
//     one that is to be written where the launch has not written it;
//   - an atomic that is not aligned to its size. Of loads and stores the unaligned
//     access mode, which the device's runtime sets, asks nothing, and LLVM counts on it:
//     it makes one store of 4 bytes of two neighbouring ones of 2.
//
// The kernel goes on after a report: where there is memory it is used, elsewhere
// reads give poison and writes are lost. An access outside of LDS or scratch memory
// ends a launch with and without the sanitizer.
type memorySanitizer struct {
	reports *collector
	buffers []Buffer // by address; nil: all memory
	// outputs are what has been written of buffers that are to be written: by buffer, a
	// bit for each byte. What a launch has written it may read.
	outputs [][]atomic.Uint64
}

func newMemorySanitizer(reports *collector, s *Sanitize) *memorySanitizer {
	m := &memorySanitizer{reports: reports, buffers: sortedBuffers(s.Buffers)}
	for _, b := range m.buffers {
		var bits []atomic.Uint64
		if b.Mode == ModeWrite {
			bits = make([]atomic.Uint64, (b.Bytes+63)/64)
		}
		m.outputs = append(m.outputs, bits)
	}
	return m
}

func sortedBuffers(list []Buffer) []Buffer {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Buffer) int { return cmp.Compare(a.Address, b.Address) })
	return list
}

func (m *memorySanitizer) watch(*group) watcher { return &memoryWatcher{memorySanitizer: m} }

func (m *memorySanitizer) finish(bool) {}

type memoryWatcher struct {
	blind
	*memorySanitizer
	at   int
	near int // index of the buffer that allowed the last access
}

func (m *memoryWatcher) before(_ *wave, at int) { m.at = at }

func (m *memoryWatcher) access(w *wave, _ *Inst, lane int, address, size uint64, kind accessKind) {
	if kind == accessAtomic && address%size != 0 {
		m.reports.report(CheckMemory, "misaligned", w, m.at, lane, address, "%d bytes %s, whose address is no multiple of %d", size, m.place(w, address), size)
	}
	mode := ModeWrite
	if kind == accessRead {
		mode = ModeRead
	}
	if m.near < len(m.buffers) && m.allows(m.near, address, size, mode) {
		return
	}
	for i := range m.buffers {
		if m.allows(i, address, size, mode) {
			m.near = i
			return
		}
	}
	if m.private(w, address, size, mode) {
		return
	}
	what := map[accessKind]string{accessRead: "reads", accessWrite: "writes", accessAtomic: "changes"}[kind]
	b := m.holds(address)
	switch {
	case b == nil:
		m.reports.report(CheckMemory, "out of bounds", w, m.at, lane, address, "%s %d bytes %s", what, size, m.place(w, address))
	case size > b.Address+b.Bytes-address:
		m.reports.report(CheckMemory, "out of bounds", w, m.at, lane, address, "%s %d bytes at %s, across its end (%d bytes)", what, size, b.at(address), b.Bytes)
	case mode == ModeWrite:
		m.reports.report(CheckMemory, "write of an input", w, m.at, lane, address, "%s %d bytes at %s, which is only to be read", what, size, b.at(address))
	default:
		m.reports.report(CheckMemory, "read of an output", w, m.at, lane, address, "%s %d bytes at %s, which is only to be written, before it has been", what, size, b.at(address))
	}
}

func (b *Buffer) holds(address uint64) bool { return address-b.Address < b.Bytes }

// allows tells whether a buffer allows an access, and notes what is written of one
// that is to be written.
func (m *memorySanitizer) allows(i int, address, size uint64, mode Mode) bool {
	b := &m.buffers[i]
	if !b.holds(address) || size > b.Bytes-(address-b.Address) {
		return false
	}
	if b.Mode != ModeWrite {
		return b.Mode&mode != 0
	}
	all := true
	for at := address - b.Address; size > 0; {
		n := min(size, 64-at%64)
		bits := ^uint64(0) >> (64 - n) << (at % 64)
		word := &m.outputs[i][at/64]
		if mode == ModeWrite {
			if word.Load()&bits != bits {
				word.Or(bits)
			}
		} else {
			all = all && word.Load()&bits == bits
		}
		at, size = at+n, size-n
	}
	return all
}

func (b *Buffer) at(address uint64) string { return fmt.Sprintf("%s+%d", b.Label, address-b.Address) }

// private tells whether an access is one of arguments, packet or code, or, with no
// list of buffers, of any memory of the launch.
func (m *memorySanitizer) private(w *wave, address, size uint64, mode Mode) bool {
	g := w.group
	r := g.regions.find(address)
	if r == nil || size > r.hi-address || r.readOnly && mode == ModeWrite {
		return false
	}
	return m.buffers == nil || r.lo == g.kernarg || r.lo == g.launch.dispatch ||
		slices.ContainsFunc(g.k.image, func(code region) bool { return r.lo == code.lo })
}

// holds finds the longest buffer that has the first byte of an access.
func (m *memorySanitizer) holds(address uint64) *Buffer {
	var found *Buffer
	for i := range m.buffers {
		if b := &m.buffers[i]; b.holds(address) && (found == nil || found.Bytes < b.Bytes) {
			found = b
		}
	}
	return found
}

// place says where an address is: in a buffer, near one, or else as a number. Numbers
// change from run to run, as the memory is that of the host.
func (m *memorySanitizer) place(w *wave, address uint64) string {
	if b := m.holds(address); b != nil {
		return "at " + b.at(address)
	}
	const far = 1 << 20
	best, text := uint64(far), ""
	for i := range m.buffers {
		b := &m.buffers[i]
		if d := address - (b.Address + b.Bytes); address >= b.Address+b.Bytes && d < best {
			best, text = d, fmt.Sprintf("%d bytes after the end of %s (%d bytes)", d, b.Label, b.Bytes)
		}
		if d := b.Address - address; address < b.Address && d < best {
			best, text = d, fmt.Sprintf("%d bytes before %s", d, b.Label)
		}
	}
	r := w.group.regions.find(address)
	switch {
	case r != nil && text == "":
		return "outside of all buffers, at " + r.at(address)
	case r != nil:
		return text + ", at " + r.at(address)
	case text == "" && m.buffers == nil:
		text = w.group.regions.nearest(address)
	}
	if text == "" {
		return fmt.Sprintf("at 0x%x, outside of all buffers", address)
	}
	return text
}
