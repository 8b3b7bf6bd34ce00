package emu

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// compile turns one instruction into a step. It asks the compiler for operands and
// modifiers; what it did not ask for is an error, so nothing is ignored.
type compile func(c *compiler) step

// instructions is the table of all instructions, by mnemonic without the suffix of
// the encoding. Each file of instructions adds its own in an init.
var instructions = map[string]instruction{}

// instruction is a row of the table.
type instruction struct {
	compile compile
	// chips restricts the instruction; nil is every chip. LLVM has been seen to
	// encode what the chip does not have.
	chips []string
}

// define adds rows; a mnemonic that is there already is a mistake in the tables.
func define(rows map[string]compile, chips ...string) {
	for _, op := range slices.Sorted(maps.Keys(rows)) {
		if _, twice := instructions[op]; twice {
			panic("emu: instruction " + op + " is defined twice")
		}
		instructions[op] = instruction{rows[op], chips}
	}
}

// compiler compiles one instruction.
type compiler struct {
	chip    string
	in      *Inst
	k       *Kernel
	used    map[string]bool // modifiers asked for
	args    int             // operands asked for: all below
	indexed bool            // the kernel uses s_set_gpr_idx_on
	uses    uses
	err     error
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// compileInst compiles one instruction of kernel k, and says which registers it uses.
func compileInst(k *Kernel, in *Inst, indexed bool) (step, uses, error) {
	row, ok := instructions[in.Op]
	if !ok {
		return nil, uses{}, in.errorf("unknown instruction %s", in.Op)
	}
	if row.chips != nil && !slices.Contains(row.chips, k.chip) {
		return nil, uses{}, in.errorf("%s has no instruction %s", k.chip, in.Op)
	}
	c := &compiler{chip: k.chip, in: in, k: k, used: map[string]bool{}, indexed: indexed, uses: uses{class: classOf(in)}}
	s := row.compile(c)
	for _, m := range in.Mods {
		if !c.used[m.Key] {
			c.fail("modifier %s is not supported here", m.Key)
		}
	}
	if c.args != len(in.Args) {
		c.fail("%d operands, %d are understood", len(in.Args), c.args)
	}
	if c.err != nil {
		return nil, uses{}, in.errorf("%w", c.err)
	}
	c.uses.data = c.uses.dataWords(in)
	return s, c.uses, nil
}

// arg returns operand i.
func (c *compiler) arg(i int) *Operand {
	c.args = max(c.args, i+1)
	if i >= len(c.in.Args) {
		c.fail("operand %d is missing", i+1)
		return &Operand{}
	}
	return &c.in.Args[i]
}

// flag tells whether a modifier without a value is there.
func (c *compiler) flag(key string) bool {
	v, ok := c.in.mod(key)
	c.used[key] = true
	if ok && v != "" {
		c.fail("modifier %s has a value", key)
	}
	return ok
}

// value returns a modifier's value as written, or def.
func (c *compiler) value(key, def string) string {
	c.used[key] = true
	if v, ok := c.in.mod(key); ok {
		return v
	}
	return def
}

// number returns an integer modifier, or def.
func (c *compiler) number(key string, def int) int {
	v := c.value(key, "")
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 0, 32)
	if err != nil {
		c.fail("modifier %s:%s: not a number", key, v)
	}
	return int(n)
}

// bits returns a modifier such as op_sel:[0,1] as bits, the first at the low end,
// of n entries; def stands for all of them if it is absent.
func (c *compiler) bits(key string, n int, def uint) uint {
	v := c.value(key, "")
	if v == "" {
		return def
	}
	inner, ok := wrapped(v, "[", "]")
	list, err := splitOperands(inner)
	if !ok || err != nil || len(list) != n {
		c.fail("modifier %s:%s: not %d bits", key, v, n)
		return def
	}
	x := uint(0)
	for i, b := range list {
		switch b {
		case "0":
		case "1":
			x |= 1 << i
		default:
			c.fail("modifier %s:%s: not bits", key, v)
		}
	}
	return x
}

// encodings fails unless the instruction has one of the encodings.
func (c *compiler) encodings(ok ...Encoding) {
	if !slices.Contains(ok, c.in.Enc) {
		c.fail("this encoding of %s is not supported", c.in.Op)
	}
}

// plain fails if an operand has a sign, bars or sext that its user does not apply.
func (c *compiler) plain(o *Operand) *Operand {
	if o.Neg || o.Abs || o.Sext {
		c.fail("operand %s takes no modifiers", o.Text)
	}
	return o
}
