package emu

import (
	"fmt"
	"strings"
)

// Inst is one instruction, decoded but with no meaning attached.
type Inst struct {
	Offset uint64 // from the kernel's first byte; of a function, it may wrap around
	Func   string // the function's name; "" for the kernel
	Start  uint64 // Offset of its first byte
	Size   uint64 // bytes
	Text   string // as the disassembler prints it
	Op     string // mnemonic without the suffix of the encoding
	Enc    Encoding
	Args   []Operand
	Mods   []Modifier
}

// Encoding is what the suffix of a mnemonic says of the instruction's form.
type Encoding uint8

// The encodings.
const (
	EncDefault Encoding = iota // no suffix: the mnemonic has one form
	EncE32
	EncE64
	EncDPP
	EncSDWA
)

// Modifier is what stands after the operands: key:value, or a bare flag.
type Modifier struct {
	Key   string
	Value string // as written: "16", "[0,1]", "row_shr" has "1"; "" for a flag
}

// OperandKind says what an operand is.
type OperandKind uint8

// The kinds of operands.
const (
	SGPR    OperandKind = iota // Reg counts registers of wave.s, so VCC, EXEC and M0 are SGPRs too
	VGPR                       // Reg counts architectural vector registers
	AGPR                       // Reg counts accumulation registers
	Integer                    // Int: an inline integer, or a literal printed in decimal
	Hex                        // Int: a 32-bit literal; of a 64-bit float its high half
	Float                      // Float: an inline floating point constant
	Name                       // Text: off, lds addresses such as src_shared_base, ...
	Counter                    // Text and Int: vmcnt(3) of s_waitcnt, gpr_idx(SRC0) of s_set_gpr_idx_on
)

// Operand is one operand as written.
type Operand struct {
	Kind  OperandKind
	Text  string // without sign and bars
	Reg   int
	Count int // registers
	Int   int64
	Float float64
	Neg   bool // -x
	Abs   bool // |x|
	Sext  bool // sext(x), of SDWA
}

// Registers of wave.s beside the general ones.
const (
	regFlatScratch = 102
	regVCC         = 106
	regM0          = 124
	regEXEC        = 126
	numSGPRs       = 128
)

// specialSGPRs are the scalar registers with names.
var specialSGPRs = map[string][2]int{ // register, count
	"flat_scratch": {regFlatScratch, 2}, "flat_scratch_lo": {regFlatScratch, 1}, "flat_scratch_hi": {regFlatScratch + 1, 1},
	"vcc": {regVCC, 2}, "vcc_lo": {regVCC, 1}, "vcc_hi": {regVCC + 1, 1},
	"m0":   {regM0, 1},
	"exec": {regEXEC, 2}, "exec_lo": {regEXEC, 1}, "exec_hi": {regEXEC + 1, 1},
}

// errorf makes an error that names the instruction.
func (in *Inst) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", in.place(), in.Text, fmt.Errorf(format, args...))
}

// place is where the instruction stands, for people.
func (in *Inst) place() string { return fmt.Sprintf("%s+0x%x", in.Func, in.Offset-in.Start) }

// mod returns a modifier's value.
func (in *Inst) mod(key string) (string, bool) {
	for _, m := range in.Mods {
		if m.Key == key {
			return m.Value, true
		}
	}
	return "", false
}

// has tells whether the mnemonic begins with one of the prefixes.
func (in *Inst) has(prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(in.Op, p) {
			return true
		}
	}
	return false
}
