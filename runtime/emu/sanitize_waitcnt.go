package emu

import "strings"

// The waitcnt sanitizer: whether the code waits, with s_waitcnt, for what is under
// way. The emulator itself has nothing to wait for. It reports
//   - "pending register": a register is read or written that a load is still to
//     write. (The chips read what a store writes when it is issued.) A load may be
//     followed by another one into the same register that is in order with it;
//   - "pending lds at barrier": a wave reaches s_barrier with LDS accesses under way
//     (exchanges between lanes touch no memory, and may be);
//   - "pending lds": LDS is accessed where a load into LDS of any wave is to write;
//   - "release too early": an atomic, or a store past the caches, with a buffer_wbl2
//     under way, which is there to make earlier stores visible first;
//   - "acquire too early": a buffer_inv with an atomic or a load past the caches under
//     way, which is there to come before.
//
// The counters (MI300 ISA, "Data dependency resolution"): vmcnt counts vector memory
// accesses, loads and stores alike, which come back in order; lgkmcnt counts accesses
// of LDS, in order among themselves, and of the scalar unit, in any order. An access of
// the flat address space counts on both and is in order with nothing.
type waitSanitizer struct{ reports *collector }

func (s *waitSanitizer) watch(g *group) watcher {
	x := &waitWatcher{waitSanitizer: s}
	for range g.waves {
		x.waves = append(x.waves, &scoreboard{})
	}
	return x
}

func (s *waitSanitizer) finish(bool) {}

// pending is an access under way.
type pending struct {
	at     int // the instruction
	order  accessOrder
	vm     bool // counted by vmcnt
	lgkm   bool
	lds    bool   // it may be of LDS: flat accesses too
	writes []span // registers
	lo, hi uint32 // of LDS, what a load writes to it
}

// accessOrder is what an access is in order with.
type accessOrder uint8

const (
	orderVector accessOrder = iota
	orderLDS
	orderNone
)

// scoreboard is a wave's accesses under way, the oldest first.
type scoreboard struct{ list []pending }

type waitWatcher struct {
	blind
	*waitSanitizer
	waves []*scoreboard
	at    int
}

func (x *waitWatcher) start(*group) {
	for _, b := range x.waves {
		b.list = b.list[:0]
	}
}

func (x *waitWatcher) before(w *wave, at int) {
	x.at = at
	k := w.group.k
	in, use, b := k.insts[at], &k.uses[at], x.waves[w.id]
	if len(b.list) > 0 {
		x.registers(w, use, b)
	}
	switch {
	case use.class == classWait:
		b.wait(in)
		return
	case use.class == classBarrier:
		for _, p := range b.list {
			if p.lds {
				x.reports.report(CheckWaitcnt, "pending lds at barrier", w, at, -1, 0, "%s is under way, and other waves go on", x.reports.where(p.at))
				break
			}
		}
		return
	case in.Op == "buffer_inv":
		x.cache(w, b, "acquire too early", func(p pending) bool { return x.isAtomic(k, p.at) })
	case use.class == classAtomic || use.class == classStore && coherent(in):
		x.cache(w, b, "release too early", func(p pending) bool { return k.insts[p.at].Op == "buffer_wbl2" })
	}
	if p, ok := x.issued(in, use); ok {
		b.list = append(b.list, p)
	}
}

// cache reports that something is under way that has to be over.
func (x *waitWatcher) cache(w *wave, b *scoreboard, kind string, bad func(pending) bool) {
	for _, p := range b.list {
		if bad(p) {
			x.reports.report(CheckWaitcnt, kind, w, x.at, -1, 0, "%s is under way", x.reports.where(p.at))
			return
		}
	}
}

// isAtomic tells whether an instruction may be the one that an acquire belongs to.
func (x *waitWatcher) isAtomic(k *Kernel, at int) bool {
	switch k.uses[at].class {
	case classAtomic:
		return true
	case classLoad:
		return coherent(k.insts[at])
	}
	return false
}

// issued is the access that an instruction begins.
func (x *waitWatcher) issued(in *Inst, use *uses) (pending, bool) {
	p := pending{at: x.at, writes: use.writes}
	switch {
	case in.has("flat_"):
		p.order, p.vm, p.lgkm, p.lds = orderNone, true, true, true
	case use.class.vmem():
		p.order, p.vm = orderVector, true
	case use.class == classLDS || use.class == classPermute:
		p.order, p.lgkm, p.lds = orderLDS, true, use.class == classLDS
	case use.class == classSMEM && strings.Contains(in.Op, "load"):
		p.order, p.lgkm = orderNone, true
	default:
		return p, false
	}
	return p, true
}

// registers looks at the registers of an instruction.
func (x *waitWatcher) registers(w *wave, use *uses, b *scoreboard) {
	order := orderNone
	switch {
	case use.class.vmem():
		order = orderVector
	case use.class == classLDS || use.class == classPermute:
		order = orderLDS
	}
	for _, p := range b.list {
		if len(p.writes) == 0 {
			continue
		}
		for _, d := range p.writes {
			for _, list := range [][]span{use.reads, use.kept} {
				for _, s := range list {
					if s = w.shifted(s); s.overlaps(d) {
						x.reports.report(CheckWaitcnt, "pending register", w, x.at, -1, 0, "reads %s, which %s is to write", d.name(), x.reports.where(p.at))
					}
				}
			}
			for _, s := range use.writes {
				if s = w.shifted(s); s.overlaps(d) && (order == orderNone || order != p.order) {
					x.reports.report(CheckWaitcnt, "pending register", w, x.at, -1, 0, "writes %s, which %s is to write", d.name(), x.reports.where(p.at))
				}
			}
		}
	}
}

func (s span) overlaps(o span) bool {
	return s.vector == o.vector && s.reg < o.reg+o.n && o.reg < s.reg+s.n
}

// wait does what s_waitcnt promises.
func (b *scoreboard) wait(in *Inst) {
	for _, o := range in.Args {
		switch o.Text {
		case "vmcnt":
			b.retire(int(o.Int), orderVector, func(p *pending) *bool { return &p.vm })
		case "lgkmcnt":
			b.retire(int(o.Int), orderLDS, func(p *pending) *bool { return &p.lgkm })
		}
	}
}

// retire takes off the list what must be over when a counter is down to most: all of
// it for 0; else the oldest of those in order, on the assumption that those in no
// order are over first.
func (b *scoreboard) retire(most int, order accessOrder, counted func(*pending) *bool) {
	ordered := 0
	for i := range b.list {
		if p := &b.list[i]; *counted(p) && p.order == order {
			ordered++
		}
	}
	over := ordered - most
	keep := b.list[:0]
	for _, p := range b.list {
		c := counted(&p)
		switch {
		case !*c:
		case most == 0:
			*c = false
		case p.order == order && over > 0:
			*c = false
			over--
		}
		// An access of the flat address space is over when both counters say so.
		if p.vm || p.lgkm {
			keep = append(keep, p)
		}
	}
	b.list = keep
}

// lds notes what a load is to write to LDS, and looks whether an access meets such
// bytes.
func (x *waitWatcher) lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	end := offset + size
	if w.group.k.uses[x.at].class == classLoadLDS {
		b := x.waves[w.id]
		p := &b.list[len(b.list)-1]
		if p.hi == 0 {
			p.lo = offset
		}
		p.lo, p.hi = min(p.lo, offset), max(p.hi, end)
		return
	}
	for id, b := range x.waves {
		for _, p := range b.list {
			if p.hi > offset && p.lo < end {
				x.reports.report(CheckWaitcnt, "pending lds", w, x.at, lane, uint64(offset), "accesses %d bytes at offset %d of LDS, which %s of wave %d is to write", size, offset, x.reports.where(p.at), id)
			}
		}
	}
}
