package num

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// narrow describes the code formats to the tests, independently of specs.
var narrow = []struct {
	f                Format
	encode           func(float32) byte
	decode           func(byte) float32
	expBits, manBits int
	bias             int
	codes            int // number of codes, both signs
	magnitudes       int // number of non-negative finite codes
	isNaN            func(byte) bool
	nan              byte // NaN encodes to this
	negZero          byte // -0 encodes to this
}{
	{FmtE4M3, E4M3, FromE4M3, 4, 3, 7, 256, 0x7F, func(b byte) bool { return b&0x7F == 0x7F }, 0x7F, 0x80},
	{FmtE4M3FNUZ, E4M3FNUZ, FromE4M3FNUZ, 4, 3, 8, 256, 0x80, func(b byte) bool { return b == 0x80 }, 0x80, 0},
	{FmtE2M1, E2M1, FromE2M1, 2, 1, 1, 16, 8, func(byte) bool { return false }, 7, 8},
}

func TestCodesAll(t *testing.T) {
	for _, n := range narrow {
		for c := range n.codes {
			b := byte(c)
			got := n.decode(b)
			if n.isNaN(b) {
				if got == got {
					t.Errorf("%v: code %#02x is %v, want NaN", n.f, b, got)
				}
				continue
			}
			if want := float32(refValue(uint32(b), n.expBits, n.manBits, n.bias)); !sameFloat(got, want) {
				t.Errorf("%v: code %#02x is %v, want %v", n.f, b, got, want)
			}
			if back := n.encode(got); back != b {
				t.Errorf("%v: code %#02x comes back as %#02x", n.f, b, back)
			}
		}
	}
	for c := range 256 {
		if got, want := FromE2M1(byte(c)), FromE2M1(byte(c&15)); !sameFloat(got, want) {
			t.Errorf("e2m1: byte %#02x is %v, want that of its low nibble, %v", c, got, want)
		}
	}
}

func TestE2M1Values(t *testing.T) {
	var got []float32
	for c := range byte(16) {
		got = append(got, FromE2M1(c))
	}
	want := []float32{0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	if !math.Signbit(float64(got[8])) {
		t.Error("code 8 is +0, want -0")
	}
}

func TestCodesNearestEven(t *testing.T) {
	for _, n := range narrow {
		g := newGrid(n.magnitudes, n.expBits, n.manBits, n.bias)
		for _, x := range g.probes(300000) {
			want := n.nan
			if x == x {
				want = byte(g.nearest(float64(x)))
				if math.Signbit(float64(x)) && (want != 0 || n.negZero != 0) {
					want |= byte(n.codes / 2)
				}
			}
			if got := n.encode(x); got != want {
				t.Fatalf("%v: %v (%#08x) encodes to %#02x, want %#02x", n.f, x, math.Float32bits(x), got, want)
			}
			if got := n.f.Encode(x); got != want {
				t.Fatalf("%v: Format.Encode(%v) is %#02x, want %#02x", n.f, x, got, want)
			}
		}
	}
}

// TestCodesSpelledOut holds the cases that implementations in the field got
// wrong: zero against NaN in fnuz, NaN against the saturated value in fn.
func TestCodesSpelledOut(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		name   string
		encode func(float32) byte
		x      float32
		want   byte
	}{
		{"fn", E4M3, 448, 0x7E},
		{"fn", E4M3, 464, 0x7E},
		{"fn", E4M3, 1e30, 0x7E},
		{"fn", E4M3, inf, 0x7E},
		{"fn", E4M3, -inf, 0xFE},
		{"fn", E4M3, nan, 0x7F},
		{"fn", E4M3, -1e-7, 0x80},
		{"fn", E4M3, 0x1p-9, 0x01},
		{"fn", E4M3, 0x1p-10, 0x00},
		{"fn", E4M3, 0x1.8p-9, 0x02},
		{"fn", E4M3, 0x1p-6, 0x08},
		{"fn", E4M3, 1.0625, 0x38},
		{"fn", E4M3, 1.1875, 0x3A},
		{"fnuz", E4M3FNUZ, -1e-7, 0x00},
		{"fnuz", E4M3FNUZ, negZero, 0x00},
		{"fnuz", E4M3FNUZ, -0x1p-11, 0x00},
		{"fnuz", E4M3FNUZ, -0x1.000002p-11, 0x81},
		{"fnuz", E4M3FNUZ, nan, 0x80},
		{"fnuz", E4M3FNUZ, 240, 0x7F},
		{"fnuz", E4M3FNUZ, inf, 0x7F},
		{"fnuz", E4M3FNUZ, -1000, 0xFF},
		{"e2m1", E2M1, 0.25, 0},
		{"e2m1", E2M1, 0.75, 2},
		{"e2m1", E2M1, 1.25, 2},
		{"e2m1", E2M1, 1.75, 4},
		{"e2m1", E2M1, 2.5, 4},
		{"e2m1", E2M1, 3.5, 6},
		{"e2m1", E2M1, 5, 6},
		{"e2m1", E2M1, -5.000001, 15},
		{"e2m1", E2M1, inf, 7},
		{"e2m1", E2M1, nan, 7},
	} {
		if got := c.encode(c.x); got != c.want {
			t.Errorf("%s: %v encodes to %#02x, want %#02x", c.name, c.x, got, c.want)
		}
	}
}

func TestFormatTable(t *testing.T) {
	type row struct {
		Name  string
		Max   float32
		Valid bool
	}
	var got []row
	for _, f := range []Format{FmtE4M3, FmtE4M3FNUZ, FmtE2M1} {
		got = append(got, row{f.String(), f.Max(), f.Valid()})
		if f.Decode(f.Encode(f.Max())) != f.Max() {
			t.Errorf("%v: the largest value does not survive", f)
		}
	}
	want := []row{{"e4m3", 448, true}, {"e4m3fnuz", 240, true}, {"e2m1", 6, true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("formats (-want +got):\n%s", d)
	}
	bad := Format(3)
	if m, d := bad.Max(), bad.Decode(0); bad.Valid() || bad.String() != "invalid" || m == m || d == d || bad.Encode(1) != 0 {
		t.Error("a format past the table passes for a valid one")
	}
}
