package emu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/object"
)

// parseInst decodes a line of the disassembler:
//
//	mnemonic[_e32|_e64|_dpp|_sdwa] operand, operand, ... modifier modifier ...
//
// Every word has to be understood as one of these; what it means is not asked here.
func parseInst(l object.Line) (*Inst, error) {
	in := &Inst{Offset: l.Offset, Size: 4 * uint64(len(l.Words)), Text: l.Text}
	if l.Undecodable() {
		return nil, in.errorf("no instruction of the chip")
	}
	op, rest, _ := strings.Cut(l.Text, " ")
	in.Op, in.Enc = cutEncoding(op)
	parts, err := splitOperands(strings.TrimSpace(rest))
	if err != nil {
		return nil, in.errorf("%w", err)
	}
	for _, p := range parts {
		words := splitWords(p)
		if len(words) == 0 {
			return nil, in.errorf("an operand is empty")
		}
		// Modifiers follow the last operand; an instruction without operands may have
		// some (buffer_inv sc1).
		for i, w := range words {
			if i == 0 && !isModifier(w) || in.counters() {
				o, err := parseOperand(w)
				if err != nil {
					return nil, in.errorf("%w", err)
				}
				in.Args = append(in.Args, o)
				continue
			}
			m, err := parseModifier(w)
			if err != nil {
				return nil, in.errorf("%w", err)
			}
			if _, twice := in.mod(m.Key); twice {
				return nil, in.errorf("modifier %s stands twice", m.Key)
			}
			in.Mods = append(in.Mods, m)
		}
		if len(words) > 1 && p != parts[len(parts)-1] && !in.counters() {
			return nil, in.errorf("%q: a modifier before the last operand", p)
		}
	}
	return in, nil
}

// counters tells whether the operands are separated by spaces: vmcnt(0) lgkmcnt(0).
func (in *Inst) counters() bool { return in.Op == "s_waitcnt" }

func cutEncoding(op string) (string, Encoding) {
	for _, e := range []struct {
		suffix string
		enc    Encoding
	}{{"_e32", EncE32}, {"_e64", EncE64}, {"_dpp", EncDPP}, {"_sdwa", EncSDWA}} {
		if base, ok := strings.CutSuffix(op, e.suffix); ok {
			return base, e.enc
		}
	}
	return op, EncDefault
}

// splitOperands splits at the commas outside of brackets.
func splitOperands(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	var parts []string
	depth, from := 0, 0
	for i, c := range s {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			if depth--; depth < 0 {
				return nil, fmt.Errorf("%q closes a bracket that is not open", s[:i+1])
			}
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("a bracket is not closed")
	}
	return append(parts, strings.TrimSpace(s[from:])), nil
}

// splitWords splits at the spaces outside of brackets.
func splitWords(s string) []string {
	depth := 0
	return strings.FieldsFunc(s, func(c rune) bool {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		}
		return c == ' ' && depth == 0
	})
}

// isModifier tells a modifier from an operand: it has a colon outside of brackets,
// or is a known flag.
func isModifier(w string) bool {
	if flags[w] {
		return true
	}
	name, _, ok := strings.Cut(w, ":")
	return ok && !strings.ContainsAny(name, "[(|")
}

// flags are the modifiers without a value.
var flags = map[string]bool{
	"sc0": true, "sc1": true, "nt": true, "glc": true, "slc": true, "offen": true, "idxen": true, "lds": true, "gds": true, "clamp": true,
	"row_mirror": true, "row_half_mirror": true, "dst_unused": false, "unorm": true, "tfe": true, "scc": true,
}

func parseModifier(w string) (Modifier, error) {
	if flags[w] {
		return Modifier{Key: w}, nil
	}
	key, value, ok := strings.Cut(w, ":")
	if !ok || key == "" || value == "" {
		return Modifier{}, fmt.Errorf("unknown modifier %q", w)
	}
	return Modifier{Key: key, Value: value}, nil
}

func parseOperand(s string) (Operand, error) {
	o := Operand{}
	if inner, ok := wrapped(s, "sext(", ")"); ok {
		o.Sext, s = true, inner
	}
	if len(s) > 1 && s[0] == '-' && !isDigit(s[1]) {
		o.Neg, s = true, s[1:]
	}
	if inner, ok := wrapped(s, "|", "|"); ok {
		o.Abs, s = true, inner
	}
	if inner, ok := wrapped(s, "lit(", ")"); ok {
		s = inner // a constant that would fit inline but stands as a literal
	}
	o.Text, o.Count = s, 1
	if r, ok := specialSGPRs[s]; ok {
		o.Reg, o.Count = r[0], r[1]
		return o, nil
	}
	if ok, err := o.register(s); ok || err != nil {
		return o, err
	}
	if name, value, ok := strings.Cut(s, "("); ok && strings.HasSuffix(value, ")") {
		o.Kind, o.Text = Counter, name
		n, err := strconv.ParseInt(strings.TrimSuffix(value, ")"), 0, 32)
		if err != nil { // gpr_idx(SRC0,DST)
			o.Text = s
		}
		o.Int = n
		return o, nil
	}
	if s == "" {
		return o, fmt.Errorf("an operand is empty")
	}
	if s[0] != '-' && !isDigit(s[0]) {
		o.Kind = Name
		return o, nil
	}
	if strings.Contains(s, ".") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return o, fmt.Errorf("operand %q: not a number", s)
		}
		o.Kind, o.Float = Float, f
		return o, nil
	}
	o.Kind = Integer
	if strings.HasPrefix(s, "0x") {
		o.Kind = Hex
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		u, err2 := strconv.ParseUint(s, 0, 64)
		if err2 != nil {
			return o, fmt.Errorf("operand %q: not a number", s)
		}
		n = int64(u)
	}
	o.Int = n
	return o, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func wrapped(s, before, after string) (string, bool) {
	if len(s) < len(before)+len(after) || !strings.HasPrefix(s, before) || !strings.HasSuffix(s, after) {
		return s, false
	}
	return s[len(before) : len(s)-len(after)], true
}

// maxRegisters are the numbers of registers that an instruction can name.
var maxRegisters = map[OperandKind]int{SGPR: regFlatScratch, VGPR: 256, AGPR: 256}

// register parses v3, s[4:7] and the like.
func (o *Operand) register(s string) (bool, error) {
	kinds := map[byte]OperandKind{'s': SGPR, 'v': VGPR, 'a': AGPR}
	kind, ok := kinds[s0(s)]
	if !ok || len(s) < 2 {
		return false, nil
	}
	from, to := s[1:], s[1:]
	if inner, ok := wrapped(s[1:], "[", "]"); ok {
		from, to, ok = strings.Cut(inner, ":")
		if !ok {
			to = from
		}
	} else if !isDigit(s[1]) {
		return false, nil
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || a > b || a < 0 || b >= maxRegisters[kind] {
		return false, fmt.Errorf("operand %q: no registers", s)
	}
	o.Kind, o.Reg, o.Count = kind, a, b-a+1
	return true, nil
}

func s0(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}
