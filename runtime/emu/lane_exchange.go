package emu

import (
	"math/bits"
	"strconv"
	"strings"
)

// DS instructions that exchange data between lanes and touch no memory. A lane that
// is off gives 0 to those that read from it.

func init() {
	define(map[string]compile{
		"ds_bpermute_b32": dsBpermute,
		"ds_permute_b32":  dsPermute,
		"ds_swizzle_b32":  dsSwizzle,
	})
}

// dsBpermute: each lane names the lane that it reads from, times 4.
func dsBpermute(c *compiler) step {
	d, a, s := c.vectorDest(0, 1), c.addressRegister(1, 1), c.vectorData(2, 1)
	offset := uint32(c.number("offset", 0))
	return func(w *wave) {
		from, data, t := &w.v[a], &w.v[s], &w.result[0]
		exec := w.exec()
		for i, x := range from {
			t[i] = data[(x+offset)>>2&(Lanes-1)]
		}
		if exec == fullMask {
			w.v[d] = *t
			return
		}
		for i, x := range from {
			if exec>>((x+offset)>>2&(Lanes-1))&1 == 0 {
				t[i] = 0
			}
		}
		write(&w.v[d], t, exec)
	}
}

// dsPermute: each lane names the lane that it writes to. If several write to one, the
// last of them wins.
func dsPermute(c *compiler) step {
	d, a, s := c.vectorDest(0, 1), c.addressRegister(1, 1), c.vectorData(2, 1)
	offset := uint32(c.number("offset", 0))
	return func(w *wave) {
		to, data, t := &w.v[a], &w.v[s], &w.result[0]
		*t = Vec{}
		for m := w.exec(); m != 0; m &= m - 1 {
			i := lowest(m)
			t[(to[i]+offset)>>2&(Lanes-1)] = data[i]
		}
		write(&w.v[d], t, w.exec())
	}
}

// dsSwizzle: the instruction names the lanes to read from, by a pattern within groups of
// 32 lanes, or of 4.
func dsSwizzle(c *compiler) step {
	d, s := c.vectorDest(0, 1), c.vectorData(1, 1)
	from, err := swizzlePattern(c.value("offset", "0"))
	if err != "" {
		c.fail("modifier offset: %s", err)
	}
	return func(w *wave) {
		data, t, exec := &w.v[s], &w.result[0], w.exec()
		for i, j := range &from {
			t[i] = data[j&(Lanes-1)]
			if exec>>j&1 == 0 {
				t[i] = 0
			}
		}
		write(&w.v[d], t, exec)
	}
}

// swizzlePattern returns the lane that each lane reads, and what is wrong with the
// pattern. The disassembler writes swizzle(MODE,...), or the number if it finds no
// mode for it.
func swizzlePattern(s string) (from [Lanes]uint8, problem string) {
	inner, ok := wrapped(s, "swizzle(", ")")
	if !ok {
		n, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			return from, "swizzle pattern " + s + " is no number"
		}
		return swizzleBits(uint(n)), ""
	}
	mode, rest, _ := strings.Cut(inner, ",")
	if mode == "BITMASK_PERM" {
		return bitmaskPattern(rest)
	}
	var n []uint
	for _, f := range strings.Split(rest, ",") {
		x, err := strconv.ParseUint(strings.TrimSpace(f), 0, 8)
		if err != nil {
			return from, "swizzle pattern " + s + " has what is no number"
		}
		n = append(n, uint(x))
	}
	type want struct {
		args int
		ok   func() bool
		bits func() uint
	}
	power := func(x, most uint) bool { return x > 0 && x <= most && x&(x-1) == 0 }
	w, known := map[string]want{
		"QUAD_PERM": {4, func() bool { return max(n[0], n[1], n[2], n[3]) < 4 }, func() uint { return 1<<15 | n[0] | n[1]<<2 | n[2]<<4 | n[3]<<6 }},
		"SWAP":      {1, func() bool { return power(n[0], 16) }, func() uint { return n[0]<<10 | 31 }},
		"REVERSE":   {1, func() bool { return power(n[0], 32) }, func() uint { return (n[0]-1)<<10 | 31 }},
		"BROADCAST": {2, func() bool { return power(n[0], 32) && n[1] < n[0] }, func() uint { return n[1]<<5 | (32 - n[0]) }},
		"ROTATE":    {2, func() bool { return n[0] < 2 && n[1] < 32 }, func() uint { return 0xc000 | n[0]<<10 | n[1]<<5 }},
		"FFT":       {1, func() bool { return n[0] < 32 }, func() uint { return 0xe000 | n[0] }},
	}[mode]
	if !known || len(n) != w.args || !w.ok() {
		return from, "swizzle pattern " + s + " is not known"
	}
	return swizzleBits(w.bits()), ""
}

// bitmaskPattern reads a string of a character per bit of the lane's number, the
// highest first: 0 and 1 set it, p leaves it, i inverts it.
func bitmaskPattern(s string) (from [Lanes]uint8, problem string) {
	inner, ok := wrapped(s, `"`, `"`)
	if !ok || len(inner) != 5 || strings.Trim(inner, "01pi") != "" {
		return from, "swizzle pattern " + s + " is not five of 0, 1, p and i"
	}
	and, or, xor := uint(0), uint(0), uint(0)
	for i, c := range inner {
		bit := uint(16) >> i
		switch c {
		case '1':
			or |= bit
		case 'p':
			and |= bit
		case 'i':
			and, xor = and|bit, xor|bit
		}
	}
	return swizzleBits(xor<<10 | or<<5 | and), ""
}

// swizzleBits decodes the offset field (MI300 ISA, "DS_SWIZZLE_B32").
func swizzleBits(n uint) (from [Lanes]uint8) {
	for i := range uint(Lanes) {
		j := uint(0)
		low, group := i&31, i&32
		switch {
		case n >= 0xe000: // FFT: the lane's number bit-reversed, but for the bits of the mask
			mask := n & 31
			j = low
			if mask != 31 {
				reversed := uint(bits.Reverse8(uint8(low)) >> 3)
				j = reversed>>bits.OnesCount(mask) | low&mask
			}
		case n >= 0xc000: // rotation, of the bits that the mask does not keep
			mask, by := n&31, n>>5&31
			if n>>10&1 != 0 {
				by = -by
			}
			j = low&mask | (low+by)&^mask&31
		case n >= 0x8000: // four lanes, two bits for each
			j = low&^3 | n>>(2*(low&3))&3
		default:
			j = (low&(n&31) | n>>5&31) ^ n>>10&31
		}
		from[i] = uint8(j | group)
	}
	return from
}
