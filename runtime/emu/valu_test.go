package emu

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// laneCase is an instruction and what it computes: of the low bits of its sources, to
// the low bits of its destination.
type laneCase struct {
	op    string
	types string // of the result and the sources, as in valuKinds
	want  func(s [3]uint64) uint64
}

// valuKind is a type of operands: its size and the values that tests use beside random
// ones.
type valuKind struct {
	bits    int
	float   bool
	special []uint64
}

var valuKinds = map[string]valuKind{
	"u32": {32, false, []uint64{0, 1, 2, 15, 16, 31, 32, 33, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0xffff, 0x10000, 0xffffff, 0x1000000}},
	"f32": {32, true, wide(bothSigns(special32))},
	"u16": {16, false, []uint64{0, 1, 2, 15, 16, 17, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff, 255, 256}},
	"f16": {16, true, []uint64{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x401, 0x3c00, 0xbc00, 0x3c01, 0x3bff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x5c00, 0x3800, 0x4248}},
	"u64": {64, false, []uint64{0, 1, 63, 64, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0xffffffff, 0x100000000}},
	"f64": {64, true, []uint64{0, 1 << 63, 1, 1<<52 - 1, 1 << 52, 0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001, 0x3fefffffffffffff, 0x7fefffffffffffff, 0xffefffffffffffff,
		0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x4330000000000001, 0x41dfffffffc00000, 0xc1e0000000000000, 0x41efffffffe00000, 0x3fe0000000000000, 0x4004000000000000}},
	"exp": {32, false, []uint64{0, 1, 2, 24, 126, 127, 128, 149, 150, 254, 300, 1100, 2200, 0xffffffff, 0xffffff82, 0xffffff6a, 0xfffffc00, 0xfffff700, 0x7fffffff, 0x80000000}},
}

func wide(list []uint32) []uint64 {
	var r []uint64
	for _, x := range list {
		r = append(r, uint64(x))
	}
	return r
}

func (k valuKind) words() int { return (k.bits + 31) / 32 }

func (k valuKind) pick(r *rand.Rand) uint64 {
	if r.IntN(2) == 0 {
		return k.special[r.IntN(len(k.special))]
	}
	x := r.Uint64() >> (64 - k.bits)
	if !k.float && r.IntN(2) == 0 {
		x >>= r.IntN(k.bits) // small numbers
	}
	return x
}

// register names the registers of operand i: 0 the destination, then the sources.
func register(i, words int) string {
	r := 10 + 4*i
	if words == 1 {
		return fmt.Sprintf("v%d", r)
	}
	return fmt.Sprintf("v[%d:%d]", r, r+words-1)
}

// sameLane takes all NaNs as equal.
func sameLane(k valuKind, a, b uint64) bool {
	if a == b || !k.float {
		return a == b
	}
	switch k.bits {
	case 16:
		return isNaN16(uint16(a)) && isNaN16(uint16(b))
	case 32:
		return isNaN32(uint32(a)) && isNaN32(uint32(b))
	}
	return isNaN64(a) && isNaN64(b)
}

// run executes the instruction on random and special values: with all lanes, with some
// switched off, and with the destination among the sources.
func (c laneCase) run(t *testing.T, chip, suffix, modifiers string) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, uint64(len(c.op))))
	kinds := strings.Fields(c.types)
	d := valuKinds[kinds[0]]
	for alias := range len(kinds) {
		if alias > 0 && valuKinds[kinds[alias]].words() != d.words() {
			continue
		}
		operands := []string{register(alias, d.words())}
		for i, kind := range kinds[1:] {
			operands = append(operands, register(i+1, valuKinds[kind].words()))
		}
		k := snippet(t, chip, c.op+suffix+" "+strings.Join(operands, ", ")+modifiers)
		at := 10 + 4*alias
		for round := range 12 {
			exec := ^uint64(0)
			if round%2 == 1 {
				exec = r.Uint64()
			}
			var in [Lanes][4]uint64
			w := runWave(t, k, func(w *wave) {
				w.setExec(exec)
				for lane := range Lanes {
					in[lane][0] = r.Uint64()
					for i, kind := range kinds {
						if i > 0 {
							in[lane][i] = valuKinds[kind].pick(r)
						}
						x := in[lane][i]
						if valuKinds[kind].bits == 16 { // the other half must not matter
							x |= uint64(r.Uint32()) << 16 & 0xffffffff
							in[lane][i] = x
						}
						w.v[10+4*i][lane], w.v[11+4*i][lane] = uint32(x), uint32(x>>32)
					}
				}
			})
			for lane := range Lanes {
				got := uint64(w.v[at][lane])
				if d.words() == 2 {
					got |= uint64(w.v[at+1][lane]) << 32
				}
				if exec>>lane&1 == 0 {
					if want := in[lane][alias] & (1<<(32*d.words()) - 1); got != want && d.words() == 1 || d.words() == 2 && got != in[lane][alias] {
						t.Fatalf("%s: lane %d is off and has %#x, want the old %#x", k.insts[0].Text, lane, got, want)
					}
					continue
				}
				var s [3]uint64
				for i, kind := range kinds[1:] {
					s[i] = in[lane][i+1]
					if b := valuKinds[kind].bits; b < 64 {
						s[i] &= 1<<b - 1
					}
				}
				want := c.want(s)
				if d.bits == 16 && preserving[c.op] {
					want |= in[lane][alias] & 0xffff0000
				}
				if !sameLane(d, got&mask(d, c.op), want&mask(d, c.op)) || got&^mask(d, c.op) != want&^mask(d, c.op) {
					t.Fatalf("%s: of %#x got %#x, want %#x", k.insts[0].Text, s[:len(kinds)-1], got, want)
				}
			}
		}
	}
}

// mask is the part of a result that is a number.
func mask(d valuKind, op string) uint64 {
	if d.bits == 16 {
		return 0xffff
	}
	return math.MaxUint64
}

func f32of(x uint64) float64   { return float64(math.Float32frombits(uint32(x))) }
func f32bits(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }
func f64of(x uint64) float64   { return math.Float64frombits(x) }
func i32(x uint64) int64       { return int64(int32(x)) }
func u32(x int64) uint64       { return uint64(uint32(x)) }
func i24(x uint64) int64       { return int64(int32(x)<<8) >> 8 }
func finite(list ...float64) bool {
	return !slices.ContainsFunc(list, func(x float64) bool { return math.IsInf(x, 0) || x != x })
}

// exactFMA is a*b + c without rounding; ok is false if that is no number, or a zero
// whose sign follows other rules.
func exactFMA(a, b, c float64) (x *big.Float, ok bool) {
	if !finite(a, b, c) {
		return nil, false
	}
	exact := func(x float64) *big.Float { return new(big.Float).SetPrec(5000).SetFloat64(x) }
	r := new(big.Float).SetPrec(5000).Mul(exact(a), exact(b))
	r.Add(r, exact(c))
	return r, r.Sign() != 0
}

func wantFMA32(s [3]uint64) uint64 {
	a, b, c := f32of(s[0]), f32of(s[1]), f32of(s[2])
	x, ok := exactFMA(a, b, c)
	if !ok {
		return f32bits(math.FMA(a, b, c)) // exact, or special
	}
	r, _ := x.Float32()
	return uint64(math.Float32bits(r))
}

// halfValues are all non-negative finite halves in order.
var halfValues = func() (list []float64) {
	for c := range 0x7c00 {
		e, m := c>>10, c&0x3ff
		if e == 0 {
			list = append(list, math.Ldexp(float64(m), -24))
		} else {
			list = append(list, math.Ldexp(float64(1024+m), e-25))
		}
	}
	return list
}()

func halfValue(h uint64) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	switch m := h & 0x7fff; {
	case m > 0x7c00:
		return math.NaN()
	case m == 0x7c00:
		return math.Inf(int(sign))
	default:
		return math.Copysign(halfValues[m], sign)
	}
}

// nearestHalf searches the half nearest to x, which is exact.
func nearestHalf(x *big.Float, negative bool) uint64 {
	a := new(big.Float).Abs(x)
	lo, _ := slices.BinarySearchFunc(halfValues, a, func(v float64, a *big.Float) int { return big.NewFloat(v).Cmp(a) })
	// lo is the first that is not less than a.
	sign := uint64(0)
	if negative {
		sign = 0x8000
	}
	value := func(i int) *big.Float {
		if i == len(halfValues) {
			return big.NewFloat(65536) // rounding sees the next power of two
		}
		return big.NewFloat(halfValues[i])
	}
	if lo == 0 {
		return sign
	}
	if a.Cmp(big.NewFloat(65536)) >= 0 {
		return sign | 0x7c00
	}
	down := new(big.Float).SetPrec(5000).Sub(a, value(lo-1))
	up := new(big.Float).SetPrec(5000).Sub(value(lo), a)
	if c := down.Cmp(up); c < 0 || c == 0 && (lo-1)&1 == 0 {
		lo--
	}
	return sign | uint64(lo)
}

// half rounds an exact f64.
func half(x float64) uint64 {
	switch {
	case x != x:
		return 0x7e00
	case math.IsInf(x, 0):
		return 0x7c00 | math.Float64bits(x)>>63<<15
	}
	return nearestHalf(big.NewFloat(x), math.Signbit(x))
}

func wantFMA16(s [3]uint64) uint64 {
	a, b, c := halfValue(s[0]), halfValue(s[1]), halfValue(s[2])
	x, ok := exactFMA(a, b, c)
	if !ok {
		return half(math.FMA(a, b, c))
	}
	return nearestHalf(x, x.Signbit())
}

// order compares floatFormat, with -0 below 0.
func order(a, b float64) bool { return a < b || a == b && math.Signbit(a) && !math.Signbit(b) }

// floatFormat is a type: its values, and the bit that a quiet NaN has.
type floatFormat struct {
	value func(uint64) float64
	quiet uint64
}

var (
	single   = floatFormat{f32of, 1 << 22}
	double   = floatFormat{f64of, 1 << 51}
	halves16 = floatFormat{halfValue, 1 << 9}
)

// number picks the one of two floats that comes first; a quiet NaN only if both are, a
// signaling one always.
func number(a, b uint64, f floatFormat, first func(a, b float64) bool) uint64 {
	x, y := f.value(a), f.value(b)
	switch {
	case x != x && a&f.quiet == 0:
		return a | f.quiet
	case y != y && b&f.quiet == 0:
		return b | f.quiet
	case x != x:
		return b
	case y != y || first(x, y):
		return a
	}
	return b
}

func greater(a, b float64) bool { return order(b, a) }

func middle(s [3]uint64, f floatFormat) uint64 {
	for _, x := range s {
		if v := f.value(x); v != v {
			return number(number(s[0], s[1], f, order), s[2], f, order)
		}
	}
	list := s[:]
	slices.SortStableFunc(list, func(a, b uint64) int {
		if order(f.value(a), f.value(b)) {
			return -1
		}
		return 1
	})
	return list[1]
}

func clampTo(x, lo, hi int64) int64 {
	if x < lo {
		return lo
	}
	if x > hi {
		return hi
	}
	return x
}

func toInteger(x, lo, hi float64) int64 {
	switch {
	case x != x:
		return 0
	case x < lo:
		return int64(lo)
	case x > hi:
		return int64(hi)
	}
	return int64(math.Trunc(x))
}

// bitField reads bits by division, one by one.
func bitField(x uint64, from, n int) uint64 {
	r := uint64(0)
	for i := range n {
		if from+i < 64 {
			r |= x >> (from + i) & 1 << i
		}
	}
	return r
}

// flushed is f32 with denormals as zeros.
func flushed(x uint64) float64 {
	if v := f32of(x); math.Abs(v) < 0x1p-126 {
		return math.Copysign(0, v)
	}
	return f32of(x)
}

func flushedResult(x float64) uint64 {
	r := f32bits(x)
	if r&0x7f800000 == 0 {
		r &= 0x80000000
	}
	return r
}

var laneCases = []laneCase{
	{"v_mov_b32", "u32 u32", func(s [3]uint64) uint64 { return s[0] }},
	{"v_mov_b64", "u64 u64", func(s [3]uint64) uint64 { return s[0] }},
	{"v_not_b32", "u32 u32", func(s [3]uint64) uint64 { return 0xffffffff - s[0] }},
	{"v_bfrev_b32", "u32 u32", func(s [3]uint64) uint64 {
		r := uint64(0)
		for i := range 32 {
			r |= bitField(s[0], i, 1) << (31 - i)
		}
		return r
	}},
	{"v_ffbh_u32", "u32 u32", func(s [3]uint64) uint64 {
		for i := range uint64(32) {
			if bitField(s[0], 31-int(i), 1) != 0 {
				return i
			}
		}
		return 0xffffffff
	}},
	{"v_ffbh_i32", "u32 u32", func(s [3]uint64) uint64 {
		for i := range uint64(32) {
			if bitField(s[0], 31-int(i), 1) != s[0]>>31 {
				return i
			}
		}
		return 0xffffffff
	}},
	{"v_ffbl_b32", "u32 u32", func(s [3]uint64) uint64 {
		for i := range uint64(32) {
			if bitField(s[0], int(i), 1) != 0 {
				return i
			}
		}
		return 0xffffffff
	}},
	{"v_add_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return (s[0] + s[1]) & 0xffffffff }},
	{"v_sub_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return (s[0] - s[1]) & 0xffffffff }},
	{"v_subrev_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return (s[1] - s[0]) & 0xffffffff }},
	{"v_add_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i32(s[0]) + i32(s[1])) }},
	{"v_sub_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i32(s[0]) - i32(s[1])) }},
	{"v_and_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] & s[1] }},
	{"v_or_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] | s[1] }},
	{"v_xor_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] ^ s[1] }},
	{"v_xnor_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] ^ s[1] ^ 0xffffffff }},
	{"v_lshlrev_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[1] << (s[0] % 32) & 0xffffffff }},
	{"v_lshrrev_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[1] >> (s[0] % 32) }},
	{"v_ashrrev_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i32(s[1]) >> (s[0] % 32)) }},
	{"v_mul_lo_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] * s[1] & 0xffffffff }},
	{"v_mul_hi_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] * s[1] >> 32 }},
	{"v_mul_hi_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i32(s[0]) * i32(s[1]) >> 32) }},
	{"v_mul_u32_u24", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] % (1 << 24) * (s[1] % (1 << 24)) & 0xffffffff }},
	{"v_mul_i32_i24", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i24(s[0]) * i24(s[1])) }},
	{"v_mul_hi_u32_u24", "u32 u32 u32", func(s [3]uint64) uint64 { return s[0] % (1 << 24) * (s[1] % (1 << 24)) >> 32 }},
	{"v_mul_hi_i32_i24", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(i24(s[0]) * i24(s[1]) >> 32) }},
	{"v_mad_u32_u24", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (s[0]%(1<<24)*(s[1]%(1<<24)) + s[2]) & 0xffffffff }},
	{"v_mad_i32_i24", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return u32(i24(s[0])*i24(s[1]) + i32(s[2])) }},
	{"v_max_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return max(s[0], s[1]) }},
	{"v_min_u32", "u32 u32 u32", func(s [3]uint64) uint64 { return min(s[0], s[1]) }},
	{"v_max_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(max(i32(s[0]), i32(s[1]))) }},
	{"v_min_i32", "u32 u32 u32", func(s [3]uint64) uint64 { return u32(min(i32(s[0]), i32(s[1]))) }},
	{"v_max3_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return slices.Max(s[:]) }},
	{"v_min3_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return slices.Min(s[:]) }},
	{"v_med3_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { slices.Sort(s[:]); return s[1] }},
	{"v_max3_i32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return u32(max(i32(s[0]), i32(s[1]), i32(s[2]))) }},
	{"v_min3_i32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return u32(min(i32(s[0]), i32(s[1]), i32(s[2]))) }},
	{"v_med3_i32", "u32 u32 u32 u32", func(s [3]uint64) uint64 {
		l := []int64{i32(s[0]), i32(s[1]), i32(s[2])}
		slices.Sort(l)
		return u32(l[1])
	}},
	{"v_add3_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (s[0] + s[1] + s[2]) & 0xffffffff }},
	{"v_lshl_add_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (s[0]<<(s[1]%32) + s[2]) & 0xffffffff }},
	{"v_lshl_or_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (s[0]<<(s[1]%32) | s[2]) & 0xffffffff }},
	{"v_add_lshl_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (s[0] + s[1]) << (s[2] % 32) & 0xffffffff }},
	{"v_and_or_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return s[0]&s[1] | s[2] }},
	{"v_or3_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return s[0] | s[1] | s[2] }},
	{"v_xad_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return ((s[0] ^ s[1]) + s[2]) & 0xffffffff }},
	{"v_bfe_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return bitField(s[0], int(s[1]%32), int(s[2]%32)) }},
	{"v_bfe_i32", "u32 u32 u32 u32", func(s [3]uint64) uint64 {
		n := int(s[2] % 32)
		x := int64(bitField(uint64(i32(s[0])), int(s[1]%32), n))
		if n > 0 && x >= 1<<(n-1) {
			x -= 1 << n
		}
		return u32(x)
	}},
	{"v_bfi_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 {
		r := uint64(0)
		for i := range 32 {
			from := s[2]
			if bitField(s[0], i, 1) == 1 {
				from = s[1]
			}
			r |= bitField(from, i, 1) << i
		}
		return r
	}},
	{"v_bfm_b32", "u32 u32 u32", func(s [3]uint64) uint64 {
		r := uint64(0)
		for i := range s[0] % 32 {
			r |= 1 << (i + s[1]%32)
		}
		return r & 0xffffffff
	}},
	{"v_alignbit_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return bitField(s[0]<<32|s[1], int(s[2]%32), 32) }},
	{"v_alignbyte_b32", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return bitField(s[0]<<32|s[1], int(s[2]%4)*8, 32) }},
	{"v_bcnt_u32_b32", "u32 u32 u32", func(s [3]uint64) uint64 { return (uint64(bits.OnesCount64(s[0])) + s[1]) & 0xffffffff }},
	{"v_sad_u32", "u32 u32 u32 u32", func(s [3]uint64) uint64 {
		return u32(max(int64(s[0])-int64(s[1]), int64(s[1])-int64(s[0])) + int64(s[2]))
	}},
	{"v_sad_u8", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (absoluteDifferences(s[0], s[1], 8) + s[2]) & 0xffffffff }},
	{"v_sad_hi_u8", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (absoluteDifferences(s[0], s[1], 8)*65536 + s[2]) & 0xffffffff }},
	{"v_sad_u16", "u32 u32 u32 u32", func(s [3]uint64) uint64 { return (absoluteDifferences(s[0], s[1], 16) + s[2]) & 0xffffffff }},

	{"v_add_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return f32bits(f32of(s[0]) + f32of(s[1])) }}, // f64 sums and products of f32 round the same
	{"v_sub_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return f32bits(f32of(s[0]) - f32of(s[1])) }},
	{"v_subrev_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return f32bits(f32of(s[1]) - f32of(s[0])) }},
	{"v_mul_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return f32bits(f32of(s[0]) * f32of(s[1])) }},
	{"v_mul_legacy_f32", "f32 f32 f32", func(s [3]uint64) uint64 {
		if f32of(s[0]) == 0 || f32of(s[1]) == 0 {
			return 0
		}
		return f32bits(f32of(s[0]) * f32of(s[1]))
	}},
	{"v_max_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return number(s[0], s[1], single, greater) }},
	{"v_min_f32", "f32 f32 f32", func(s [3]uint64) uint64 { return number(s[0], s[1], single, order) }},
	{"v_max3_f32", "f32 f32 f32 f32", func(s [3]uint64) uint64 { return number(number(s[0], s[1], single, greater), s[2], single, greater) }},
	{"v_min3_f32", "f32 f32 f32 f32", func(s [3]uint64) uint64 { return number(number(s[0], s[1], single, order), s[2], single, order) }},
	{"v_med3_f32", "f32 f32 f32 f32", func(s [3]uint64) uint64 { return middle(s, single) }},
	{"v_fma_f32", "f32 f32 f32 f32", wantFMA32},
	{"v_rcp_f32", "f32 f32", func(s [3]uint64) uint64 { return flushedResult(1 / flushed(s[0])) }},
	{"v_rsq_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(1 / math.Sqrt(flushed(s[0]))) }},
	{"v_sqrt_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.Sqrt(flushed(s[0]))) }},
	{"v_exp_f32", "f32 f32", func(s [3]uint64) uint64 { return flushedResult(math.Exp2(flushed(s[0]))) }},
	{"v_log_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.Log2(flushed(s[0]))) }},
	{"v_trunc_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.Trunc(f32of(s[0]))) }},
	{"v_floor_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.Floor(f32of(s[0]))) }},
	{"v_ceil_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.Ceil(f32of(s[0]))) }},
	{"v_rndne_f32", "f32 f32", func(s [3]uint64) uint64 { return f32bits(math.RoundToEven(f32of(s[0]))) }},
	{"v_fract_f32", "f32 f32", func(s [3]uint64) uint64 {
		x := f32of(s[0])
		return min(f32bits(x-math.Floor(x)), 0x3f7fffff|isNaNBit(x-math.Floor(x)))
	}},
	{"v_ldexp_f32", "f32 f32 exp", func(s [3]uint64) uint64 {
		return f32bits(math.Ldexp(f32of(s[0]), int(clampTo(i32(s[1]), -1000, 1000))))
	}},
	{"v_frexp_mant_f32", "f32 f32", func(s [3]uint64) uint64 { m, _ := math.Frexp(f32of(s[0])); return f32bits(m) }},
	{"v_frexp_exp_i32_f32", "u32 f32", func(s [3]uint64) uint64 { return wantExponent(f32of(s[0])) }},

	{"v_cvt_f32_i32", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(i32(s[0]))) }},
	{"v_cvt_f32_u32", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(s[0])) }},
	{"v_cvt_i32_f32", "u32 f32", func(s [3]uint64) uint64 { return u32(toInteger(f32of(s[0]), -1<<31, 1<<31-1)) }},
	{"v_cvt_u32_f32", "u32 f32", func(s [3]uint64) uint64 { return u32(toInteger(f32of(s[0]), 0, 1<<32-1)) }},
	{"v_cvt_flr_i32_f32", "u32 f32", func(s [3]uint64) uint64 { return u32(toInteger(math.Floor(f32of(s[0])), -1<<31, 1<<31-1)) }},
	{"v_cvt_rpi_i32_f32", "u32 f32", func(s [3]uint64) uint64 { return u32(toInteger(math.Floor(f32of(s[0])+.5), -1<<31, 1<<31-1)) }},
	{"v_cvt_f32_f16", "f32 f16", func(s [3]uint64) uint64 { return f32bits(halfValue(s[0])) }},
	{"v_cvt_f16_f32", "f16 f32", func(s [3]uint64) uint64 { return half(f32of(s[0])) }},
	{"v_cvt_f32_f64", "f32 f64", func(s [3]uint64) uint64 { return f32bits(f64of(s[0])) }},
	{"v_cvt_f64_f32", "f64 f32", func(s [3]uint64) uint64 { return math.Float64bits(f32of(s[0])) }},
	{"v_cvt_f64_i32", "f64 u32", func(s [3]uint64) uint64 { return math.Float64bits(float64(i32(s[0]))) }},
	{"v_cvt_f64_u32", "f64 u32", func(s [3]uint64) uint64 { return math.Float64bits(float64(s[0])) }},
	{"v_cvt_i32_f64", "u32 f64", func(s [3]uint64) uint64 { return u32(toInteger(f64of(s[0]), -1<<31, 1<<31-1)) }},
	{"v_cvt_u32_f64", "u32 f64", func(s [3]uint64) uint64 { return u32(toInteger(f64of(s[0]), 0, 1<<32-1)) }},
	{"v_cvt_f32_ubyte0", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(bitField(s[0], 0, 8))) }},
	{"v_cvt_f32_ubyte1", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(bitField(s[0], 8, 8))) }},
	{"v_cvt_f32_ubyte2", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(bitField(s[0], 16, 8))) }},
	{"v_cvt_f32_ubyte3", "f32 u32", func(s [3]uint64) uint64 { return f32bits(float64(bitField(s[0], 24, 8))) }},
	{"v_cvt_off_f32_i4", "f32 u32", func(s [3]uint64) uint64 {
		return f32bits([]float64{0, .0625, .125, .1875, .25, .3125, .375, .4375, -.5, -.4375, -.375, -.3125, -.25, -.1875, -.125, -.0625}[s[0]%16])
	}},
	{"v_cvt_pkrtz_f16_f32", "u32 f32 f32", func(s [3]uint64) uint64 { return halfTowardZero(f32of(s[0])) | halfTowardZero(f32of(s[1]))<<16 }},
	{"v_cvt_pk_u16_u32", "u32 u32 u32", func(s [3]uint64) uint64 {
		return uint64(clampTo(int64(s[0]), 0, 65535) | clampTo(int64(s[1]), 0, 65535)<<16)
	}},
	{"v_cvt_pk_i16_i32", "u32 u32 u32", func(s [3]uint64) uint64 {
		return uint64(uint16(clampTo(i32(s[0]), -32768, 32767))) | uint64(uint16(clampTo(i32(s[1]), -32768, 32767)))<<16
	}},
	{"v_pack_b32_f16", "u32 u16 u16", func(s [3]uint64) uint64 { return s[0] + s[1]*65536 }},
	{"v_sat_pk_u8_i16", "u32 u32", func(s [3]uint64) uint64 {
		return uint64(clampTo(int64(int16(s[0])), 0, 255) + 256*clampTo(int64(int16(s[0]>>16)), 0, 255))
	}},

	{"v_add_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return half(halfValue(s[0]) + halfValue(s[1])) }},
	{"v_sub_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return half(halfValue(s[0]) - halfValue(s[1])) }},
	{"v_subrev_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return half(halfValue(s[1]) - halfValue(s[0])) }},
	{"v_mul_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return half(halfValue(s[0]) * halfValue(s[1])) }},
	{"v_max_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return number(s[0], s[1], halves16, greater) }},
	{"v_min_f16", "f16 f16 f16", func(s [3]uint64) uint64 { return number(s[0], s[1], halves16, order) }},
	{"v_max3_f16", "f16 f16 f16 f16", func(s [3]uint64) uint64 {
		return number(number(s[0], s[1], halves16, greater), s[2], halves16, greater)
	}},
	{"v_min3_f16", "f16 f16 f16 f16", func(s [3]uint64) uint64 { return number(number(s[0], s[1], halves16, order), s[2], halves16, order) }},
	{"v_med3_f16", "f16 f16 f16 f16", func(s [3]uint64) uint64 { return middle(s, halves16) }},
	{"v_fma_f16", "f16 f16 f16 f16", wantFMA16},
	{"v_rcp_f16", "f16 f16", func(s [3]uint64) uint64 { return half(1 / halfValue(s[0])) }},
	{"v_sqrt_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Sqrt(halfValue(s[0]))) }},
	{"v_rsq_f16", "f16 f16", func(s [3]uint64) uint64 { return half(1 / math.Sqrt(halfValue(s[0]))) }},
	{"v_exp_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Exp2(halfValue(s[0]))) }},
	{"v_log_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Log2(halfValue(s[0]))) }},
	{"v_floor_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Floor(halfValue(s[0]))) }},
	{"v_ceil_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Ceil(halfValue(s[0]))) }},
	{"v_trunc_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.Trunc(halfValue(s[0]))) }},
	{"v_rndne_f16", "f16 f16", func(s [3]uint64) uint64 { return half(math.RoundToEven(halfValue(s[0]))) }},
	{"v_fract_f16", "f16 f16", func(s [3]uint64) uint64 {
		x := halfValue(s[0]) - math.Floor(halfValue(s[0]))
		if x != x {
			return 0x7e00
		}
		return min(half(x), 0x3bff)
	}},
	{"v_ldexp_f16", "f16 f16 u16", func(s [3]uint64) uint64 { return half(math.Ldexp(halfValue(s[0]), int(int16(s[1])))) }},
	{"v_frexp_mant_f16", "f16 f16", func(s [3]uint64) uint64 { m, _ := math.Frexp(halfValue(s[0])); return half(m) }},
	{"v_frexp_exp_i16_f16", "u16 f16", func(s [3]uint64) uint64 { return wantExponent(halfValue(s[0])) & 0xffff }},
	{"v_cvt_f16_u16", "f16 u16", func(s [3]uint64) uint64 { return half(float64(s[0])) }},
	{"v_cvt_f16_i16", "f16 u16", func(s [3]uint64) uint64 { return half(float64(int16(s[0]))) }},
	{"v_cvt_u16_f16", "u16 f16", func(s [3]uint64) uint64 { return uint64(toInteger(halfValue(s[0]), 0, 65535)) }},
	{"v_cvt_i16_f16", "u16 f16", func(s [3]uint64) uint64 { return uint64(uint16(toInteger(halfValue(s[0]), -32768, 32767))) }},

	{"v_add_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return (s[0] + s[1]) % 65536 }},
	{"v_sub_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return (s[0] - s[1]) % 65536 }},
	{"v_subrev_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return (s[1] - s[0]) % 65536 }},
	{"v_add_i16", "u16 u16 u16", func(s [3]uint64) uint64 { return (s[0] + s[1]) % 65536 }},
	{"v_sub_i16", "u16 u16 u16", func(s [3]uint64) uint64 { return (s[0] - s[1]) % 65536 }},
	{"v_mul_lo_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return s[0] * s[1] % 65536 }},
	{"v_lshlrev_b16", "u16 u16 u16", func(s [3]uint64) uint64 { return s[1] << (s[0] % 16) % 65536 }},
	{"v_lshrrev_b16", "u16 u16 u16", func(s [3]uint64) uint64 { return s[1] >> (s[0] % 16) }},
	{"v_ashrrev_i16", "u16 u16 u16", func(s [3]uint64) uint64 { return uint64(uint16(int16(s[1]) >> (s[0] % 16))) }},
	{"v_max_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return max(s[0], s[1]) }},
	{"v_min_u16", "u16 u16 u16", func(s [3]uint64) uint64 { return min(s[0], s[1]) }},
	{"v_max_i16", "u16 u16 u16", func(s [3]uint64) uint64 { return uint64(uint16(max(int16(s[0]), int16(s[1])))) }},
	{"v_min_i16", "u16 u16 u16", func(s [3]uint64) uint64 { return uint64(uint16(min(int16(s[0]), int16(s[1])))) }},
	{"v_max3_u16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return slices.Max(s[:]) }},
	{"v_min3_i16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return uint64(uint16(min(int16(s[0]), int16(s[1]), int16(s[2])))) }},
	{"v_med3_u16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { slices.Sort(s[:]); return s[1] }},
	{"v_mad_u16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return (s[0]*s[1] + s[2]) % 65536 }},
	{"v_mad_i16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return (s[0]*s[1] + s[2]) % 65536 }},
	{"v_mad_legacy_u16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return (s[0]*s[1] + s[2]) % 65536 }},
	{"v_mad_legacy_i16", "u16 u16 u16 u16", func(s [3]uint64) uint64 { return (s[0]*s[1] + s[2]) % 65536 }},
	{"v_mad_u32_u16", "u32 u16 u16 u32", func(s [3]uint64) uint64 { return (s[0]*s[1] + s[2]) & 0xffffffff }},
	{"v_mad_i32_i16", "u32 u16 u16 u32", func(s [3]uint64) uint64 { return u32(int64(int16(s[0]))*int64(int16(s[1])) + i32(s[2])) }},

	{"v_add_f64", "f64 f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(f64of(s[0]) + f64of(s[1])) }},
	{"v_mul_f64", "f64 f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(f64of(s[0]) * f64of(s[1])) }},
	{"v_fma_f64", "f64 f64 f64 f64", func(s [3]uint64) uint64 {
		a, b, c := f64of(s[0]), f64of(s[1]), f64of(s[2])
		if x, ok := exactFMA(a, b, c); ok {
			r, _ := x.Float64()
			return math.Float64bits(r)
		}
		return math.Float64bits(math.FMA(a, b, c))
	}},
	{"v_max_f64", "f64 f64 f64", func(s [3]uint64) uint64 { return number(s[0], s[1], double, greater) }},
	{"v_min_f64", "f64 f64 f64", func(s [3]uint64) uint64 { return number(s[0], s[1], double, order) }},
	{"v_ldexp_f64", "f64 f64 exp", func(s [3]uint64) uint64 {
		return math.Float64bits(math.Ldexp(f64of(s[0]), int(clampTo(i32(s[1]), -5000, 5000))))
	}},
	{"v_rcp_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(1 / f64of(s[0])) }},
	{"v_rsq_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(1 / math.Sqrt(f64of(s[0]))) }},
	{"v_sqrt_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(math.Sqrt(f64of(s[0]))) }},
	{"v_trunc_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(math.Trunc(f64of(s[0]))) }},
	{"v_floor_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(math.Floor(f64of(s[0]))) }},
	{"v_ceil_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(math.Ceil(f64of(s[0]))) }},
	{"v_rndne_f64", "f64 f64", func(s [3]uint64) uint64 { return math.Float64bits(math.RoundToEven(f64of(s[0]))) }},
	{"v_fract_f64", "f64 f64", func(s [3]uint64) uint64 {
		x := f64of(s[0]) - math.Floor(f64of(s[0]))
		if x == 1 {
			x = math.Nextafter(1, 0)
		}
		return math.Float64bits(x)
	}},
	{"v_frexp_mant_f64", "f64 f64", func(s [3]uint64) uint64 { m, _ := math.Frexp(f64of(s[0])); return math.Float64bits(m) }},
	{"v_frexp_exp_i32_f64", "u32 f64", func(s [3]uint64) uint64 { return wantExponent(f64of(s[0])) }},

	{"v_lshl_add_u64", "u64 u64 u32 u64", func(s [3]uint64) uint64 { return s[0]<<(s[1]%8) + s[2] }},
	{"v_lshlrev_b64", "u64 u32 u64", func(s [3]uint64) uint64 { return s[1] << (s[0] % 64) }},
	{"v_lshrrev_b64", "u64 u32 u64", func(s [3]uint64) uint64 { return s[1] >> (s[0] % 64) }},
	{"v_ashrrev_i64", "u64 u32 u64", func(s [3]uint64) uint64 { return uint64(int64(s[1]) >> (s[0] % 64)) }},
}

// laneCases950 are those that gfx942 lacks.
var laneCases950 = []laneCase{
	{"v_maximum3_f32", "f32 f32 f32 f32", func(s [3]uint64) uint64 { return extreme(s, single, greater, 0x7fc00000) }},
	{"v_minimum3_f32", "f32 f32 f32 f32", func(s [3]uint64) uint64 { return extreme(s, single, order, 0x7fc00000) }},
	{"v_cvt_pk_f16_f32", "u32 f32 f32", func(s [3]uint64) uint64 {
		return anyNaN16(half(f32of(s[0])), s[0]) | anyNaN16(half(f32of(s[1])), s[1])<<16
	}},
	{"v_cvt_f32_bf16", "f32 u16", func(s [3]uint64) uint64 { return s[0] * 65536 }},
	{"v_cvt_pk_bf16_f32", "u32 f32 f32", func(s [3]uint64) uint64 { return wantBF16(s[0]) | wantBF16(s[1])<<16 }},
}

// extreme propagates NaNs.
func extreme(s [3]uint64, f floatFormat, first func(a, b float64) bool, nan uint64) uint64 {
	r := s[0]
	for _, x := range s {
		if v := f.value(x); v != v {
			return nan
		}
		if first(f.value(x), f.value(r)) {
			r = x
		}
	}
	return r
}

// anyNaN16 keeps the sign and payload that a NaN has as a half: quiet, its high bits.
func anyNaN16(h, from uint64) uint64 {
	if !isNaN16(uint16(h)) {
		return h
	}
	return from>>16&0x8000 | 0x7e00 | from>>13&0x3ff
}

// wantBF16 finds the nearer of the two neighbours.
func wantBF16(x uint64) uint64 {
	v := f32of(x)
	if v != v {
		return x>>16 | 0x40
	}
	if math.IsInf(v, 0) {
		return x >> 16
	}
	down := x >> 16
	up := down + 1
	value := func(h uint64) float64 {
		if h&0x7fff == 0x7f80 {
			return math.Copysign(0x1p128, v)
		}
		return f32of(h << 16)
	}
	d, u := math.Abs(v-value(down)), math.Abs(value(up)-v)
	if d < u || d == u && down%2 == 0 {
		return down
	}
	return up
}

func wantExponent(x float64) uint64 {
	if !finite(x) || x == 0 {
		return 0
	}
	return u32(int64(math.Ilogb(x)) + 1)
}

func isNaNBit(x float64) uint64 {
	if x != x {
		return 0x7fffffff
	}
	return 0
}

func absoluteDifferences(a, b uint64, size int) uint64 {
	r := int64(0)
	for i := 0; i < 32; i += size {
		d := int64(bitField(a, i, size)) - int64(bitField(b, i, size))
		r += max(d, -d)
	}
	return uint64(r)
}

// halfTowardZero is the largest half in magnitude that is not above x.
func halfTowardZero(x float64) uint64 {
	if x != x {
		return anyNaN16(0x7e00, uint64(math.Float32bits(float32(x))))
	}
	sign := math.Float64bits(x) >> 63 << 15
	if math.IsInf(x, 0) {
		return sign | 0x7c00
	}
	i, exact := slices.BinarySearch(halfValues, math.Abs(x))
	if !exact {
		i--
	}
	return sign | uint64(i)
}

func TestLanes(t *testing.T) {
	for _, c := range laneCases {
		t.Run(c.op, func(t *testing.T) { c.run(t, "gfx942", "", "") })
	}
	for _, c := range laneCases950 {
		t.Run(c.op, func(t *testing.T) { c.run(t, "gfx950", "", "") })
	}
}

// Every instruction of the generated table has a case, here or in the tests of its
// family.
func TestEveryRowHasACase(t *testing.T) {
	elsewhere := strings.Fields(`v_fmac_f32 v_fmamk_f32 v_fmaak_f32 v_fmac_f64 v_div_fixup_f32 v_div_fixup_f64 v_div_fixup_f16 v_perm_b32
		v_accvgpr_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_rcp_iflag_f32 v_sin_f32 v_cos_f32 v_sin_f16 v_cos_f16
		v_min3_u16 v_max3_i16 v_med3_i16`)
	for op := range valuRows {
		is := func(c laneCase) bool { return c.op == op }
		if !slices.ContainsFunc(laneCases, is) && !slices.ContainsFunc(laneCases950, is) && !slices.Contains(elsewhere, op) {
			t.Errorf("no test of %s", op)
		}
	}
}
