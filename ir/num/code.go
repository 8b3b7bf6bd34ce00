package num

import "math"

// Format names an element format of block-scaled data: codes of at most eight
// bits that are multiplied by one power-of-two scale per block.
type Format uint8

// The element formats.
const (
	// FmtE4M3 is OCP e4m3fn: bias 7, largest value 448, NaN 0x7F and 0xFF, no
	// infinity.
	FmtE4M3 Format = iota
	// FmtE4M3FNUZ is the variant of some accelerators: bias 8, largest value
	// 240, one zero, NaN 0x80 only.
	FmtE4M3FNUZ
	// FmtE2M1 is the 4-bit float with the values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and
	// their negatives; no NaN, no infinity.
	FmtE2M1
)

// spec describes a Format.
type spec struct {
	name      string
	man, bias uint
	signShift uint    // moves the sign of a float32 pattern to the sign bit of the code
	max       float32 // largest magnitude
	nan       byte    // what NaN encodes to
	negZero   bool    // whether the code with only the sign bit set is -0
	values    [256]float32
}

// specs is indexed by Format.
var specs = [...]spec{
	FmtE4M3:     {name: "e4m3", man: 3, bias: 7, signShift: 24, max: 448, nan: 0x7F, negZero: true},
	FmtE4M3FNUZ: {name: "e4m3fnuz", man: 3, bias: 8, signShift: 24, max: 240, nan: 0x80},
	FmtE2M1:     {name: "e2m1", man: 1, bias: 1, signShift: 28, max: 6, nan: 7, negZero: true},
}

func init() {
	for i := range specs {
		specs[i].fill()
	}
}

// fill computes the value of every code.
func (s *spec) fill() {
	sign := uint32(f32Sign) >> s.signShift
	for c := range uint32(len(s.values)) {
		e, m := int(c&(sign-1)>>s.man), float64(c&(1<<s.man-1))
		if e == 0 {
			e = 1
		} else {
			m += float64(uint(1) << s.man)
		}
		v := float32(math.Ldexp(m, e-int(s.bias)-int(s.man)))
		if v > s.max || c == sign && !s.negZero {
			v = float32(math.NaN())
		}
		if c&sign != 0 {
			v = -v
		}
		s.values[c] = v
	}
}

// encode rounds x to the nearest code after clamping to the largest magnitude.
func (s *spec) encode(x float32) byte {
	b := math.Float32bits(x)
	a := b &^ f32Sign
	if a > f32Inf {
		return s.nan
	}
	// The patterns of non-negative floats are ordered like their values.
	c := encodeMagnitude(min(a, math.Float32bits(s.max)), s.man, s.bias)
	if c != 0 || s.negZero {
		c |= b & f32Sign >> s.signShift
	}
	return byte(c)
}

// Valid reports whether f is one of the formats of this package.
func (f Format) Valid() bool { return int(f) < len(specs) }

// String returns the lower-case name of the format.
func (f Format) String() string {
	if !f.Valid() {
		return "invalid"
	}
	return specs[f].name
}

// Max returns the largest magnitude of the format: 448, 240 or 6; NaN for a
// Format that is not Valid.
func (f Format) Max() float32 {
	if !f.Valid() {
		return float32(math.NaN())
	}
	return specs[f].max
}

// Encode returns the code nearest to x, ties to even, after clamping to ±Max.
// NaN gives the format's NaN, or the largest code for e2m1, which has none. A
// Format that is not Valid gives 0.
func (f Format) Encode(x float32) byte {
	if !f.Valid() {
		return 0
	}
	return specs[f].encode(x)
}

// Decode returns the value of a code; e2m1 reads the low four bits only. A
// Format that is not Valid gives NaN.
func (f Format) Decode(code byte) float32 {
	if !f.Valid() {
		return float32(math.NaN())
	}
	return specs[f].values[code]
}

// E4M3 encodes x as OCP e4m3fn: nearest even after clamping to ±448 (infinities
// included); NaN gives 0x7F.
func E4M3(x float32) byte { return specs[FmtE4M3].encode(x) }

// FromE4M3 returns the value of an e4m3fn code; 0x7F and 0xFF are NaN.
func FromE4M3(b byte) float32 { return specs[FmtE4M3].values[b] }

// E4M3FNUZ encodes x as e4m3fnuz: nearest even after clamping to ±240
// (infinities included). All that rounds to zero, of either sign, gives 0x00,
// because 0x80 is the format's NaN, which NaN gives.
func E4M3FNUZ(x float32) byte { return specs[FmtE4M3FNUZ].encode(x) }

// FromE4M3FNUZ returns the value of an e4m3fnuz code; 0x80 is NaN.
func FromE4M3FNUZ(b byte) float32 { return specs[FmtE4M3FNUZ].values[b] }

// E2M1 encodes x as e2m1 in the low four bits: nearest even on the grid 0, 0.5,
// 1, 1.5, 2, 3, 4, 6 after clamping to ±6 (infinities included). e2m1 has no
// NaN: NaN saturates to code 7 (6), and a caller that must keep it marks the
// block's scale, as QuantizeBlock does.
func E2M1(x float32) byte { return specs[FmtE2M1].encode(x) }

// FromE2M1 returns the value of the e2m1 code in the low four bits; the upper
// four are ignored.
func FromE2M1(code byte) float32 { return specs[FmtE2M1].values[code] }
