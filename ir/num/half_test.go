package num

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// wide describes the two 16-bit formats to the tests.
var wide = []struct {
	name             string
	expBits, manBits int
	bits             func(float32) uint16
	from             func(uint16) float32
	round            func(float32) float32
	round64          func(float64) float32
}{
	{"bf16", 8, 7, BF16Bits, FromBF16, RoundBF16, RoundBF16F64},
	{"f16", 5, 10, F16Bits, FromF16, RoundF16, RoundF16F64},
}

func TestWideAllPatterns(t *testing.T) {
	for _, f := range wide {
		bias, top := 1<<(f.expBits-1)-1, 1<<f.expBits-1
		for c := range uint32(1 << 16) {
			got := f.from(uint16(c))
			want := float32(refValue(c, f.expBits, f.manBits, bias))
			if int(c>>f.manBits)&top == top {
				want = float32(math.NaN())
				if c&(1<<f.manBits-1) == 0 {
					want = float32(math.Inf(1 - 2*int(c>>15)))
				}
			}
			if !sameFloat(got, want) {
				t.Fatalf("%s: pattern %#04x is %v, want %v", f.name, c, got, want)
			}
			if back := f.bits(got); back != uint16(c) {
				t.Fatalf("%s: pattern %#04x comes back as %#04x", f.name, c, back)
			}
			if r := f.round(got); !sameFloat(r, got) {
				t.Fatalf("%s: rounding the representable %v gives %v", f.name, got, r)
			}
		}
	}
}

func TestWideNearestEven(t *testing.T) {
	for _, f := range wide {
		bias, inf := 1<<(f.expBits-1)-1, (1<<f.expBits-1)<<f.manBits
		g := newGrid(inf+1, f.expBits, f.manBits, bias) // infinity stands at twice the largest power
		for _, x := range g.probes(200000) {
			if x != x {
				if r := f.round(x); r == r {
					t.Fatalf("%s: NaN %#08x rounds to %v", f.name, math.Float32bits(x), r)
				}
				continue
			}
			want := uint16(g.nearest(float64(x)))
			if math.Signbit(float64(x)) {
				want |= 0x8000
			}
			if got := f.bits(x); got != want {
				t.Fatalf("%s: %v (%#08x) encodes to %#04x, want %#04x", f.name, x, math.Float32bits(x), got, want)
			}
		}
	}
}

// TestWideSingleRounding checks the float64 entry points against exact integer
// arithmetic, mostly next to ties, where a detour through float32 goes wrong.
func TestWideSingleRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, f := range wide {
		bias := 1<<(f.expBits-1) - 1
		twice := 0
		for i := range 200000 {
			// A float64 tie of the format, moved by one ulp up or down or not at all.
			code := r.Uint32N(1<<(f.expBits+f.manBits) - 1<<f.manBits)
			lo := refValue(code, f.expBits, f.manBits, bias)
			hi := refValue(code+1, f.expBits, f.manBits, bias)
			x := (lo + hi) / 2
			switch i % 4 {
			case 0:
				x = math.Nextafter(x, math.Inf(1))
			case 1:
				x = math.Nextafter(x, 0)
			case 2:
				x = lo + (hi-lo)*r.Float64()
			}
			if i&8 != 0 {
				x = -x
			}
			want := exactRound(x, f.manBits, bias)
			if got := f.round64(x); !sameFloat(got, want) {
				t.Fatalf("%s: %x rounds to %x, want %x", f.name, x, got, want)
			}
			if !sameFloat(f.round(float32(x)), want) {
				twice++
			}
		}
		if twice == 0 {
			t.Errorf("%s: no probe distinguishes one rounding from two", f.name)
		}
		for x, want := range map[float64]float32{
			math.Inf(1): float32(math.Inf(1)), math.Inf(-1): float32(math.Inf(-1)), math.NaN(): float32(math.NaN()),
			1e300: float32(math.Inf(1)), -1e300: float32(math.Inf(-1)), 1e-300: 0,
			-1e-300: float32(math.Copysign(0, -1)), 0: 0,
		} {
			if got := f.round64(x); !sameFloat(got, want) {
				t.Errorf("%s: %v rounds to %v, want %v", f.name, x, got, want)
			}
		}
	}
}

// exactRound rounds finite x to manBits+1 significant bits with rational
// arithmetic.
func exactRound(x float64, manBits, bias int) float32 {
	if x == 0 {
		return float32(x)
	}
	_, e := math.Frexp(x) // |x| in [2^(e-1), 2^e)
	unit := max(e-1, 1-bias) - manBits
	q := new(big.Rat).SetFloat64(math.Abs(x))
	scale := new(big.Rat).SetFloat64(math.Ldexp(1, -unit))
	q.Mul(q, scale)
	n, rem := new(big.Int).QuoRem(q.Num(), q.Denom(), new(big.Int))
	switch c := rem.Lsh(rem, 1).Cmp(q.Denom()); {
	case c > 0, c == 0 && n.Bit(0) == 1:
		n.Add(n, big.NewInt(1))
	}
	v := math.Ldexp(float64(n.Int64()), unit)
	if v >= math.Ldexp(1, bias+1) {
		v = math.Inf(1)
	}
	return float32(math.Copysign(v, x))
}

func TestWideTies(t *testing.T) {
	for _, c := range []struct {
		f    func(float32) uint16
		x    float32
		want uint16
	}{
		{BF16Bits, 1 + 0x1p-8, 0x3F80},
		{BF16Bits, 1 + 0x1p-7 + 0x1p-8, 0x3F82},
		{BF16Bits, math.MaxFloat32, 0x7F80},
		{BF16Bits, -0x1p-134, 0x8000},
		{BF16Bits, math.Float32frombits(0x7F800001), 0x7FC0},
		{F16Bits, 1 + 0x1p-11, 0x3C00},
		{F16Bits, 1 + 0x1p-10 + 0x1p-11, 0x3C02},
		{F16Bits, 65519.996, 0x7BFF},
		{F16Bits, 65520, 0x7C00},
		{F16Bits, 0x1p-25, 0x0000},
		{F16Bits, 0x1.000002p-25, 0x0001},
		{F16Bits, -0x1.ffffep-15, 0x8400},
		{F16Bits, math.Float32frombits(0xFF800001), 0xFE00},
	} {
		if got := c.f(c.x); got != c.want {
			t.Errorf("%x encodes to %#04x, want %#04x", c.x, got, c.want)
		}
	}
}
