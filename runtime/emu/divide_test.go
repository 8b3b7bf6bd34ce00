package emu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The sequences that LLVM makes of a correctly rounded fdiv.
var (
	fdiv32 = []string{
		"v_div_scale_f32 v2, s[0:1], v1, v1, v0",
		"v_rcp_f32_e32 v3, v2",
		"v_fma_f32 v4, -v2, v3, 1.0",
		"v_fmac_f32_e32 v3, v4, v3",
		"v_div_scale_f32 v4, vcc, v0, v1, v0",
		"v_mul_f32_e32 v5, v4, v3",
		"v_fma_f32 v6, -v2, v5, v4",
		"v_fmac_f32_e32 v5, v6, v3",
		"v_fma_f32 v2, -v2, v5, v4",
		"v_div_fmas_f32 v2, v2, v3, v5",
		"v_div_fixup_f32 v7, v2, v1, v0",
	}
	fdiv64 = []string{
		"v_div_scale_f64 v[4:5], s[0:1], v[2:3], v[2:3], v[0:1]",
		"v_rcp_f64_e32 v[6:7], v[4:5]",
		"v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0",
		"v_fmac_f64_e32 v[6:7], v[6:7], v[8:9]",
		"v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0",
		"v_fmac_f64_e32 v[6:7], v[6:7], v[8:9]",
		"v_div_scale_f64 v[8:9], vcc, v[0:1], v[2:3], v[0:1]",
		"v_mul_f64 v[10:11], v[8:9], v[6:7]",
		"v_fma_f64 v[4:5], -v[4:5], v[10:11], v[8:9]",
		"v_div_fmas_f64 v[4:5], v[4:5], v[6:7], v[10:11]",
		"v_div_fixup_f64 v[12:13], v[4:5], v[2:3], v[0:1]",
	}
)

// special32 are the values at the edges of f32.
var special32 = []uint32{
	0, 1, 2, 0x7fffff, 0x800000, 0x800001, 0x3f800000, 0x3f800001, 0x40000000, 0x3f7fffff, 0x7f7fffff, 0x7f000000, 0x7e800000, 0x7f800000, 0x7fc00000,
	0x7fc12345, 0x4b800000, 0x34000000, 0x0c000000, 0x5f800000,
}

func bothSigns(list []uint32) []uint32 {
	var r []uint32
	for _, x := range list {
		r = append(r, x, x|1<<31)
	}
	return r
}

// sameFloat32 takes all NaNs as equal.
func sameFloat32(a, b uint32) bool { return a == b || isNaN32(a) && isNaN32(b) }

func TestDivision32(t *testing.T) {
	k := snippet(t, "gfx942", fdiv32...)
	r := rand.New(rand.NewPCG(1, 2))
	sp := bothSigns(special32)
	var pairs [][2]uint32
	for _, a := range sp {
		for _, b := range sp {
			pairs = append(pairs, [2]uint32{a, b})
		}
	}
	for range 20000 {
		pairs = append(pairs, [2]uint32{r.Uint32(), r.Uint32()}, [2]uint32{r.Uint32(), sp[r.IntN(len(sp))]}, [2]uint32{sp[r.IntN(len(sp))], r.Uint32()})
		// Quotients that are denormals.
		pairs = append(pairs, [2]uint32{r.Uint32()&0x87ffffff | 0x01000000, r.Uint32()&0x81ffffff | 0x3f000000 + r.Uint32()&0x3f800000})
	}
	bad := 0
	for len(pairs) >= Lanes {
		w := runWave(t, k, func(w *wave) {
			for i := range Lanes {
				w.v[0][i], w.v[1][i] = pairs[i][0], pairs[i][1]
			}
		})
		for i := range Lanes {
			n, d := pairs[i][0], pairs[i][1]
			want := math.Float32bits(math.Float32frombits(n) / math.Float32frombits(d))
			if got := w.v[7][i]; !sameFloat32(got, want) {
				if bad++; bad < 30 {
					t.Errorf("%#x / %#x = %#x, want %#x", n, d, got, want)
				}
			}
		}
		pairs = pairs[Lanes:]
	}
}

func TestDivision64(t *testing.T) {
	k := snippet(t, "gfx942", fdiv64...)
	r := rand.New(rand.NewPCG(3, 4))
	special := []uint64{0, 1, 1 << 51, 1 << 52, 0x3ff0000000000000, 0x3ff0000000000001, 0x7fefffffffffffff, 0x7fe0000000000000, 0x7fd0000000000000, 0x7ff0000000000000, 0x7ff8000000000000}
	var pairs [][2]uint64
	for _, a := range special {
		for _, b := range special {
			pairs = append(pairs, [2]uint64{a, b}, [2]uint64{a | 1<<63, b})
		}
	}
	for range 10000 {
		pairs = append(pairs, [2]uint64{r.Uint64(), r.Uint64()}, [2]uint64{r.Uint64(), special[r.IntN(len(special))]}, [2]uint64{special[r.IntN(len(special))], r.Uint64()})
		// Quotients that are denormals.
		pairs = append(pairs, [2]uint64{r.Uint64()&^(0x7ff<<52) | 1<<52, r.Uint64()&^(0x7ff<<52) | (0x3ff+r.Uint64N(60))<<52})
	}
	bad := 0
	for len(pairs) >= Lanes {
		w := runWave(t, k, func(w *wave) {
			for i := range Lanes {
				for j, x := range pairs[i] {
					w.v[2*j][i], w.v[2*j+1][i] = uint32(x), uint32(x>>32)
				}
			}
		})
		for i := range Lanes {
			n, d := math.Float64frombits(pairs[i][0]), math.Float64frombits(pairs[i][1])
			want := n / d
			got := math.Float64frombits(uint64(w.v[12][i]) | uint64(w.v[13][i])<<32)
			if math.Float64bits(got) != math.Float64bits(want) && (got == got || want == want) {
				if bad++; bad < 30 {
					t.Errorf("%#x / %#x = %#x, want %#x", pairs[i][0], pairs[i][1], math.Float64bits(got), math.Float64bits(want))
				}
			}
		}
		pairs = pairs[Lanes:]
	}
}
