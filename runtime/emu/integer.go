package emu

import (
	"math"
	"math/bits"
)

// Functions of integers for the generated loops.

func addSat(a, b uint32) uint32 {
	r, carry := bits.Add32(a, b, 0)
	return r | -carry
}

func subSat(a, b uint32) uint32 { return a - min(a, b) }

func satU32(x uint64) uint32 { return uint32(min(x, math.MaxUint32)) }

func satI32(x int64) int32 { return int32(min(max(x, math.MinInt32), math.MaxInt32)) }

func clampI16(x int32) int16 { return int16(min(max(x, math.MinInt16), math.MaxInt16)) }

func clampU8(x int16) uint32 { return uint32(min(max(x, 0), 255)) }

// ffbh is the number of zeros before the first one from the top, all ones if there is
// none.
func ffbh(a uint32) uint32 {
	if a == 0 {
		return ^uint32(0)
	}
	return uint32(bits.LeadingZeros32(a))
}

// ffbhSigned is the number of bits equal to the sign, all ones if all are.
func ffbhSigned(a int32) uint32 { return ffbh(uint32(a ^ a>>31)) }

func ffbl(a uint32) uint32 {
	if a == 0 {
		return ^uint32(0)
	}
	return uint32(bits.TrailingZeros32(a))
}

// bfe is the field of width bits at offset, bfeSigned with its sign.
func bfe(a, offset, width uint32) uint32 {
	return a >> (offset & 31) & (1<<(width&31) - 1)
}

func bfeSigned(a, offset, width uint32) uint32 {
	if width &= 31; width == 0 {
		return 0
	}
	sign := uint32(1) << (width - 1)
	return bfe(uint32(int32(a)>>(offset&31)), 0, width) ^ sign - sign
}

// permute chooses four bytes of a and b: 0-3 are those of b, 4-7 of a, 8-11 the sign
// of each halfword, 12 is zero and more is all ones.
func permute(a, b, selectors uint32) uint32 {
	all := uint64(a)<<32 | uint64(b)
	r := uint32(0)
	for k := uint32(0); k < 32; k += 8 {
		v := uint32(0xff)
		switch s := selectors >> k & 0xff; {
		case s < 8:
			v = uint32(all>>(8*s)) & 0xff
		case s < 12:
			v = -uint32(all>>(16*(s-8)+15)&1) & 0xff
		case s == 12:
			v = 0
		}
		r |= v << k
	}
	return r
}

// permuteLoop is the loop of permute. The selectors are mostly those of one scalar,
// and mostly choose bytes.
func permuteLoop(d, a, b, c *Vec) {
	last := ^c[0]
	var s [4]uint32
	bytes := false
	for i := range d {
		if c[i] != last {
			last = c[i]
			bytes = last&0xf8f8f8f8 == 0
			for k := range s {
				s[k] = last >> (8 * k) & 7 * 8
			}
		}
		if !bytes {
			d[i] = permute(a[i], b[i], last)
			continue
		}
		all := uint64(a[i])<<32 | uint64(b[i])
		d[i] = uint32(all>>(s[0]&63)&0xff | all>>(s[1]&63)&0xff<<8 | all>>(s[2]&63)&0xff<<16 | all>>(s[3]&63)&0xff<<24)
	}
}

// sad8 and sad16 are sums of absolute differences of bytes and of halfwords.
func sad8(a, b uint32) uint32 {
	r := uint32(0)
	for k := 0; k < 32; k += 8 {
		x, y := a>>k&0xff, b>>k&0xff
		r += max(x, y) - min(x, y)
	}
	return r
}

func sad16(a, b uint32) uint32 {
	x, y := a&0xffff, b&0xffff
	r := max(x, y) - min(x, y)
	x, y = a>>16, b>>16
	return r + max(x, y) - min(x, y)
}
