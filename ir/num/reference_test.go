package num

import (
	"math"
	"math/rand/v2"
	"sort"
)

// refValue computes the value of a code from the definition of an IEEE-like
// format, in exact double arithmetic: sign, exponent field, mantissa field.
// Codes that mean NaN or infinity are the business of the caller.
func refValue(code uint32, expBits, manBits, bias int) float64 {
	sign := 1.0
	if code>>(expBits+manBits)&1 == 1 {
		sign = -1
	}
	e := int(code >> manBits & (1<<expBits - 1))
	frac := float64(code&(1<<manBits-1)) / float64(int(1)<<manBits)
	if e == 0 {
		return sign * frac * math.Pow(2, float64(1-bias))
	}
	return sign * (1 + frac) * math.Pow(2, float64(e-bias))
}

// grid lists the non-negative values of a format in order of their codes, and
// the midpoints between neighbours. Both are exact doubles for every format
// here, so comparing with them is exact.
type grid struct {
	values, mids []float64
}

func newGrid(n, expBits, manBits, bias int) grid {
	var g grid
	for c := range n {
		g.values = append(g.values, refValue(uint32(c), expBits, manBits, bias))
		if c > 0 {
			g.mids = append(g.mids, (g.values[c-1]+g.values[c])/2)
		}
	}
	return g
}

// nearest returns the code nearest to |x|, the even one on a tie, the last one
// for everything above.
func (g grid) nearest(x float64) int {
	x = math.Abs(x)
	i := sort.SearchFloat64s(g.mids, x) // first midpoint >= x
	if i < len(g.mids) && g.mids[i] == x && i%2 == 1 {
		return i + 1
	}
	return i
}

// probes returns float32 numbers that stress rounding to g: every value, every
// midpoint, their float32 neighbours, random patterns and special values.
func (g grid) probes(random int) []float32 {
	inf := float32(math.Inf(1))
	xs := []float32{0, inf, math.MaxFloat32, math.SmallestNonzeroFloat32, 0x1p-126, 0x1p-127, 1e-7, 464, 65519, 65520}
	for _, list := range [][]float64{g.values, g.mids} {
		for _, v := range list {
			x := float32(v)
			xs = append(xs, x, math.Nextafter32(x, inf), math.Nextafter32(x, -inf))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	lo, hi := math.Float32bits(float32(g.values[1])), math.Float32bits(float32(g.values[len(g.values)-1]))
	lo -= min(lo, 3<<23)
	hi = min(hi+3<<23, 0x7F800000)
	for range random {
		xs = append(xs, math.Float32frombits(r.Uint32()), math.Float32frombits(lo+r.Uint32N(hi-lo)))
	}
	for _, x := range xs[:len(xs):len(xs)] {
		xs = append(xs, -x)
	}
	return xs
}

// sameFloat compares bit patterns, all NaNs being equal.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}
