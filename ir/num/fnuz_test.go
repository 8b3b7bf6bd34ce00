package num

import (
	"math"
	"testing"
)

// Every code under every scale means the same number after recoding, a zero +0;
// NaN stays NaN, and so does what has no double.
func TestRecodeFNUZ(t *testing.T) {
	for s := range 256 {
		scale, double := float64(FromE8M0(byte(s))), float64(FromE8M0(DoubleE8M0(byte(s))))
		for c := range 256 {
			want := float64(FromE4M3(byte(c)))*scale + 0 // -0 + 0 is +0
			if s == 254 {
				want = math.NaN() // twice the scale is no e8m0
			}
			got := float64(FromE4M3FNUZ(RecodeFNUZ(byte(c)))) * double
			if math.Float64bits(got) != math.Float64bits(want) && !(got != got && want != want) {
				t.Errorf("code %#02x, scale %d: %v, want %v", c, s, got, want)
			}
		}
	}
}

// On numbers, the byte is kept: what moves a weight to e4m3fnuz touches zeros
// and NaN only.
func TestRecodeFNUZKeepsBytes(t *testing.T) {
	changed := map[byte]byte{0x80: 0, 0x7F: 0x80, 0xFF: 0x80}
	for c := range 256 {
		want, ok := changed[byte(c)]
		if !ok {
			want = byte(c)
		}
		if got := RecodeFNUZ(byte(c)); got != want {
			t.Errorf("code %#02x becomes %#02x, want %#02x", c, got, want)
		}
	}
}
