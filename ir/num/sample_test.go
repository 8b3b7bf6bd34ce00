package num

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// Vectors that the authors publish with their implementation (Random123, kat_vectors).
func TestPhilox(t *testing.T) {
	const all = math.MaxUint32
	for _, tc := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Philox(tc.counter, tc.key); got != tc.want {
			t.Errorf("Philox(%x, %x) is %x, want %x", tc.counter, tc.key, got, tc.want)
		}
	}
}

// The polynomial falls over all 2^24 places, stays in an octave, and is as near as
// its comment says.
func TestExp2(t *testing.T) {
	last, worst := int64(math.MaxInt64), 0.0
	for z := range 1 << WeightFraction {
		// A scale of 1 makes the distance the exponent.
		below := float32(z) / (1 << WeightFraction)
		w := Weight(below, 1)
		if w > last {
			t.Fatalf("the weight of %v is %d, above %d just before", below, w, last)
		}
		last = w
		worst = max(worst, math.Abs(float64(w)*math.Exp2(float64(below)-WeightBits)-1))
	}
	if one := Weight(0, 1); one != 1<<WeightBits || last < 1<<(WeightBits-1) {
		t.Errorf("the octave is %d..%d", last, one)
	}
	if worst > 0x1p-27 {
		t.Errorf("the relative error is %g", worst)
	}
}

func TestWeight(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, tc := range []struct {
		below, scale float32
		want         int64
	}{
		{0, 1, 1 << 40}, {1, 1, 1 << 39}, {0.5, 2, 1 << 39}, {40, 1, 1}, {39.5, 1, 1}, {40.99, 1, 0}, {41, 1, 0}, {inf, 1, 0},
		{0, math.MaxFloat32, 1 << 40}, {0x1p-149, math.MaxFloat32, (1<<31 - 622) << 9}, {math.MaxFloat32, 2, 0},
		{inf, WeightScale(math.MaxFloat32), 0},
	} {
		if got := Weight(tc.below, tc.scale); got != tc.want {
			t.Errorf("Weight(%g, %g) is %d, want %d", tc.below, tc.scale, got, tc.want)
		}
	}
	if s := WeightScale(0x1p-149); s != math.MaxFloat32 {
		t.Errorf("the scale of the smallest temperature is %g", s)
	}
}

// Draw and Share, in numbers of any size.
func TestDrawAndShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		total := r.Int64N(1<<62) >> r.IntN(62) // also small ones
		total = max(total, 1)
		seed, pos := r.Uint64(), r.Uint32()
		b := Philox([4]uint32{pos, 0, 0, 0}, [2]uint32{uint32(seed), uint32(seed >> 32)})
		want := new(big.Int).SetUint64(uint64(b[0]) + uint64(b[1])<<32)
		want.Rsh(want.Mul(want, big.NewInt(total)), 64)
		if got := Draw(seed, pos, total); got != want.Int64() {
			t.Fatalf("Draw(%d, %d, %d) is %d, want %d", seed, pos, total, got, want)
		}
		p := r.Float32()
		if p == 0 {
			continue
		}
		q := new(big.Int).SetInt64(int64(float64(p) * (1 << 32)))
		q.Mul(q, big.NewInt(total)).Add(q, big.NewInt(1<<32-1)).Rsh(q, 32)
		if got := Share(p, total); got != max(1, q.Int64()) {
			t.Fatalf("Share(%v, %d) is %d, want %d", p, total, got, q)
		}
	}
	if got := Share(0x1p-40, 1<<30); got != 1 {
		t.Errorf("the share of nearly nothing is %d, want 1", got)
	}
	if got := Share(math.Nextafter32(1, 0), 1<<62); got > 1<<62 || got < 1<<62-1<<39 {
		t.Errorf("the share of nearly all is %d", got)
	}
}
