package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// castOf is the meaning of a cast of one number, given as v for integers and x
// otherwise. ok is false where it must be refused.
func castOf(from, to ir.DType, x float64, v int64) (y float64, w int64, ok bool) {
	fromInt, toInt := intBounds[from] != [2]int64{}, intBounds[to] != [2]int64{}
	_, fromCode := grids[from]
	fromCode = fromCode && grids[from].sat || from == ir.E8M0
	switch {
	case fromInt && toInt:
		return 0, v, intBounds[to][0] <= v && v <= intBounds[to][1]
	case toInt:
		if fromCode || x != x {
			return 0, 0, false
		}
		w := math.Trunc(x)
		lo, hi := float64(intBounds[to][0]), float64(intBounds[to][1]) // hi of i64 rounds up to 2^63
		if w < lo || w > hi || to == ir.I64 && w == hi {
			return 0, 0, false
		}
		return 0, int64(w), true
	case fromInt:
		// An integer must be exact in float64, and in f32 on its way to a code.
		p := 53
		if grids[to].sat || to == ir.E8M0 {
			p = 24
		}
		if !fits(v, p) {
			return 0, 0, false
		}
		x = float64(v)
	}
	if to == ir.E8M0 {
		return codeValue(ir.E8M0, powerAtLeast(x)), 0, true
	}
	return roundTo(to, x), 0, true
}

// fits reports whether v has at most p significant bits.
func fits(v int64, p int) bool {
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	for u != 0 && u%2 == 0 {
		u /= 2
	}
	return u>>p == 0
}

// wantCast checks one cast of many elements: those that must be refused are
// cast one by one, the others together.
func wantCast(t rapid.TB, x *Tensor, to ir.DType) {
	t.Helper()
	var values []float64
	if x.I == nil {
		values = floats(x)
	}
	what := fmt.Sprintf("cast %s to %s", x.DType, to)
	var keep []int
	var wantF []float64
	var wantI []int64
	refusals := 0
	for i := range x.Len() {
		var v int64
		var f float64
		if x.I != nil {
			v = x.I[i]
		} else if f = values[i]; f != f && to == ir.F4E2M1 {
			continue // e2m1 has no NaN
		}
		y, w, ok := castOf(x.DType, to, f, v)
		if ok {
			keep, wantF, wantI = append(keep, i), append(wantF, y), append(wantI, w)
			continue
		}
		if refusals++; refusals > 20 {
			continue
		}
		if got, err := apply(t, "cast", ir.A("to", to), picked(x, i, i)); err == nil {
			t.Fatalf("%s of %s gives %s, want an error", what, show(x, i), show(got[0], 0))
		}
	}
	if len(keep) == 0 {
		return
	}
	if len(keep)%2 == 1 { // packed formats come in pairs
		keep, wantF, wantI = append(keep, keep[0]), append(wantF, wantF[0]), append(wantI, wantI[0])
	}
	got := apply1(t, "cast", ir.A("to", to), picked(x, keep...))
	wantShape(t, what, got, to, len(keep))
	if got.I != nil {
		wantInts(t, what, got, wantI)
	} else {
		wantFloats(t, what, got, wantF)
	}
}

// picked lists elements of x as a vector.
func picked(x *Tensor, at ...int) *Tensor {
	y := zeroTensor(x.DType, len(at))
	for i, a := range at {
		switch {
		case x.F != nil:
			y.F[i] = x.F[a]
		case x.I != nil:
			y.I[i] = x.I[a]
		case x.DType == ir.F4E2M1:
			y.Codes[i/2] |= byte(cell(x, a)) << (4 * (i % 2))
		default:
			y.Codes[i] = x.Codes[a]
		}
	}
	return y
}

func castProp(t *rapid.T) {
	from := rapid.SampledFrom(allTypes).Draw(t, "from")
	to := rapid.SampledFrom(without(allTypes, ir.Bool)).Draw(t, "to")
	n := rapid.IntRange(1, 9).Draw(t, "n")
	if from == ir.F4E2M1 {
		n *= 2
	}
	wantCast(t, drawTensor(t, from, n), to)
}

// Every number of every small format to every format, and many f32 and integers
// near the borders of the targets.
func TestCastExhaustive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, from := range allTypes {
		var x *Tensor
		switch from {
		case ir.BF16, ir.F16:
			x = zeroTensor(from, 1<<16)
			for i := range x.F {
				if x.F[i] = math.Float32frombits(uint32(i) << 16); from == ir.F16 {
					x.F[i] = float32(halfValue(uint16(i)))
				}
			}
		case ir.F32:
			x = f32Probes(r)
		case ir.I64, ir.I32:
			x = intProbes(from)
		case ir.I8, ir.U8, ir.Bool:
			lo, hi := intBounds[from][0], intBounds[from][1]
			x = zeroTensor(from, int(hi-lo)+1)
			for i := range x.I {
				x.I[i] = lo + int64(i)
			}
		case ir.F4E2M1:
			x = zeroTensor(from, 16)
			for i := range x.Codes {
				x.Codes[i] = byte(2*i) | byte(2*i+1)<<4
			}
		default:
			x = zeroTensor(from, 256)
			for i := range x.Codes {
				x.Codes[i] = byte(i)
			}
		}
		for _, to := range without(allTypes, ir.Bool) {
			wantCast(t, x, to)
		}
	}
}

// f32Probes has the values of the narrow formats, the midpoints between them and
// their f32 neighbours, integers' borders, and random patterns.
func f32Probes(r *rand.Rand) *Tensor {
	var v []float32
	add := func(x float64) {
		f := float32(x)
		for _, y := range []float32{f, math.Nextafter32(f, float32(math.Inf(1))), math.Nextafter32(f, float32(math.Inf(-1)))} {
			v = append(v, y, -y)
		}
	}
	for _, dt := range codeTypes {
		for c := range 256 {
			if dt == ir.F4E2M1 && c > 15 {
				break
			}
			x := codeValue(dt, byte(c))
			add(x)
			add(x + math.Ldexp(1, -10)) // midpoints of the subnormals of e4m3
			add(x * (1 + 0x1p-4))
			add(x * (1 + 0x1p-2))
		}
	}
	for e := -149; e <= 127; e++ {
		add(math.Ldexp(1, e))
		add(math.Ldexp(1.5, e))
	}
	for _, x := range []float64{0, math.Inf(1), math.NaN(), math.MaxFloat32, 65504, 65520, 448, 464, 240, 248, 127, 128, 255, 256, 0x1p31, 0x1p62, 0x1.8p62, 0x1p63} {
		add(x)
	}
	for range 20000 {
		v = append(v, math.Float32frombits(r.Uint32()))
		m := float32(r.NormFloat64())
		v = append(v, m*100)
	}
	return f32s(v, len(v))
}

func intProbes(dt ir.DType) *Tensor {
	lo, hi := intBounds[dt][0], intBounds[dt][1]
	seen := map[int64]bool{}
	var v []int64
	add := func(x int64) {
		if x >= lo && x <= hi && !seen[x] {
			seen[x] = true
			v = append(v, x)
		}
	}
	for e := range 63 {
		for d := int64(-2); d <= 2; d++ {
			add(1<<e + d)
			add(-1<<e + d)
		}
		add(1<<e + 1<<(e/2))
	}
	add(lo)
	add(lo + 1)
	add(hi)
	add(hi - 1)
	return &Tensor{DType: dt, Shape: []int{len(v)}, I: v}
}

func TestCastRefusals(t *testing.T) {
	i64 := func(v int64) *Tensor { return &Tensor{DType: ir.I64, Shape: []int{2}, I: []int64{v, v}} }
	for _, c := range []struct {
		x    *Tensor
		to   ir.DType
		want string
	}{
		{f32s([]float32{1, float32(math.NaN())}, 2), ir.I32, "NaN is out of range of i32"},
		{f32s([]float32{float32(math.Inf(-1))}, 1), ir.I64, "-Inf is out of range of i64"},
		{f32s([]float32{-1}, 1), ir.U8, "-1 is out of range of u8"},
		{f32s([]float32{0x1p31}, 1), ir.I32, "2147483648 is out of range of i32"},
		{f32s([]float32{0x1p63}, 1), ir.I64, "out of range of i64"},
		{i64(300), ir.U8, "300 is out of range of u8"},
		{i64(math.MaxInt64), ir.F32, "9223372036854775807 is not exact"},
		{i64(1<<24 + 1), ir.F8E4M3, "16777217 is not exact"},
		{zeroTensor(ir.F8E4M3, 2), ir.I32, "cast from f8e4m3 to i32"},
	} {
		if _, err := apply(t, "cast", ir.A("to", c.to), c.x); !matches(err, c.want) {
			t.Errorf("cast %v %v to %s: error %v, want %q", c.x.F, c.x.I, c.to, err, c.want)
		}
	}
}
