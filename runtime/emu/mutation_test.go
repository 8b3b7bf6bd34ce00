package emu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
)

// Mutations of machine code: one instruction of a kernel is made another one, as a
// compiler with a mistake might have made it. They work on the disassembler's text,
// which is parsed again, so that a mutant's step, registers and reports agree.

// mutation is a kind of mistake.
type mutation struct {
	name string
	what string // for the table in docs/mutants.md
	// of returns the instructions that might stand for instruction at, none if the
	// kind does not concern it.
	of func(s mutationSite) []variant
}

// mutationSite is an instruction of a kernel.
type mutationSite struct {
	k  *Kernel
	at int
	in *Inst
	l  asmLine
}

// variant is what stands instead of an instruction.
type variant struct {
	text string
	chip string // whose semantics it has; "" is the kernel's chip
}

// nothing is what stands for a dropped instruction.
const nothing = "s_nop 0"

// mutations are all kinds, in the order of the table.
var mutations = []mutation{
	{"barrier", "s_barrier dropped", mutateBarrier},
	{"vmcnt dropped", "s_waitcnt without its vmcnt", dropCounter("vmcnt")},
	{"vmcnt weakened", "s_waitcnt that waits for one access less", weakenCounter("vmcnt")},
	{"lgkmcnt dropped", "s_waitcnt without its lgkmcnt", dropCounter("lgkmcnt")},
	{"lgkmcnt weakened", "s_waitcnt that waits for one access less", weakenCounter("lgkmcnt")},
	{"fence wait", "s_waitcnt beside buffer_wbl2 or buffer_inv without a counter, or that waits for one access less", mutateFence},
	{"bound", "compare: < for <=, > for >= and the reverse; its integer constant one off", mutateBound},
	{"mfma swap", "matrix instruction: A and B exchanged", mutateSwap},
	{"mfma register", "matrix instruction: A, B, C or a scale one register (of a tuple: two) off", mutateMatrixRegister},
	{"fp8 flavour", "FNUZ for OCP and the reverse, where both chips have the instruction", mutateFlavour},
	{"address", "load or store: 4 bytes or one access off, each way", mutateAddress},
	{"exec", "lanes that a condition excludes stay active", mutateExec},
	{"select", "v_cndmask, s_cselect: operands exchanged", mutateSelect},
	{"lane", "exchange between lanes: with another lane", mutateLane},
	{"bf16 rounding", "conversion to bf16 by truncation", mutateRounding},
	{"half", "SDWA, op_sel, d16_hi: another byte or half", mutateHalf},
	{"mx scale", "v_mfma_scale: another byte of a scale register", mutateScale},
	{"store", "store or atomic dropped", mutateStore},
	{"zeroing", "accumulator of a matrix instruction not zeroed", mutateZeroing},
	{"sign", "neg of an operand added or dropped", mutateSign},
}

// mutant is a kernel with a mutation.
type mutant struct {
	kind *mutation
	at   int // index of the instruction
	variant
}

// mutants are all of the kernel, by kind and instruction.
func mutantsOf(k *Kernel) []mutant {
	var list []mutant
	for i := range mutations {
		m := &mutations[i]
		for at, in := range k.insts {
			for _, v := range m.of(mutationSite{k, at, in, splitLine(in.Text)}) {
				if v.text != in.Text || v.chip != "" {
					list = append(list, mutant{m, at, v})
				}
			}
		}
	}
	return list
}

// compile returns the mutant's step and instruction.
func (m mutant) compile(k *Kernel) (*Inst, step, uses, error) {
	old := k.insts[m.at]
	in, err := parseInst(object.Line{Offset: old.Offset, Text: m.text, Words: make([]uint32, old.Size/4)})
	if err != nil {
		return nil, nil, uses{}, err
	}
	in.Func, in.Start = old.Func, old.Start
	of := *k
	if m.chip != "" {
		of.chip = m.chip
	}
	indexed := slices.ContainsFunc(k.insts, func(in *Inst) bool { return in.Op == "s_set_gpr_idx_on" })
	s, u, err := compileInst(&of, in, indexed)
	return in, s, u, err
}

// asmLine is an instruction's text in parts.
type asmLine struct {
	op         string // with the suffix of the encoding
	args, mods []string
}

func splitLine(text string) asmLine {
	op, rest, _ := strings.Cut(text, " ")
	l := asmLine{op: op}
	parts, err := splitOperands(strings.TrimSpace(rest))
	if err != nil {
		return l // endOfCode has no operands, all others were parsed before
	}
	for _, p := range parts {
		for i, w := range splitWords(p) {
			if i == 0 && !isModifier(w) || op == "s_waitcnt" {
				l.args = append(l.args, w)
			} else {
				l.mods = append(l.mods, w)
			}
		}
	}
	return l
}

func (l asmLine) String() string {
	sep := ", "
	if l.op == "s_waitcnt" {
		sep = " "
	}
	words := []string{l.op}
	if len(l.args) > 0 {
		words = append(words, strings.Join(l.args, sep))
	}
	return strings.Join(append(words, l.mods...), " ")
}

// with is the line after a change.
func (l asmLine) with(change func(l *asmLine)) variant {
	c := asmLine{l.op, slices.Clone(l.args), slices.Clone(l.mods)}
	change(&c)
	return variant{text: c.String()}
}

// setArg is the line with another operand.
func (l asmLine) setArg(i int, arg string) variant {
	return l.with(func(l *asmLine) { l.args[i] = arg })
}

func (l asmLine) swapArgs(i, j int) variant {
	return l.with(func(l *asmLine) { l.args[i], l.args[j] = l.args[j], l.args[i] })
}

// setMod is the line with a modifier key:value instead of its own; def is the value
// that it need not have.
func (l asmLine) setMod(key, value, def string) variant {
	return l.with(func(l *asmLine) {
		i := slices.IndexFunc(l.mods, func(m string) bool { return strings.HasPrefix(m, key+":") })
		switch {
		case i < 0:
			l.mods = append(l.mods, key+":"+value)
		case value == def:
			l.mods = slices.Delete(l.mods, i, i+1)
		default:
			l.mods[i] = key + ":" + value
		}
	})
}

func mutateBarrier(s mutationSite) []variant {
	if s.in.Op != "s_barrier" {
		return nil
	}
	return []variant{{text: nothing}}
}

// counter finds an operand of s_waitcnt that waits for something; waits of fences are
// a kind of their own.
func (s mutationSite) counter(name string) (int, int64, bool) {
	if s.in.Op != "s_waitcnt" || s.ofFence() {
		return 0, 0, false
	}
	for i, o := range s.in.Args {
		if o.Text == name && o.Int < waitLimits[name] {
			return i, o.Int, true
		}
	}
	return 0, 0, false
}

// ofFence tells whether the wait stands beside a write-back or an invalidation of
// caches, with only other waits in between.
func (s mutationSite) ofFence() bool {
	return s.neighbour(-1) == "buffer_wbl2" || slices.Contains([]string{"buffer_wbl2", "buffer_inv"}, s.neighbour(1))
}

func (s mutationSite) neighbour(step int) string {
	for at := s.at + step; at >= 0 && at < len(s.k.insts); at += step {
		if op := s.k.insts[at].Op; op != "s_waitcnt" && op != "s_nop" {
			return op
		}
	}
	return ""
}

func dropCounter(name string) func(mutationSite) []variant {
	return func(s mutationSite) []variant {
		i, _, ok := s.counter(name)
		if !ok {
			return nil
		}
		return []variant{s.withoutArg(i)}
	}
}

func (s mutationSite) withoutArg(i int) variant {
	if len(s.l.args) == 1 {
		return variant{text: nothing}
	}
	return s.l.with(func(l *asmLine) { l.args = slices.Delete(l.args, i, i+1) })
}

func weakenCounter(name string) func(mutationSite) []variant {
	return func(s mutationSite) []variant {
		i, n, ok := s.counter(name)
		if !ok {
			return nil
		}
		return []variant{s.l.setArg(i, fmt.Sprintf("%s(%d)", name, n+1))}
	}
}

func mutateFence(s mutationSite) []variant {
	if s.in.Op != "s_waitcnt" || !s.ofFence() {
		return nil
	}
	var list []variant
	for i, o := range s.in.Args {
		list = append(list, s.withoutArg(i), s.l.setArg(i, fmt.Sprintf("%s(%d)", o.Text, o.Int+1)))
	}
	return list
}

var compareOp = regexp.MustCompile(`^([sv]_cmpx?k?_)(n?)(lt|le|gt|ge|eq|ne|lg)(_[iuf]\d+.*)$`)

func mutateBound(s mutationSite) []variant {
	p := compareOp.FindStringSubmatch(s.l.op)
	if p == nil {
		return nil
	}
	var list []variant
	if other := map[string]string{"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}[p[3]]; other != "" {
		list = append(list, s.l.with(func(l *asmLine) { l.op = p[1] + p[2] + other + p[4] }))
	}
	if p[4][1] == 'f' {
		return list
	}
	for i, o := range s.in.Args {
		if o.Kind != Integer && o.Kind != Hex {
			continue
		}
		for _, d := range []int64{1, -1} {
			list = append(list, s.l.setArg(i, plus(o, d)))
		}
	}
	return list
}

// plus writes an integer operand plus d, as it was written.
func plus(o Operand, d int64) string {
	if n := o.Int + d; o.Kind == Hex && n >= 0 {
		return fmt.Sprintf("0x%x", n)
	}
	return strconv.FormatInt(o.Int+d, 10)
}

func mutateSwap(s mutationSite) []variant {
	if !s.in.has("v_mfma") || s.l.args[1] == s.l.args[2] {
		return nil
	}
	return []variant{s.l.swapArgs(1, 2)}
}

// moved writes a register operand d registers on; tuples stay aligned to two.
func moved(o Operand, d int) (string, bool) {
	file, ok := map[OperandKind]string{VGPR: "v", AGPR: "a"}[o.Kind]
	if o.Count > 1 {
		d *= 2
	}
	if !ok || o.Reg+d < 0 || o.Reg+d+o.Count > maxRegisters[o.Kind] {
		return "", false
	}
	return rangeName(file, o.Reg+d, o.Count), true
}

func mutateMatrixRegister(s mutationSite) []variant {
	if !s.in.has("v_mfma") {
		return nil
	}
	var list []variant
	for i := 1; i < len(s.in.Args); i++ {
		for _, d := range []int{1, -1} {
			if r, ok := moved(s.in.Args[i], d); ok {
				list = append(list, s.l.setArg(i, r))
			}
		}
	}
	return list
}

func mutateFlavour(s mutationSite) []variant {
	if !strings.Contains(s.in.Op, "fp8") && !strings.Contains(s.in.Op, "bf8") || instructions[s.in.Op].chips != nil {
		return nil
	}
	return []variant{{s.in.Text, map[string]string{"gfx942": "gfx950", "gfx950": "gfx942"}[s.k.chip]}}
}

// accessSizes are the bytes of an access by the end of the mnemonic; the first that
// fits counts.
var accessSizes = []struct {
	suffix string
	bytes  int64
}{
	{"x16", 64}, {"x8", 32}, {"x4", 16}, {"x3", 12}, {"x2", 8}, {"dword", 4},
	{"short", 2}, {"short_d16", 2}, {"short_d16_hi", 2}, {"byte", 1}, {"byte_d16", 1}, {"byte_d16_hi", 1},
	{"b128", 16}, {"b96", 12}, {"b64", 8}, {"b32", 4}, {"b16", 2}, {"b16_d16_hi", 2}, {"u16", 2}, {"i16", 2}, {"u16_d16", 2}, {"u16_d16_hi", 2},
	{"b8", 1}, {"b8_d16_hi", 1}, {"u8", 1}, {"i8", 1}, {"u8_d16", 1}, {"u8_d16_hi", 1}, {"b64_tr_b16", 8},
}

func accessSize(op string) int64 {
	for _, a := range accessSizes {
		if strings.HasSuffix(op, a.suffix) {
			return a.bytes
		}
	}
	return 4
}

func mutateAddress(s mutationSite) []variant {
	size := accessSize(s.in.Op)
	deltas := slices.Compact([]int64{4, size, -4, -size})
	var list []variant
	switch c := classOf(s.in); {
	case c == classSMEM && s.in.has("s_load", "s_buffer_load") && s.in.Args[2].Kind != SGPR:
		for _, d := range deltas {
			list = append(list, s.l.setArg(2, plus(s.in.Args[2], d)))
		}
	case c == classLDS && strings.Contains(s.in.Op, "2"+"st64") || c == classLDS && s.in.has("ds_read2_", "ds_write2_"):
		for _, key := range []string{"offset0", "offset1"} {
			for _, d := range []int64{1, -1} {
				if n := s.offset(key) + d; n >= 0 && n < 256 {
					list = append(list, s.l.setMod(key, strconv.FormatInt(n, 10), "0"))
				}
			}
		}
	case c == classLDS:
		for _, d := range deltas {
			if n := s.offset("offset") + d; n >= 0 && n < 1<<16 {
				list = append(list, s.l.setMod("offset", strconv.FormatInt(n, 10), "0"))
			}
		}
	case c == classLoad || c == classStore || c == classAtomic || c == classLoadLDS:
		for _, d := range deltas {
			n := s.offset("offset") + d
			if s.in.has("buffer_") && (n < 0 || n >= 1<<12) || n < -1<<12 || n >= 1<<12 {
				continue // cannot be encoded
			}
			list = append(list, s.l.setMod("offset", strconv.FormatInt(n, 10), "0"))
		}
	}
	return list
}

// offset is a modifier's number; 0 if it is absent.
func (s mutationSite) offset(key string) int64 {
	v, _ := s.in.mod(key)
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		return 0
	}
	return n
}

func mutateExec(s mutationSite) []variant {
	switch op := s.in.Op; {
	case op == "s_and_saveexec_b64" || op == "s_andn2_saveexec_b64":
		return []variant{{text: "s_or_saveexec_b64 " + s.l.args[0] + ", 0"}} // SCC tells whether lanes are active, too
	case (op == "s_and_b64" || op == "s_andn2_b64") && s.l.args[0] == "exec" && s.l.args[1] == "exec":
		return []variant{{text: nothing}}
	}
	return nil
}

func mutateSelect(s mutationSite) []variant {
	if !s.in.has("v_cndmask", "s_cselect") || s.l.args[1] == s.l.args[2] {
		return nil
	}
	return []variant{s.l.swapArgs(1, 2)}
}

func mutateLane(s mutationSite) []variant {
	var list []variant
	switch {
	case s.in.Op == "ds_bpermute_b32":
		list = append(list, s.l.setMod("offset", strconv.FormatInt(s.offset("offset")+4, 10), "0"))
	case s.in.Op == "v_readfirstlane_b32":
		list = append(list, variant{text: "v_readlane_b32 " + s.l.args[0] + ", " + s.l.args[1] + ", 1"})
	case s.in.Op == "v_readlane_b32" && s.in.Args[2].Kind == Integer:
		list = append(list, s.l.setArg(2, strconv.FormatInt((s.in.Args[2].Int+1)%Lanes, 10)))
	case s.in.has("v_permlane16_swap"), s.in.has("v_permlane32_swap"):
		list = append(list, s.l.with(func(l *asmLine) { l.op = permlaneOther.Replace(l.op) }))
	}
	for i, m := range s.in.Mods {
		change := func(text string) {
			list = append(list, s.l.with(func(l *asmLine) { l.mods[i] = text }))
		}
		n, err := strconv.Atoi(m.Value)
		switch m.Key {
		case "row_shl", "row_shr", "row_ror":
			if err == nil {
				change(fmt.Sprintf("%s:%d", m.Key, n%15+1))
				change(fmt.Sprintf("%s:%d", map[string]string{"row_shl": "row_shr", "row_shr": "row_shl", "row_ror": "row_shr"}[m.Key], n))
			}
		case "row_bcast":
			change(fmt.Sprintf("row_bcast:%d", map[int]int{15: 31, 31: 15}[n]))
		case "row_newbcast":
			change(fmt.Sprintf("row_newbcast:%d", (n+1)%16))
		case "row_mirror":
			change("row_half_mirror")
		case "row_half_mirror":
			change("row_mirror")
		case "quad_perm":
			inner, _ := wrapped(m.Value, "[", "]")
			lanes := strings.Split(inner, ",")
			change("quad_perm:[" + strings.Join(append(lanes[1:], lanes[0]), ",") + "]")
		case "row_mask", "bank_mask":
			change(m.Key + ":0x" + map[bool]string{true: "7", false: "f"}[m.Value == "0xf"])
		case "offset":
			if p := swizzleXor.FindStringSubmatch(m.Value); p != nil {
				n, _ := strconv.Atoi(p[2])
				change(fmt.Sprintf("offset:swizzle(%s,%d)", p[1], map[bool]int{true: 2 * n, false: n / 2}[n < 16]))
			}
		}
	}
	return list
}

var (
	permlaneOther = strings.NewReplacer("permlane16", "permlane32", "permlane32", "permlane16")
	swizzleXor    = regexp.MustCompile(`^swizzle\((SWAP|REVERSE|BROADCAST),(\d+)`)
)

// mutateRounding knows both ways to round: gfx950's conversion, and the addition of
// 0x7fff plus the lowest bit that stays, which v_bfe_u32 x, 16, 1 has taken.
func mutateRounding(s mutationSite) []variant {
	registers := func(args ...Operand) bool {
		return !slices.ContainsFunc(args, func(o Operand) bool { return o.Kind != VGPR || o.Neg || o.Abs })
	}
	switch {
	case s.in.Op == "v_cvt_pk_bf16_f32" && registers(s.in.Args[1:3]...):
		return []variant{{text: fmt.Sprintf("v_perm_b32 %s, %s, %s, 0x7060302", s.l.args[0], s.l.args[2], s.l.args[1])}}
	case s.in.Op == "v_add3_u32":
		for at := s.at - 1; at >= max(0, s.at-40); at-- {
			b := splitLine(s.k.insts[at].Text)
			if strings.HasPrefix(b.op, "v_bfe_u32") && b.args[2] == "16" && b.args[3] == "1" {
				i := slices.Index(s.l.args[1:], b.args[0])
				j := slices.Index(s.l.args[1:], b.args[1])
				if i >= 0 && j >= 0 {
					return []variant{{text: "v_mov_b32_e32 " + s.l.args[0] + ", " + b.args[1]}}
				}
			}
		}
	}
	return nil
}

func mutateHalf(s mutationSite) []variant {
	var list []variant
	if strings.HasSuffix(s.in.Op, "_d16_hi") {
		list = append(list, s.l.with(func(l *asmLine) {
			l.op = strings.TrimSuffix(l.op, "_hi")
			if classOf(s.in) == classStore || strings.HasPrefix(l.op, "ds_write") {
				l.op = strings.TrimSuffix(l.op, "_d16")
			}
		}))
	}
	next := map[string]string{
		"WORD_0": "WORD_1", "WORD_1": "WORD_0", "BYTE_0": "BYTE_1", "BYTE_1": "BYTE_2", "BYTE_2": "BYTE_3", "BYTE_3": "BYTE_0", "DWORD": "WORD_0",
	}
	for i, m := range s.in.Mods {
		switch {
		case strings.HasSuffix(m.Key, "_sel") && next[m.Value] != "":
			list = append(list, s.l.with(func(l *asmLine) { l.mods[i] = m.Key + ":" + next[m.Value] }))
		case (m.Key == "op_sel" || m.Key == "op_sel_hi") && !s.in.has("v_mfma"):
			list = append(list, s.flips(i)...)
		}
	}
	return list
}

// flips are the line with one bit of a modifier such as op_sel:[0,1] changed, for
// each of its bits.
func (s mutationSite) flips(mod int) []variant {
	m := s.in.Mods[mod]
	inner, _ := wrapped(m.Value, "[", "]")
	bits := strings.Split(inner, ",")
	var list []variant
	for i := range bits {
		other := slices.Clone(bits)
		other[i] = map[string]string{"0": "1", "1": "0"}[bits[i]]
		list = append(list, s.l.with(func(l *asmLine) { l.mods[mod] = m.Key + ":[" + strings.Join(other, ",") + "]" }))
	}
	return list
}

func mutateScale(s mutationSite) []variant {
	if !s.in.has("v_mfma_scale") {
		return nil
	}
	var list []variant
	for _, key := range []string{"op_sel", "op_sel_hi"} {
		v, ok := s.in.mod(key)
		if !ok {
			v = "[0,0,0]"
		}
		inner, _ := wrapped(v, "[", "]")
		bits := strings.Split(inner, ",")
		for i := range 2 { // the third has no meaning
			other := slices.Clone(bits)
			other[i] = map[string]string{"0": "1", "1": "0"}[bits[i]]
			list = append(list, s.l.setMod(key, "["+strings.Join(other, ",")+"]", ""))
		}
	}
	return list
}

func mutateStore(s mutationSite) []variant {
	c := classOf(s.in)
	if c != classStore && c != classAtomic && (c != classLDS || !s.in.has("ds_write", "ds_add", "ds_max", "ds_min", "ds_or")) {
		return nil
	}
	return []variant{{text: nothing}}
}

func mutateZeroing(s mutationSite) []variant {
	switch {
	case s.in.has("v_mfma") && s.l.args[3] == "0":
		return []variant{s.l.setArg(3, s.l.args[0])}
	case s.in.has("v_accvgpr_write", "v_mov_b32", "v_mov_b64") && s.l.args[1] == "0" && s.accumulates(s.in.Args[0]):
		return []variant{{text: nothing}}
	}
	return nil
}

// accumulates tells whether a register is of an accumulator of the kernel.
func (s mutationSite) accumulates(o Operand) bool {
	return slices.ContainsFunc(s.k.insts, func(in *Inst) bool {
		return in.has("v_mfma") && in.Args[3].Kind == o.Kind && in.Args[3].Reg <= o.Reg && o.Reg < in.Args[3].Reg+in.Args[3].Count
	})
}

var signedOp = regexp.MustCompile(`^v_(add|sub|mul|fma|fmac|max|min|med3|pk_add|pk_mul|pk_fma)_(f16|f32|f64)(_e64)?$`)

func mutateSign(s mutationSite) []variant {
	if !signedOp.MatchString(s.l.op) {
		return nil
	}
	var list []variant
	if s.in.has("v_pk_") {
		for i, m := range s.in.Mods {
			if m.Key == "neg_lo" || m.Key == "neg_hi" {
				list = append(list, s.flips(i)...)
			}
		}
		if len(list) == 0 {
			zeros := slices.Repeat([]string{"0"}, len(s.l.args)-1)
			for _, key := range []string{"neg_lo", "neg_hi"} {
				for i := range zeros {
					bits := slices.Clone(zeros)
					bits[i] = "1"
					list = append(list, s.l.setMod(key, "["+strings.Join(bits, ",")+"]", ""))
				}
			}
		}
		return list
	}
	for i := 1; i < len(s.in.Args); i++ {
		o := s.in.Args[i]
		switch {
		case o.Neg:
			list = append(list, s.l.setArg(i, strings.TrimPrefix(s.l.args[i], "-")))
		case o.Kind == VGPR || o.Kind == SGPR:
			list = append(list, s.l.setArg(i, "-"+s.l.args[i]))
		}
	}
	return list
}
