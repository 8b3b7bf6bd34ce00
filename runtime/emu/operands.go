package emu

import (
	"math/bits"
	"slices"
	"strings"
)

// Which operands of a memory instruction are data, and which of their bits take
// part. All other registers that it reads are its address.

// dataArg is the index of the first operand that a memory instruction writes to
// memory; -1 if there is none. (ds_write2 and compare-and-swap have a second one.)
func dataArg(in *Inst, c class) int {
	returns := 0
	switch c {
	case classStore:
		if in.has("buffer_") {
			return 0
		}
		return 1
	case classAtomic:
		if _, ok := in.mod("sc0"); ok {
			returns = 1
		}
		if in.has("buffer_") {
			return 0
		}
		return 1 + returns
	case classLDS:
		if strings.Contains(in.Op, "_rtn") {
			returns = 1
		}
		if in.has("ds_read") {
			return -1
		}
		return 1 + returns
	}
	return -1
}

// isData tells whether operand i of a memory instruction is data to write.
func isData(in *Inst, c class, i int) bool {
	first := dataArg(in, c)
	if first < 0 {
		return false
	}
	return i == first || c == classLDS && i == first+1
}

// dataWords are the registers whose words a memory instruction writes to memory, one
// by one.
func (u *uses) dataWords(in *Inst) []span {
	var list []span
	for _, r := range u.reads {
		if !r.vector || !isData(in, u.class, r.arg) {
			continue
		}
		for i := range r.n {
			list = append(list, span{r.arg, true, r.reg + i, 1, r.index, r.mask})
		}
	}
	return list
}

// dataShift is where in its word the data of a store begins.
func dataShift(in *Inst) uint {
	if strings.HasSuffix(in.Op, "_d16_hi") {
		return 16
	}
	return 0
}

// laneMaskPrefixes begin the mnemonics of vector instructions that take a scalar
// register pair as one bit for each lane.
var laneMaskPrefixes = []string{"v_cndmask", "v_addc_", "v_subb_", "v_subbrev_", "v_div_fmas"}

// listed is a bit of a modifier such as op_sel_hi:[0,1].
func (in *Inst) listed(key string, i int, absent bool) bool {
	v, ok := in.mod(key)
	if !ok {
		return absent
	}
	inner, _ := wrapped(v, "[", "]")
	bits := strings.Split(inner, ",")
	return i < len(bits) && strings.TrimSpace(bits[i]) == "1"
}

// destinations is how many operands an instruction's text begins with that are
// written: its sources are counted from there.
func (u *uses) destinations() int {
	n := 0
	for _, s := range u.writes {
		n = max(n, s.arg+1)
	}
	return n
}

// shifted is a span as s_set_gpr_idx_on moves it.
func (w *wave) shifted(s span) span {
	if s.index != 0 && w.indexing(s.index) {
		s.reg, _ = w.index(s.reg, s.n)
	}
	return s
}

// covers tells whether a list of spans has a scalar register.
func covers(list []span, reg int) bool {
	return slices.ContainsFunc(list, func(s span) bool { return !s.vector && s.reg <= reg && reg < s.reg+s.n })
}

// firstLane is the lowest lane that is on, 0 if none is.
func firstLane(exec uint64) int { return bits.TrailingZeros64(exec) & (Lanes - 1) }
