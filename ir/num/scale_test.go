package num

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestE8M0All(t *testing.T) {
	for c := range 256 {
		b := byte(c)
		v := FromE8M0(b)
		if b == ScaleNaN {
			if v == v {
				t.Errorf("byte 255 is %v, want NaN", v)
			}
		} else if want := float32(math.Ldexp(1, c-127)); v != want {
			t.Errorf("byte %d is %v, want %v", b, v, want)
		}
		if back, ok := E8M0(v); back != b || !ok {
			t.Errorf("byte %d comes back as %d, %v", b, back, ok)
		}
	}
	for _, x := range []float32{0, float32(math.Copysign(0, -1)), -1, -0x1p-127, 3, 1.0000001, 0x1p-128, 0x1.8p-127,
		0x1.8p-126, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.Inf(-1))} {
		if b, ok := E8M0(x); ok || b != ScaleNaN {
			t.Errorf("E8M0(%v) = %d, %v, want a refusal", x, b, ok)
		}
	}
}

func TestPow2Ceil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := math.Float32frombits(rapid.Uint32Range(1, f32Inf-1).Draw(t, "bits"))
		want := math.Inf(1)
		for e := -149; e <= 127; e++ {
			if p := math.Ldexp(1, e); p >= float64(x) {
				want = p
				break
			}
		}
		if got := Pow2Ceil(x); float64(got) != want {
			t.Fatalf("Pow2Ceil(%x) = %x, want %x", x, got, want)
		}
	})
	for e := -149; e <= 127; e++ {
		p := float32(math.Ldexp(1, e))
		if got := Pow2Ceil(p); got != p {
			t.Errorf("Pow2Ceil(2^%d) = %x", e, got)
		}
		if got := float64(Pow2Ceil(math.Nextafter32(p, math.MaxFloat32))); e < 127 && got != math.Ldexp(1, e+1) {
			t.Errorf("Pow2Ceil(just above 2^%d) = %x", e, got)
		}
	}
	for _, x := range []float32{0, -3, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		if got := Pow2Ceil(x); !sameFloat(got, x) {
			t.Errorf("Pow2Ceil(%v) = %v, want it unchanged", x, got)
		}
	}
}

func TestQuantizeBlock(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name  string
		f     Format
		floor float32
		x     []float32
		codes []byte
		scale byte
	}{
		{"zeros take the floor", FmtE4M3, FloorE4M3, []float32{0, 0}, []byte{0, 0}, 127 - 22},
		{"448 has scale 1", FmtE4M3, FloorE4M3, []float32{448, -224, 1}, []byte{0x7E, 0xF6, 0x38}, 127},
		{"just above 448 doubles", FmtE4M3, FloorE4M3, []float32{450, 448}, []byte{0x76, 0x76}, 128},
		{"fnuz", FmtE4M3FNUZ, FloorE4M3, []float32{240, -1e-7}, []byte{0x7F, 0}, 127},
		{"fp4 zeros take the floor", FmtE2M1, FloorE2M1, []float32{0, 0}, []byte{0, 0}, 1},
		{"fp4", FmtE2M1, FloorE2M1, []float32{6, -3, .5, .25, -.1}, []byte{7, 13, 1, 0, 8}, 127},
		{"below every floor", FmtE2M1, 0, []float32{0, 0x1p-140}, []byte{0, 0}, 0},
		{"no floor", FmtE4M3, 0, []float32{0x1p-100}, []byte{0x78}, 127 - 108},
		{"largest", FmtE2M1, FloorE2M1, []float32{math.MaxFloat32}, []byte{6}, 127 + 126},
		{"NaN poisons the block", FmtE4M3, FloorE4M3, []float32{1, nan, 2}, []byte{0, 0, 0}, ScaleNaN},
		{"infinity poisons the block", FmtE2M1, FloorE2M1, []float32{1, -inf}, []byte{0, 0}, ScaleNaN},
		{"no such format", Format(9), 1, []float32{1}, []byte{0}, ScaleNaN},
		{"floor not finite", FmtE4M3, nan, []float32{1}, []byte{0}, ScaleNaN},
		{"empty block", FmtE4M3, FloorE4M3, nil, []byte{}, 127 - 22},
	} {
		codes := make([]byte, len(c.x)+1)
		for i := range codes {
			codes[i] = 0xAA
		}
		scale := QuantizeBlock(codes, c.x, c.f, c.floor)
		if scale != c.scale {
			t.Errorf("%s: scale %d, want %d", c.name, scale, c.scale)
		}
		if d := cmp.Diff(append(c.codes, 0xAA), codes); d != "" {
			t.Errorf("%s: codes (-want +got):\n%s", c.name, d)
		}
	}
}

// TestQuantizeBlockExactPowers checks the claim that the rounded reciprocal
// never misplaces a bf16 maximum: amax = Max*2^k keeps the scale 2^k.
func TestQuantizeBlockExactPowers(t *testing.T) {
	for _, f := range []Format{FmtE4M3, FmtE4M3FNUZ, FmtE2M1} {
		for b := range uint32(0x7F80) {
			x := FromBF16(uint16(b))
			if x < 6*0x1p-126 {
				continue
			}
			want := math.Inf(1)
			for e := -127; e <= 127; e++ {
				if math.Ldexp(float64(f.Max()), e) >= float64(x) {
					want = math.Ldexp(1, e)
					break
				}
			}
			var code [1]byte
			if got := FromE8M0(QuantizeBlock(code[:], []float32{x}, f, 0)); float64(got) != want {
				t.Fatalf("%v: amax %x has scale %x, want %x", f, x, got, want)
			}
		}
	}
}

// TestQuantizeBlockProperty checks that each element of any block moves by at
// most half a step of its neighbourhood.
func TestQuantizeBlockProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom([]Format{FmtE4M3, FmtE4M3FNUZ, FmtE2M1}).Draw(t, "format")
		x := rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), 1, 128).Draw(t, "x")
		codes := make([]byte, len(x))
		s := FromE8M0(QuantizeBlock(codes, x, f, FloorE4M3))
		for i, v := range x {
			r := f.Decode(codes[i]) * s
			// Relative step 2^-man of a normal, absolute step of a subnormal.
			man := map[Format]int{FmtE4M3: 3, FmtE4M3FNUZ: 3, FmtE2M1: 1}[f]
			minNormal := map[Format]int{FmtE4M3: -6, FmtE4M3FNUZ: -7, FmtE2M1: 0}[f]
			step := math.Ldexp(max(math.Abs(float64(v/s)), math.Ldexp(1, minNormal)), -man) * float64(s)
			if math.Abs(float64(r)-float64(v)) > step/2*(1+1e-6) {
				t.Fatalf("%v: element %d, %v, became %v with scale %v", f, i, v, r, s)
			}
		}
	})
}
