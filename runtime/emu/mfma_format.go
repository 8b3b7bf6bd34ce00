package emu

import (
	"math"

	"github.com/kiln-project/kiln/ir/num"
)

// matrixFormat is the type of a matrix operand's elements.
type matrixFormat uint8

const (
	formatSelectable matrixFormat = iota // chosen by a modifier
	formatF64
	formatF32
	formatXF32
	formatF16
	formatBF16
	formatI8
	formatFP8
	formatBF8
	formatFP6
	formatBF6
	formatFP4
)

// bits is the size of an element.
func (f matrixFormat) bits() int {
	return [...]int{formatF64: 64, formatF32: 32, formatXF32: 32, formatF16: 16, formatBF16: 16, formatI8: 8, formatFP8: 8, formatBF8: 8, formatFP6: 6, formatBF6: 6, formatFP4: 4}[f]
}

// decoder returns the function that reads elements as numbers: src holds one at bit
// shift of each word, next the words that follow for those that go on there. The
// 8-bit formats of gfx942 are FNUZ, those of gfx950 OCP. f64 and i8 need none.
func (f matrixFormat) decoder(chip string) func(dst []float32, src, next []uint32, shift uint) {
	fp8, bf8 := &valuesFP8, &valuesBF8
	if chip == "gfx942" {
		fp8, bf8 = &valuesFP8FNUZ, &valuesBF8FNUZ
	}
	switch f {
	case formatF32:
		return decodeF32
	case formatXF32:
		return decodeXF32
	case formatF16:
		return decodeF16
	case formatBF16:
		return decodeBF16
	case formatFP8:
		return decodeTable(fp8)
	case formatBF8:
		return decodeTable(bf8)
	case formatFP6:
		return decodeSplit(&valuesFP6)
	case formatBF6:
		return decodeSplit(&valuesBF6)
	case formatFP4:
		return decodeTable(&valuesFP4)
	}
	return nil
}

func decodeF32(dst []float32, src, _ []uint32, _ uint) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = math.Float32frombits(x)
	}
}

// decodeXF32 rounds to a mantissa of 10 bits.
func decodeXF32(dst []float32, src, _ []uint32, _ uint) {
	dst = dst[:len(src)]
	for i, x := range src {
		if x&0x7fffffff < 0x7f800000 {
			x = (x + 0xfff + x>>13&1) &^ 0x1fff
		}
		dst[i] = math.Float32frombits(x)
	}
}

func decodeF16(dst []float32, src, _ []uint32, shift uint) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = num.FromF16(uint16(x >> (shift & 31)))
	}
}

func decodeBF16(dst []float32, src, _ []uint32, shift uint) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = math.Float32frombits(x >> (shift & 31) << 16)
	}
}

// decodeTable reads codes of 8 or 4 bits: the table of the latter repeats itself.
func decodeTable(t *[256]float32) func(dst []float32, src, _ []uint32, shift uint) {
	return func(dst []float32, src, _ []uint32, shift uint) {
		dst = dst[:len(src)]
		for i, x := range src {
			dst[i] = t[x>>(shift&31)&0xff]
		}
	}
}

// decodeSplit reads codes that may go on in the next word.
func decodeSplit(t *[256]float32) func(dst []float32, src, next []uint32, shift uint) {
	return func(dst []float32, src, next []uint32, shift uint) {
		dst, next = dst[:len(src)], next[:len(src)]
		for i, x := range src {
			dst[i] = t[uint8((uint64(next[i])<<32|uint64(x))>>(shift&31))]
		}
	}
}

// The values of codes. Tables of codes with fewer than 8 bits ignore the others.
var (
	valuesFP8     = smallFloat{exp: 4, man: 3, bias: 7, special: specialNaN}.values()
	valuesBF8     = smallFloat{exp: 5, man: 2, bias: 15, special: specialIEEE}.values()
	valuesFP8FNUZ = smallFloat{exp: 4, man: 3, bias: 8, special: specialFNUZ}.values()
	valuesBF8FNUZ = smallFloat{exp: 5, man: 2, bias: 16, special: specialFNUZ}.values()
	valuesFP6     = smallFloat{exp: 2, man: 3, bias: 1}.values()
	valuesBF6     = smallFloat{exp: 3, man: 2, bias: 3}.values()
	valuesFP4     = smallFloat{exp: 2, man: 1, bias: 1}.values()
	scaleValues   = e8m0Values()
)

// smallFloat is a format of at most 8 bits: sign, exponent, mantissa.
type smallFloat struct {
	exp, man, bias int
	special        specialCodes
}

// specialCodes are those that are no numbers.
type specialCodes uint8

const (
	specialNone specialCodes = iota
	specialNaN               // all ones, of either sign, is NaN (OCP e4m3)
	specialIEEE              // the largest exponent is infinity and NaN (OCP e5m2)
	specialFNUZ              // the code of -0 is NaN
)

func (f smallFloat) values() (t [256]float32) {
	sign := 1 << (f.exp + f.man)
	for code := range t {
		e, m := code&(sign-1)>>f.man, code&(1<<f.man-1)
		v := math.Ldexp(float64(m), 1-f.bias-f.man)
		if e > 0 {
			v = math.Ldexp(float64(m+1<<f.man), e-f.bias-f.man)
		}
		switch full := e == 1<<f.exp-1; {
		case f.special == specialNaN && full && m == 1<<f.man-1, f.special == specialIEEE && full && m != 0, f.special == specialFNUZ && code == sign:
			v = math.NaN()
		case f.special == specialIEEE && full:
			v = math.Inf(1)
		}
		if code&sign != 0 {
			v = -v
		}
		t[code] = float32(v)
	}
	return t
}

func e8m0Values() (t [256]float64) {
	for code := range t {
		t[code] = math.Ldexp(1, code-127)
	}
	t[255] = math.NaN()
	return t
}
