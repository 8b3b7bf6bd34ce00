package emu

import "strings"

// Undefined bits of scalar instructions.

// logicOps are the scalar bit operations, without the suffix of the width: what of
// the result is undefined, by the sources' values and undefined bits.
var logicOps = map[string]func(a, ua, b, ub uint64) uint64{
	"s_and":   undefinedAnd,
	"s_nand":  undefinedAnd,
	"s_andn2": func(a, ua, b, ub uint64) uint64 { return undefinedAnd(a, ua, ^b, ub) },
	"s_andn1": func(a, ua, b, ub uint64) uint64 { return undefinedAnd(^a, ua, b, ub) },
	"s_or":    undefinedOr,
	"s_nor":   undefinedOr,
	"s_orn2":  func(a, ua, b, ub uint64) uint64 { return undefinedOr(a, ua, ^b, ub) },
	"s_orn1":  func(a, ua, b, ub uint64) uint64 { return undefinedOr(^a, ua, b, ub) },
	"s_xor":   func(_, ua, _, ub uint64) uint64 { return ua | ub },
	"s_xnor":  func(_, ua, _, ub uint64) uint64 { return ua | ub },
}

// undefinedAnd: a defined 0 makes the result defined.
func undefinedAnd(a, ua, b, ub uint64) uint64 { return ua&ub | ua&b&^ub | ub&a&^ua }

// undefinedOr: a defined 1 makes the result defined.
func undefinedOr(a, ua, b, ub uint64) uint64 { return ua&ub | ua&^b&^ub | ub&^a&^ua }

// operand is the value of a scalar source of up to 64 bits and its undefined bits.
func (x *uninitWatcher) operand(w *wave, in *Inst, use *uses, u *undefined, arg int) (value, bits uint64) {
	for _, s := range use.reads {
		if s.arg != arg || s.vector {
			continue
		}
		if s.reg == regSCC {
			return uint64(b2u(w.scc)), uint64(u.s[regSCC])
		}
		if s.n == 1 {
			return uint64(w.s[s.reg]), uint64(u.s[s.reg])
		}
		return w.s64(s.reg), u.mask64(s.reg)
	}
	if arg < len(in.Args) {
		if v, ok := in.Args[arg].constant(b64); ok {
			return v, 0
		}
	}
	return 0, 0
}

func (x *uninitWatcher) scalars(w *wave, in *Inst, use *uses, u *undefined) {
	clean := true
	for _, s := range use.reads {
		for r := s.reg; r < s.reg+s.n; r++ {
			clean = clean && u.s[r] == 0
		}
	}
	if clean {
		for _, s := range use.writes {
			clear(u.s[s.reg : s.reg+s.n])
		}
		return
	}
	base, _, _ := cutWidth(in.Op)
	saves := strings.HasSuffix(base, "_saveexec")
	logic, ok := logicOps[strings.TrimSuffix(base, "_saveexec")]
	switch {
	case saves && ok:
		a, ua := x.operand(w, in, use, u, 1)
		e, ue := w.exec(), u.mask64(regEXEC)
		u.setMask64(use.writes[len(use.writes)-1].reg, ue)
		r := logic(a, ua, e, ue)
		u.setMask64(regEXEC, r)
		u.s[regSCC] = spread(uint32(r) | uint32(r>>32))
	case ok:
		a, ua := x.operand(w, in, use, u, 1)
		b, ub := x.operand(w, in, use, u, 2)
		x.scalarResult(use, u, logic(a, ua, b, ub))
	case base == "s_mov" || base == "s_not":
		_, ua := x.operand(w, in, use, u, 1)
		x.scalarResult(use, u, ua)
	case base == "s_cselect" && u.s[regSCC] == 0:
		chosen := 2
		if w.scc {
			chosen = 1
		}
		_, ua := x.operand(w, in, use, u, chosen)
		x.scalarResult(use, u, ua)
	default:
		for _, s := range use.writes {
			for r := s.reg; r < s.reg+s.n; r++ {
				u.s[r] = ^uint32(0)
			}
		}
	}
}

// scalarResult sets the undefined bits of what an instruction writes; SCC is
// undefined with any of them.
func (x *uninitWatcher) scalarResult(use *uses, u *undefined, bits uint64) {
	for _, s := range use.writes {
		switch {
		case s.reg == regSCC:
			u.s[regSCC] = spread(uint32(bits) | uint32(bits>>32))
		case s.n == 1:
			u.s[s.reg] = uint32(bits)
		default:
			u.setMask64(s.reg, bits)
		}
	}
}

// cutWidth takes the type off a mnemonic: s_and_b64 is s_and.
func cutWidth(op string) (base, of string, ok bool) {
	i := strings.LastIndexByte(op, '_')
	if i < 0 {
		return op, "", false
	}
	return op[:i], op[i+1:], true
}
