package emu

import (
	"slices"
	"strings"
)

// Undefined bits of vector instructions.

// carried is an instruction that only carries bits to where other bits are: executed
// on undefined bits it says where they go. data and control are operands, as indexes;
// control counts as it is, and makes all of the lane undefined if it is.
type carried struct{ data, control []int }

var carriedOps = map[string]carried{
	"v_accvgpr_read_b32": {data: []int{1}}, "v_accvgpr_write_b32": {data: []int{1}}, "v_accvgpr_mov_b32": {data: []int{1}},
	"v_mov_b32": {data: []int{1}}, "v_mov_b64": {data: []int{1}}, "v_swap_b32": {data: []int{0, 1}},
	"v_perm_b32": {[]int{1, 2}, []int{3}}, "v_alignbit_b32": {[]int{1, 2}, []int{3}}, "v_alignbyte_b32": {[]int{1, 2}, []int{3}},
	"v_bfe_u32": {[]int{1}, []int{2, 3}}, "v_bfe_i32": {[]int{1}, []int{2, 3}}, "v_bfrev_b32": {data: []int{1}},
	"v_lshlrev_b32": {[]int{2}, []int{1}}, "v_lshrrev_b32": {[]int{2}, []int{1}}, "v_ashrrev_i32": {[]int{2}, []int{1}},
	"v_lshlrev_b64": {[]int{2}, []int{1}}, "v_lshrrev_b64": {[]int{2}, []int{1}}, "v_ashrrev_i64": {[]int{2}, []int{1}},
	"v_lshlrev_b16": {[]int{2}, []int{1}}, "v_lshrrev_b16": {[]int{2}, []int{1}}, "v_ashrrev_i16": {[]int{2}, []int{1}},
	"v_lshl_or_b32": {[]int{1, 3}, []int{2}}, "v_or3_b32": {data: []int{1, 2, 3}},
	"v_permlane16_swap_b32": {data: []int{0, 1}}, "v_permlane32_swap_b32": {data: []int{0, 1}},
	"ds_bpermute_b32": {[]int{2}, []int{1}}, "ds_permute_b32": {[]int{2}, []int{1}}, "ds_swizzle_b32": {data: []int{1}},
}

// upward are operations of two words whose low result follows from the low words
// alone.
var upward = []string{"v_lshl_add_u64", "v_mad_u64_u32", "v_mad_i64_i32"}

// vectors does with undefined bits what the instruction does with data.
func (x *uninitWatcher) vectors(w *wave, in *Inst, use *uses, u *undefined) {
	if !x.concerned(w, use, u) {
		return
	}
	exec := w.exec()
	switch op := in.Op; {
	case use.class == classMFMA:
		x.matrix(in, use, u)
		return
	case op == "v_readfirstlane_b32" || op == "v_readlane_b32":
		x.readLane(w, in, use, u)
		return
	case op == "v_writelane_b32":
		x.writeLane(w, in, use, u)
		return
	case sameOperands(in) && slices.Contains([]string{"v_xor_b32", "v_sub_u32"}, op):
		for i := range x.source[0] {
			x.source[0][i] = 0
		}
		x.keep(u, use, &x.source[0], exec)
		return
	}
	if (in.Op == "v_mov_b32" || in.Op == "v_mov_b64") && x.moveScalar(in, use, u, exec) {
		return
	}
	if c, ok := carriedOps[in.Op]; ok && x.carry(w, in, use, u, c) {
		return
	}
	if strings.HasPrefix(in.Op, "v_cndmask") && x.choose(w, in, use, u, exec) {
		return
	}
	if f, ok := bitwise[in.Op]; ok && x.bits(w, in, use, u, exec, f) {
		return
	}
	if in.has("v_pk_") && x.packed(w, in, use, u, exec) {
		return
	}
	if in.Op == "v_mov_b64" && x.moveWords(w, use, u, exec) {
		return
	}
	if slices.Contains(upward, in.Op) {
		low := &x.source[3]
		*low = Vec{}
		x.join(w, in, use, u, low, 1)
		all := &x.source[0]
		*all = Vec{}
		x.join(w, in, use, u, all, maxWords)
		x.keepWords(u, use, []*Vec{low, all}, exec)
		return
	}
	all := &x.source[0]
	*all = Vec{}
	lanes := exec
	if in.Enc == EncDPP {
		lanes = x.joinMoved(w, in, use, u, all)
	} else {
		x.join(w, in, use, u, all, maxWords)
	}
	x.keep(u, use, all, lanes)
}

// concerned tells whether the instruction has an undefined source or destination.
func (x *uninitWatcher) concerned(w *wave, use *uses, u *undefined) bool {
	for _, list := range [][]span{use.reads, use.writes} {
		for _, s := range list {
			if s = w.shifted(s); s.vector {
				for r := s.reg; r < s.reg+s.n; r++ {
					if u.dirty[r] {
						return true
					}
				}
				continue
			}
			for r := s.reg; r < s.reg+s.n; r++ {
				if u.s[r] != 0 {
					return true
				}
			}
		}
	}
	return false
}

// sameOperands tells whether both sources are one register: x^x is 0 whatever x is.
func sameOperands(in *Inst) bool {
	return len(in.Args) == 3 && len(in.Mods) == 0 && in.Args[1] == in.Args[2]
}

// keep stores undefined bits in all that the instruction writes: the words of vector
// registers, a bit per lane of a pair of scalar registers, else all of one.
func (x *uninitWatcher) keep(u *undefined, use *uses, v *Vec, lanes uint64) {
	for _, s := range use.writes {
		if s.vector {
			for r := s.reg; r < s.reg+s.n; r++ {
				u.set(r, v, lanes, s.mask)
			}
			continue
		}
		x.keepMask(u, s, v, lanes)
	}
}

func (x *uninitWatcher) keepMask(u *undefined, s span, v *Vec, lanes uint64) {
	m := uint64(0)
	for i, b := range v {
		if b != 0 {
			m |= 1 << i
		}
	}
	m &= lanes
	if s.n == 2 {
		u.setMask64(s.reg, m)
		return
	}
	for r := s.reg; r < s.reg+s.n; r++ {
		u.s[r] = spread(uint32(m) | uint32(m>>32))
	}
}

// keepWords stores different bits in the words of vector registers; scalar ones get
// those of the last.
func (x *uninitWatcher) keepWords(u *undefined, use *uses, words []*Vec, lanes uint64) {
	for _, s := range use.writes {
		if !s.vector {
			x.keepMask(u, s, words[len(words)-1], lanes)
			continue
		}
		for j := range s.n {
			u.set(s.reg+j, words[min(j, len(words)-1)], lanes, ^uint32(0))
		}
	}
}

// set stores bits in a register.
func (u *undefined) set(r int, v *Vec, lanes uint64, mask uint32) {
	d, any := &u.v[r], uint32(0)
	for i := range d {
		if lanes>>i&1 != 0 {
			d[i] = d[i]&^mask | v[i]&mask
		}
		any |= d[i]
	}
	u.dirty[r] = any != 0
}

// maxWords is no limit to the words of a source.
const maxWords = 16

// join makes a lane of v undefined if a source is; of sources of several words the
// first so many count.
func (x *uninitWatcher) join(w *wave, in *Inst, use *uses, u *undefined, v *Vec, words int) {
	for _, s := range use.reads {
		x.joinSpan(w, in, use, u, v, s, words)
	}
}

func (x *uninitWatcher) joinSpan(w *wave, in *Inst, use *uses, u *undefined, v *Vec, s span, words int) {
	s = w.shifted(s)
	n := min(s.n, words)
	if s.vector {
		for r := s.reg; r < s.reg+n; r++ {
			if !u.dirty[r] {
				continue
			}
			for i, b := range &u.v[r] {
				v[i] |= spread(b & s.mask)
			}
		}
		return
	}
	if s.n == 2 && in.has(laneMaskPrefixes...) {
		m := u.mask64(s.reg)
		for i := range v {
			v[i] |= spread(uint32(m >> i & 1))
		}
		return
	}
	for r := s.reg; r < s.reg+n; r++ {
		if u.s[r] != 0 {
			broadcast(v, ^uint32(0))
		}
	}
}

// moveScalar is a move of scalar registers to all lanes, word by word.
func (x *uninitWatcher) moveScalar(in *Inst, use *uses, u *undefined, exec uint64) bool {
	if in.Enc == EncDPP || in.Enc == EncSDWA || len(use.reads) != 1 || use.reads[0].vector || use.reads[0].n != use.writes[0].n {
		return false
	}
	s, words := use.reads[0], []*Vec{&x.source[0], &x.source[1]}
	for i, to := range words[:s.n] {
		broadcast(to, u.s[s.reg+i])
	}
	x.keepWords(u, use, words[:s.n], exec)
	return true
}

// register is the vector register of an operand of one word, and whether it is one.
func (x *uninitWatcher) register(w *wave, use *uses, arg int) (int, bool) {
	for _, s := range use.reads {
		if s.arg == arg && s.vector {
			return w.shifted(s).reg, true
		}
	}
	return 0, false
}

// carry executes an instruction of carriedOps on undefined bits. It does not if
// operands that are no registers, or modifiers, would make them what they are not.
func (x *uninitWatcher) carry(w *wave, in *Inst, use *uses, u *undefined, c carried) bool {
	if in.Enc == EncDPP || in.Enc == EncSDWA {
		return false
	}
	for _, i := range append(slices.Clone(c.data), c.control...) {
		if o := &in.Args[i]; o.Neg || o.Abs {
			return false
		}
	}
	e := &x.lane
	e.s, e.scc, e.id, e.gprIndexed = w.s, w.scc, w.id, w.gprIndexed
	for _, s := range use.writes {
		if s.vector {
			copy(e.v[s.reg:s.reg+s.n], u.v[s.reg:s.reg+s.n])
		}
	}
	used := map[int]int{} // register: operand
	for _, i := range c.data {
		found := false
		for _, s := range use.reads {
			if s.arg != i {
				continue
			}
			if !s.vector {
				if s.reg+s.n > regFlatScratch || x.controls(use, c, s) {
					return false
				}
				found = true
				copy(e.s[s.reg:s.reg+s.n], u.s[s.reg:])
				continue
			}
			s, found = w.shifted(s), true
			for r := s.reg; r < s.reg+s.n; r++ {
				e.v[r], used[r] = u.v[r], i
			}
		}
		if !found {
			return false
		}
	}
	control := &x.source[1]
	*control = Vec{}
	for _, i := range c.control {
		for _, s := range use.reads {
			if s.arg != i {
				continue
			}
			x.joinSpan(w, in, use, u, control, s, maxWords)
			if !s.vector {
				continue
			}
			s = w.shifted(s)
			for r := s.reg; r < s.reg+s.n; r++ {
				if _, both := used[r]; both {
					return false
				}
				e.v[r] = w.v[r]
			}
		}
	}
	w.group.k.steps[x.at](e)
	lanes := w.exec()
	if in.Op == "ds_permute_b32" { // any lane may get what a lane with no address sends
		any := uint32(0)
		for i, b := range control {
			if lanes>>i&1 != 0 {
				any |= b
			}
		}
		broadcast(control, any)
	}
	for _, s := range use.writes {
		for r := s.reg; r < s.reg+s.n; r++ {
			d, any := &u.v[r], uint32(0)
			*d = e.v[r]
			for i := range d {
				if lanes>>i&1 != 0 {
					d[i] |= control[i]
				}
				any |= d[i]
			}
			u.dirty[r] = any != 0
		}
	}
	return true
}

// controls tells whether a scalar operand of data is one of control, too.
func (x *uninitWatcher) controls(use *uses, c carried, data span) bool {
	return slices.ContainsFunc(use.reads, func(s span) bool {
		return slices.Contains(c.control, s.arg) && s.overlaps(data)
	})
}

// choose is v_cndmask: the source that the mask chooses.
func (x *uninitWatcher) choose(w *wave, in *Inst, use *uses, u *undefined, exec uint64) bool {
	if in.Enc == EncDPP || in.Enc == EncSDWA {
		return false
	}
	isMask := func(s span) bool { return !s.vector && s.n == 2 }
	at := slices.IndexFunc(use.reads, isMask)
	if at < 0 {
		return false
	}
	m := use.reads[at]
	values, unknown := w.s64(m.reg), u.mask64(m.reg)
	v := &x.source[0]
	for i := range v {
		v[i] = spread(uint32(unknown >> i & 1))
	}
	for _, s := range use.reads {
		if isMask(s) {
			continue
		}
		chosen := values
		if s.arg == 1 {
			chosen = ^values
		}
		s = w.shifted(s)
		for i := range v {
			if chosen>>i&1 == 0 {
				continue
			}
			if s.vector {
				v[i] |= u.v[s.reg][i]
			} else {
				v[i] |= u.s[s.reg]
			}
		}
	}
	x.keep(u, use, v, exec)
	return true
}

// bitwise are the bit operations: what of the result is undefined, by the values and
// undefined bits of the sources.
var bitwise = map[string]func(v, u *[3]uint32) uint32{
	"v_and_b32": func(v, u *[3]uint32) uint32 { return undefinedAnd32(v[0], u[0], v[1], u[1]) },
	"v_or_b32":  func(v, u *[3]uint32) uint32 { return undefinedOr32(v[0], u[0], v[1], u[1]) },
	"v_xor_b32": func(_, u *[3]uint32) uint32 { return u[0] | u[1] },
	"v_not_b32": func(_, u *[3]uint32) uint32 { return u[0] },
	"v_and_or_b32": func(v, u *[3]uint32) uint32 {
		return undefinedOr32(v[0]&v[1], undefinedAnd32(v[0], u[0], v[1], u[1]), v[2], u[2])
	},
	// (a & b) | (^a & c): a chooses.
	"v_bfi_b32": func(v, u *[3]uint32) uint32 { return u[0] | u[1]&v[0] | u[2]&^v[0] },
}

func undefinedAnd32(a, ua, b, ub uint32) uint32 {
	return uint32(undefinedAnd(uint64(a), uint64(ua), uint64(b), uint64(ub)))
}

func undefinedOr32(a, ua, b, ub uint32) uint32 {
	return uint32(undefinedOr(uint64(a), uint64(ua), uint64(b), uint64(ub)))
}

func (x *uninitWatcher) bits(w *wave, in *Inst, use *uses, u *undefined, exec uint64, f func(v, u *[3]uint32) uint32) bool {
	if in.Enc == EncDPP || in.Enc == EncSDWA {
		return false
	}
	result := &x.source[0]
	for i := range result {
		var values, unknown [3]uint32
		for j := range len(in.Args) - 1 {
			if v, ok := in.Args[j+1].constant(b32); ok {
				values[j] = uint32(v)
			}
		}
		for _, s := range use.reads {
			if s.arg < 1 {
				continue
			}
			if s = w.shifted(s); s.vector {
				values[s.arg-1], unknown[s.arg-1] = w.v[s.reg][i], u.v[s.reg][i]
			} else {
				values[s.arg-1], unknown[s.arg-1] = w.s[s.reg], u.s[s.reg]
			}
		}
		result[i] = f(&values, &unknown)
	}
	x.keep(u, use, result, exec)
	return true
}

// packed is an instruction on two numbers: the halves of a word, or two words. op_sel
// says which half of a source the low result follows from, op_sel_hi the high one.
func (x *uninitWatcher) packed(w *wave, in *Inst, use *uses, u *undefined, exec uint64) bool {
	wide := strings.HasSuffix(in.Op, "_f32") || strings.HasSuffix(in.Op, "_b32")
	if len(use.writes) != 1 || !use.writes[0].vector || wide != (use.writes[0].n == 2) {
		return false
	}
	if in.Op == "v_pk_mov_b32" {
		return x.packedMov(w, in, use, u, exec)
	}
	low, high := &x.source[0], &x.source[1]
	*low, *high = Vec{}, Vec{}
	for _, s := range use.reads {
		if s.arg < 1 {
			return false
		}
		i := s.arg - use.destinations()
		for half, to := range []*Vec{low, high} {
			from := 0
			if half == 0 && in.listed("op_sel", i, false) || half == 1 && in.listed("op_sel_hi", i, true) {
				from = 1
			}
			for lane := range to {
				to[lane] |= spread(x.half(w, u, s, from, lane, wide))
			}
		}
	}
	if wide {
		x.keepWords(u, use, []*Vec{low, high}, exec)
		return true
	}
	for i := range low {
		low[i] = low[i]&0xffff | high[i]&0xffff0000
	}
	x.keep(u, use, low, exec)
	return true
}

// packedMov is v_pk_mov_b32: a word of the first source, then one of the second.
func (x *uninitWatcher) packedMov(w *wave, in *Inst, use *uses, u *undefined, exec uint64) bool {
	words := []*Vec{&x.source[0], &x.source[1]}
	for i, to := range words {
		*to = Vec{}
		for _, s := range use.reads {
			if s.arg != 1+i {
				continue
			}
			for lane := range to {
				to[lane] = x.half(w, u, s, int(b2u(in.listed("op_sel", i, false))), lane, true)
			}
		}
	}
	x.keepWords(u, use, words, exec)
	return true
}

// moveWords is v_mov_b64: each word of the result is a word of the source. It reports
// whether the source is registers.
func (x *uninitWatcher) moveWords(w *wave, use *uses, u *undefined, exec uint64) bool {
	words := []*Vec{&x.source[0], &x.source[1]}
	found := false
	for _, s := range use.reads {
		if s.arg != 1 || s.n != len(words) {
			continue
		}
		found = true
		for i, to := range words {
			for lane := range to {
				to[lane] = x.half(w, u, s, i, lane, true)
			}
		}
	}
	if found {
		x.keepWords(u, use, words, exec)
	}
	return found
}

// half is the undefined bits of a half of a source.
func (x *uninitWatcher) half(w *wave, u *undefined, s span, half, lane int, wide bool) uint32 {
	word, shift := min(half, s.n-1), 0
	if !wide {
		word, shift = 0, 16*half
	}
	b := uint32(0)
	if s = w.shifted(s); s.vector {
		b = u.v[s.reg+word][lane]
	} else {
		b = u.s[s.reg+word]
	}
	if wide {
		return b
	}
	return b >> shift & 0xffff
}

// readLane is v_readlane and v_readfirstlane.
func (x *uninitWatcher) readLane(w *wave, in *Inst, use *uses, u *undefined) {
	r, ok := x.register(w, use, 1)
	if !ok {
		return
	}
	lane, unknown := firstLane(w.exec()), uint64(0)
	if in.Op == "v_readlane_b32" {
		value, b := x.operand(w, in, use, u, 2)
		lane, unknown = int(value)&(Lanes-1), b
	}
	u.s[use.writes[0].reg] = u.v[r][lane] | spread(uint32(unknown))
}

func (x *uninitWatcher) writeLane(w *wave, in *Inst, use *uses, u *undefined) {
	_, data := x.operand(w, in, use, u, 1)
	value, unknown := x.operand(w, in, use, u, 2)
	v := &x.source[0]
	broadcast(v, uint32(data)|spread(uint32(unknown)))
	u.set(use.writes[0].reg, v, 1<<(value&(Lanes-1)), ^uint32(0))
}

// joinMoved is join for DPP: the first source comes from other lanes. It returns the
// lanes that are written.
func (x *uninitWatcher) joinMoved(w *wave, in *Inst, use *uses, u *undefined, v *Vec) uint64 {
	first := use.destinations()
	r, ok := x.register(w, use, first)
	move := x.mover(w.group.k, in, first)
	if !ok || move == nil {
		x.join(w, in, use, u, v, maxWords)
		return w.exec()
	}
	for _, s := range use.reads {
		if s.arg != first {
			x.joinSpan(w, in, use, u, v, s, maxWords)
		}
	}
	// Once into zeros, once into ones: where the results differ nothing is written.
	d := moveTarget(r)
	e := &x.lane
	e.s, e.id = w.s, w.id
	e.v[r] = u.v[r]
	e.v[d] = Vec{}
	move(e)
	zeros := e.v[d]
	broadcast(&e.v[d], ^uint32(0))
	move(e)
	lanes := w.exec()
	for i, b := range &e.v[d] {
		if b != zeros[i] {
			lanes &^= 1 << i
			continue
		}
		v[i] |= spread(b)
	}
	return lanes
}

// moveTarget is a register beside r.
func moveTarget(r int) int {
	if r == 0 {
		return 1
	}
	return 0
}

// mover compiles v_mov_b32 with the DPP modifiers of an instruction, of the register
// of its operand.
func (x *uninitWatcher) mover(k *Kernel, in *Inst, arg int) step {
	if s, ok := x.moved[x.at]; ok {
		return s
	}
	o := in.Args[arg]
	mov := &Inst{Offset: in.Offset, Size: in.Size, Text: in.Text, Op: "v_mov_b32", Enc: EncDPP, Args: []Operand{
		{Kind: VGPR, Text: "target", Reg: moveTarget(o.Reg), Count: 1}, {Kind: o.Kind, Text: o.Text, Reg: o.Reg, Count: 1},
	}}
	for _, m := range in.Mods {
		if dppModifiers[m.Key] {
			mov.Mods = append(mov.Mods, m)
		}
	}
	s, _, err := compileInst(k, mov, false)
	if err != nil {
		s = nil
	}
	if x.moved == nil {
		x.moved = map[int]step{}
	}
	x.moved[x.at] = s
	return s
}

// dppModifiers say which lane a source comes from, and which lanes are written.
var dppModifiers = map[string]bool{
	"quad_perm": true, "row_shl": true, "row_shr": true, "row_ror": true, "wave_shl": true, "wave_rol": true, "wave_shr": true, "wave_ror": true,
	"row_mirror": true, "row_half_mirror": true, "row_bcast": true, "row_newbcast": true, "row_mask": true, "bank_mask": true, "bound_ctrl": true,
}
