package eval

import (
	"math"

	"github.com/kiln-project/kiln/ir"
)

// The reference of these tests: number formats from their definitions in exact
// float64 arithmetic, and explicit index arithmetic. It shares no code with the
// package or with ir/num.

// grid is a binary floating-point format: p significant bits, smallest normal
// 2^emin, largest value max; overflow saturates or gives an infinity.
type grid struct {
	p, emin int
	max     float64
	sat     bool
}

var grids = map[ir.DType]grid{
	ir.F32:        {24, -126, math.MaxFloat32, false},
	ir.BF16:       {8, -126, 0x1.FEp127, false},
	ir.F16:        {11, -14, 65504, false},
	ir.F8E4M3:     {4, -6, 448, true},
	ir.F8E4M3FNUZ: {4, -7, 240, true},
	ir.F4E2M1:     {2, 0, 6, true},
}

// roundTo rounds x once to nearest even on the grid of dt.
func roundTo(dt ir.DType, x float64) float64 {
	g := grids[dt]
	if g.sat {
		x = math.Max(-g.max, math.Min(g.max, x)) // NaN stays
	}
	if x == 0 || x != x || math.IsInf(x, 0) {
		if dt == ir.F8E4M3FNUZ && x == 0 {
			return 0 // no negative zero
		}
		return x
	}
	_, exp := math.Frexp(x) // 2^(exp-1) <= |x| < 2^exp
	ulp := max(exp-1, g.emin) - (g.p - 1)
	r := math.Ldexp(math.RoundToEven(math.Ldexp(x, -ulp)), ulp)
	if math.Abs(r) > g.max {
		return math.Copysign(math.Inf(1), x)
	}
	if dt == ir.F8E4M3FNUZ && r == 0 {
		return 0
	}
	return r
}

func r32(x float64) float64 { return roundTo(ir.F32, x) }
func r16(x float64) float64 { return roundTo(ir.BF16, x) } // b(.) of dsv4.md

// codeValue decodes one code from its sign, exponent and mantissa fields.
func codeValue(dt ir.DType, c byte) float64 {
	field := func(man, expBits, bias int) float64 {
		sign := 1.0
		if c>>(man+expBits)&1 == 1 {
			sign = -1
		}
		e, m := int(c>>man)&(1<<expBits-1), float64(int(c)&(1<<man-1))/float64(int(1)<<man)
		if e == 0 {
			return sign * math.Ldexp(m, 1-bias)
		}
		return sign * math.Ldexp(1+m, e-bias)
	}
	switch dt {
	case ir.F8E4M3:
		if c&0x7F == 0x7F {
			return math.NaN()
		}
		return field(3, 4, 7)
	case ir.F8E4M3FNUZ:
		if c == 0x80 {
			return math.NaN()
		}
		return field(3, 4, 8)
	case ir.F4E2M1:
		return field(1, 2, 1)
	case ir.E8M0:
		if c == 255 {
			return math.NaN()
		}
		return math.Ldexp(1, int(c)-127)
	}
	panic("not a code format: " + dt.String())
}

// powerAtLeast is the e8m0 byte of the smallest power of two >= x, found by
// trying them all.
func powerAtLeast(x float64) byte {
	if !(x >= 0) || math.IsInf(x, 1) {
		return 255
	}
	for c := range 255 {
		if math.Ldexp(1, c-127) >= x {
			return byte(c)
		}
	}
	return 255
}

var intBounds = map[ir.DType][2]int64{
	ir.I64: {math.MinInt64, math.MaxInt64}, ir.I32: {math.MinInt32, math.MaxInt32},
	ir.I8: {-128, 127}, ir.U8: {0, 255}, ir.Bool: {0, 1},
}

// each calls f with every index of a shape, row-major.
func each(shape []int, f func(ix []int)) {
	ix := make([]int, len(shape))
	var walk func(axis int)
	walk = func(axis int) {
		if axis == len(shape) {
			f(ix)
			return
		}
		for ix[axis] = 0; ix[axis] < shape[axis]; ix[axis]++ {
			walk(axis + 1)
		}
		ix[axis] = 0
	}
	walk(0)
}

// flat is the row-major position of an index.
func flat(shape []int, ix ...int) int {
	p := 0
	for i, s := range shape {
		p = p*s + ix[i]
	}
	return p
}

// repeated is the position in an operand of a result's index: a rank-0 operand
// and extents of 1 repeat.
func repeated(shape, ix []int) int {
	if len(shape) == 0 {
		return 0
	}
	p := 0
	for i, s := range shape {
		p *= s
		if s > 1 {
			p += ix[i]
		}
	}
	return p
}

func size(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// cell is element i as it is stored: the bits of a float, an integer, a code.
func cell(t *Tensor, i int) uint64 {
	switch {
	case t.F != nil:
		return uint64(math.Float32bits(t.F[i]))
	case t.I != nil:
		return uint64(t.I[i])
	case t.DType == ir.F4E2M1:
		return uint64(t.Codes[i/2] >> (4 * (i & 1)) & 15)
	}
	return uint64(t.Codes[i])
}

// scaleByte is the block scale of the element at ix.
func scaleByte(t *Tensor, ix []int) byte {
	p := 0
	for a, s := range t.Shape {
		at := ix[a]
		if i := a - (len(ix) - 2); i >= 0 {
			b := t.Quant.Block[i]
			s, at = (s+b-1)/b, at/b
		}
		p = p*s + at
	}
	return t.Scales[p]
}

// floats reads a tensor as exact float64 values, block scales applied.
func floats(t *Tensor) []float64 {
	out := make([]float64, 0, size(t.Shape))
	each(t.Shape, func(ix []int) {
		i := len(out)
		var v float64
		switch {
		case t.F != nil:
			v = float64(t.F[i])
		case t.I != nil:
			v = float64(t.I[i])
		default:
			v = codeValue(t.DType, byte(cell(t, i)))
		}
		if t.Quant != nil {
			v *= codeValue(ir.E8M0, scaleByte(t, ix))
		}
		out = append(out, v)
	})
	return out
}

// dotOf is sum a_i b_i in float64 in index order.
func dotOf(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func sumOf(a []float64) float64 {
	s := 0.0
	for _, v := range a {
		s += v
	}
	return s
}
