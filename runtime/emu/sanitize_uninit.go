package emu

import (
	"strings"
)

// The uninit sanitizer. It follows, bit by bit, what is undefined: registers, LDS and
// scratch memory when a group starts, and the buffers that the caller says hold
// nothing. Computing with it, moving and storing it is no defect: a lane may hold
// what nobody uses. It reports where it decides something:
//   - "undefined address": the address of a memory access, in a lane that is on;
//   - "undefined branch": SCC or VCC of a branch, the target of a jump;
//   - "undefined exec": what is written to EXEC.
//
// Storing makes memory undefined, which lasts in the launch's Shadow: another launch
// that decides by it is reported, and the host asks Shadow.Undefined before it reads.
//
// A result is undefined as a whole if one of its sources has an undefined bit, in the
// lane. Exact are: moves, selects and exchanges between lanes, bit operations, shifts
// and extractions by defined amounts, halves of packed instructions, carries (they go
// up only), comparisons (a bit per lane) and matrix instructions (a row of A, a column
// of B; uninit_matrix.go). These rules stand in uninit_alu.go.
type uninitSanitizer struct {
	reports *collector
	shadow  *Shadow
}

func newUninitSanitizer(reports *collector, s *Sanitize) *uninitSanitizer {
	u := &uninitSanitizer{reports, s.Shadow}
	if u.shadow == nil {
		u.shadow = &Shadow{}
	}
	for _, b := range s.Buffers {
		if b.Undefined {
			u.shadow.Undefine(b.Address, b.Bytes)
		}
	}
	return u
}

func (u *uninitSanitizer) watch(g *group) watcher {
	x := &uninitWatcher{uninitSanitizer: u, memory: shadowView{Shadow: u.shadow, made: -1}, ldsBits: make([]byte, len(g.lds))}
	for _, w := range g.waves {
		x.waves = append(x.waves, &undefined{v: make([]Vec, len(w.v)), dirty: make([]bool, len(w.v)), scratch: make([]byte, len(w.scratch))})
	}
	x.lane.v = make([]Vec, len(g.waves[0].v))
	x.lane.group = g
	return x
}

func (u *uninitSanitizer) finish(bool) {}

// undefined has a bit set for each of a wave's that is undefined.
type undefined struct {
	v       []Vec
	dirty   []bool // of v: some bit may be set
	s       [numSGPRs]uint32
	scratch []byte
}

type uninitWatcher struct {
	blind
	*uninitSanitizer
	waves   []*undefined
	memory  shadowView
	ldsBits []byte

	at     int
	lane   wave         // executes instructions on undefined bits
	words  [Lanes]int   // of the instruction's registers that memory accesses are through with
	loaded [8]Vec       // what vector loads get
	scalar [16]uint32   // what scalar loads get
	n      int          // words of scalar
	source [4]Vec       // for uninit_alu.go
	moved  map[int]step // by instruction: what DPP does to the first source
}

func (x *uninitWatcher) start(g *group) {
	for i := range x.ldsBits {
		x.ldsBits[i] = 0xff
	}
	d := g.k.Meta.Descriptor
	for _, u := range x.waves {
		for r := range u.v {
			u.dirty[r] = true
			broadcast(&u.v[r], ^uint32(0))
		}
		u.dirty[0] = false // the work-item's ids
		u.v[0] = Vec{}
		for r := range u.s {
			u.s[r] = ^uint32(0)
		}
		n := d.UserSGPRs()
		for _, has := range d.WorkgroupIDs() {
			n += b2i(has)
		}
		clear(u.s[:min(n, regFlatScratch)])
		clear(u.s[regFlatScratch : regFlatScratch+2])
		clear(u.s[regEXEC : regEXEC+2])
		for j := range u.scratch {
			u.scratch[j] = 0xff
		}
	}
}

func (x *uninitWatcher) before(w *wave, at int) {
	x.at = at
	k := w.group.k
	in, use, u := k.insts[at], &k.uses[at], x.waves[w.id]
	switch use.class {
	case classLoad, classStore, classAtomic, classLoadLDS, classLDS, classSMEM:
		x.addresses(w, in, use, u)
		clear(x.words[:])
		x.n = 0
		if len(use.writes) > 0 && use.writes[0].vector {
			clear(x.loaded[:min(use.writes[0].n, len(x.loaded))])
		}
	case classBranch:
		x.branch(w, in, use, u)
		x.scalars(w, in, use, u)
	case classSALU:
		x.scalars(w, in, use, u)
	case classVALU, classMFMA, classPermute:
		x.vectors(w, in, use, u)
	}
	if covers(use.writes, regEXEC) || covers(use.writes, regEXEC+1) {
		if u.s[regEXEC]|u.s[regEXEC+1] != 0 {
			lane := firstLane(uint64(u.s[regEXEC]) | uint64(u.s[regEXEC+1])<<32)
			x.reports.report(CheckUninit, "undefined exec", w, at, lane, 0, "whether the lane is on follows from what is undefined")
			clear(u.s[regEXEC : regEXEC+2])
		}
	}
}

// addresses looks at the registers that a memory access takes its address from.
func (x *uninitWatcher) addresses(w *wave, in *Inst, use *uses, u *undefined) {
	for _, s := range use.reads {
		if isData(in, use.class, s.arg) {
			continue
		}
		if !s.vector {
			for r := s.reg; r < s.reg+s.n; r++ {
				if u.s[r] != 0 {
					x.reports.report(CheckUninit, "undefined address", w, x.at, -1, 0, "the address follows from s%d, which is undefined", r)
					u.s[r] = 0
				}
			}
			continue
		}
		for r := s.reg; r < s.reg+s.n; r++ {
			if !u.dirty[r] {
				continue
			}
			for m := w.exec(); m != 0; m &= m - 1 {
				if i := lowest(m); u.v[r][i] != 0 {
					x.reports.report(CheckUninit, "undefined address", w, x.at, i, 0, "the address follows from v%d, which is undefined", r)
					u.v[r][i] = 0
				}
			}
		}
	}
}

// branch looks at what decides whether a branch is taken.
func (x *uninitWatcher) branch(w *wave, in *Inst, use *uses, u *undefined) {
	for _, s := range use.reads {
		if s.reg == regVCC && w.vcc()&^(uint64(u.s[regVCC])|uint64(u.s[regVCC+1])<<32) != 0 {
			continue // a bit that is set decides alone
		}
		for r := s.reg; r < s.reg+s.n; r++ {
			if u.s[r] != 0 {
				x.reports.report(CheckUninit, "undefined branch", w, x.at, -1, 0, "the branch follows from %s, which is undefined", s.name())
				clear(u.s[s.reg : s.reg+s.n])
			}
		}
	}
}

func (x *uninitWatcher) after(w *wave, at int) {
	k := w.group.k
	in, use, u := k.insts[at], &k.uses[at], x.waves[w.id]
	switch use.class {
	case classSMEM:
		for _, s := range use.writes {
			copy(u.s[s.reg:s.reg+s.n], x.scalar[:])
		}
	case classLoad, classAtomic, classLDS:
		x.keepLoaded(w, in, use, u)
	}
}

// keepLoaded gives the registers of a load what its accesses found.
func (x *uninitWatcher) keepLoaded(w *wave, in *Inst, use *uses, u *undefined) {
	if len(use.writes) == 0 || !use.writes[0].vector {
		return
	}
	d := use.writes[0]
	if strings.Contains(in.Op, "_tr_") {
		x.transposed(d.n)
	}
	for j := range d.n {
		extendLoaded(in, &x.loaded[j])
		any := uint32(0)
		for m := w.exec(); m != 0; m &= m - 1 {
			i := lowest(m)
			u.v[d.reg+j][i] = x.loaded[j][i]
			any |= x.loaded[j][i]
		}
		u.dirty[d.reg+j] = u.dirty[d.reg+j] && w.exec() != fullMask || any != 0
	}
}

// transposed makes a load that exchanges data among 16 lanes undefined in all of
// them if it is in one.
func (x *uninitWatcher) transposed(n int) {
	for from := 0; from < Lanes; from += 16 {
		any := uint32(0)
		for j := range n {
			for i := from; i < from+16; i++ {
				any |= x.loaded[j][i]
			}
		}
		for j := range n {
			for i := from; i < from+16; i++ {
				x.loaded[j][i] = spread(any)
			}
		}
	}
}

// spread makes a word undefined as a whole.
func spread(x uint32) uint32 {
	if x != 0 {
		return ^uint32(0)
	}
	return 0
}

// extendLoaded does to undefined bits what a load of less than a word does to its
// data: sign extension, and the upper half of d16_hi.
func extendLoaded(in *Inst, v *Vec) {
	signed := strings.Contains(in.Op, "_sbyte") || strings.Contains(in.Op, "_sshort") || strings.Contains(in.Op, "read_i")
	hi, d16 := strings.HasSuffix(in.Op, "_d16_hi"), strings.Contains(in.Op, "_d16")
	if !signed && !hi {
		return
	}
	for i := range v {
		if signed {
			v[i] = spread(v[i])
		}
		if d16 {
			v[i] &= 0xffff
		}
		if hi {
			v[i] <<= 16
		}
	}
}

func (x *uninitWatcher) access(w *wave, in *Inst, lane int, address, size uint64, kind accessKind) {
	if lane < 0 {
		for ; size > 0 && x.n < len(x.scalar); x.n++ {
			x.scalar[x.n] = x.memory.word(address, 4)
			address, size = address+4, size-min(size, 4)
		}
		return
	}
	x.move(w, in, lane, size, kind,
		func(at, n uint64) uint32 { return x.memory.word(address+at, n) },
		func(at, n uint64, bits uint32) { x.memory.setWord(address+at, n, bits) })
}

func (x *uninitWatcher) lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	x.moveBytes(w, in, lane, x.ldsBits, uint64(offset), uint64(size), kind)
}

func (x *uninitWatcher) scratch(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	u := x.waves[w.id]
	each := len(u.scratch) / Lanes
	x.moveBytes(w, in, lane, u.scratch[lane*each:(lane+1)*each], uint64(offset), uint64(size), kind)
}

func (x *uninitWatcher) moveBytes(w *wave, in *Inst, lane int, bits []byte, offset, size uint64, kind accessKind) {
	if offset+size > uint64(len(bits)) {
		return // ends the launch
	}
	x.move(w, in, lane, size, kind,
		func(at, n uint64) uint32 {
			word := uint32(0)
			for i := range n {
				word |= uint32(bits[offset+at+i]) << (8 * i)
			}
			return word
		},
		func(at, n uint64, word uint32) {
			for i := range n {
				bits[offset+at+i] = byte(word >> (8 * i))
			}
		})
}

// move does with undefined bits what a lane's access does with data.
func (x *uninitWatcher) move(w *wave, in *Inst, lane int, size uint64, kind accessKind, get func(at, n uint64) uint32, set func(at, n uint64, bits uint32)) {
	use, u := &w.group.k.uses[x.at], x.waves[w.id]
	first := x.words[lane]
	for at := uint64(0); at < size; at += 4 {
		n := min(size-at, 4)
		word := first + int(at/4)
		old := uint32(0)
		if kind != accessWrite {
			old = get(at, n)
			if word < len(x.loaded) {
				x.loaded[word][lane] = old
			}
		}
		if kind == accessRead {
			continue
		}
		bits := uint32(0)
		switch {
		case use.class == classLoadLDS: // the words that the lane has just loaded
			bits = x.loaded[int(at/4)][lane]
		case kind == accessAtomic:
			bits = spread(old | x.data(u, use, lane))
		default:
			if word < len(use.data) {
				bits = u.v[use.data[word].reg][lane] >> dataShift(in)
			}
		}
		set(at, n, bits)
	}
	if use.class != classLoadLDS {
		x.words[lane] = first + int(size+3)/4
	}
}

// data joins all that an atomic writes.
func (x *uninitWatcher) data(u *undefined, use *uses, lane int) uint32 {
	any := uint32(0)
	for _, s := range use.data {
		any |= u.v[s.reg][lane]
	}
	return any
}

// mask64 is the undefined bits of a scalar register pair.
func (u *undefined) mask64(r int) uint64 { return uint64(u.s[r]) | uint64(u.s[r+1])<<32 }

func (u *undefined) setMask64(r int, x uint64) { u.s[r], u.s[r+1] = uint32(x), uint32(x>>32) }
