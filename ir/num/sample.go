package num

import (
	"math"
	"math/bits"
)

// The numbers that op sample draws with. All but two f32 operations are on integers,
// whose sums do not depend on their order: code for any device gives the same bits.

const (
	// WeightBits is how much the largest logit weighs, as a power of 2.
	WeightBits = 40
	// WeightFraction is how many bits an exponent has after its point.
	WeightFraction = 24
)

// Exp2Coefs are the coefficients, times 2^31, of the polynomial through 2^-z at the
// seven Chebyshev-Lobatto nodes of 0..1, from z^0 up. It falls everywhere, and is
// within 2^-27 of 2^-z, relatively.
var Exp2Coefs = [...]int64{2147483648, -1488522094, 515879020, -119169285, 20576659, -2741033, 234908}

// WeightScale is what turns a distance of logits into an exponent of 2 at a
// temperature above 0. It is finite.
func WeightScale(temperature float32) float32 {
	return min(float32(math.Log2E)/temperature, math.MaxFloat32)
}

// Weight is 2^40 2^-a in integers, for a logit that is below the largest one by
// below, which is at least 0, where a = below scale; 0 where a >= 41.
func Weight(below, scale float32) int64 {
	a := below * scale
	if !(a < WeightBits+1) {
		return 0
	}
	fixed := int64(a * (1 << WeightFraction)) // the product is exact, what is cut off below 2^-24
	z := fixed & (1<<WeightFraction - 1)
	p := Exp2Coefs[len(Exp2Coefs)-1]
	for i := len(Exp2Coefs) - 2; i >= 0; i-- {
		p = Exp2Coefs[i] + (p*z)>>WeightFraction
	}
	return p << (WeightBits - 31) >> (fixed >> WeightFraction)
}

// Multipliers and key increments of Philox4x32.
const (
	PhiloxM0, PhiloxM1 = 0xD2511F53, 0xCD9E8D57
	PhiloxW0, PhiloxW1 = 0x9E3779B9, 0xBB67AE85
	PhiloxRounds       = 10
)

// Philox is a block of the counter-based generator Philox4x32-10 (Salmon, Moraes,
// Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011).
func Philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	c := counter
	for range PhiloxRounds {
		p0, p1 := uint64(PhiloxM0)*uint64(c[0]), uint64(PhiloxM1)*uint64(c[2])
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ c[3] ^ key[1], uint32(p0)}
		key[0], key[1] = key[0]+PhiloxW0, key[1]+PhiloxW1
	}
	return c
}

// Draw is a number below total, which is above 0, that seed and pos decide: the upper
// half of the product of total and the first two words of a block, the second one
// above the first.
func Draw(seed uint64, pos uint32, total int64) int64 {
	b := Philox([4]uint32{pos}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	high, _ := bits.Mul64(uint64(b[1])<<32|uint64(b[0]), uint64(total))
	return int64(high)
}

// Share is the least weight that is topP of a total, in 32 bits of topP, which is
// above 0 and below 1: ceil(floor(2^32 topP) total / 2^32), and at least 1.
func Share(topP float32, total int64) int64 {
	q := uint64(topP * (1 << 32))
	high, low := q*(uint64(total)>>32), q*(uint64(total)&math.MaxUint32)
	return max(1, int64(high+(low+math.MaxUint32)>>32))
}
