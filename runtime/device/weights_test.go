package device

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// 8-bit weights with NaN are refused, each format's own NaN; a NaN scale is
// refused where it may be the trace of one that e4m3fnuz could not double.
func TestFiniteCodes(t *testing.T) {
	for _, tc := range []struct {
		dt          ir.DType
		code, scale byte
		want        string // "" for no error
	}{
		{ir.F8E4M3, 0x7E, 127, ""},
		{ir.F8E4M3, 0x80, 127, ""},
		{ir.F8E4M3, 0x7F, 127, "element 3 is NaN (code 0x7f)"},
		{ir.F8E4M3, 0xFF, 127, "element 3 is NaN (code 0xff)"},
		{ir.F8E4M3, 1, 255, ""},
		{ir.F8E4M3FNUZ, 0x7F, 254, ""},
		{ir.F8E4M3FNUZ, 0xFF, 127, ""},
		{ir.F8E4M3FNUZ, 0x80, 127, "element 3 is NaN (code 0x80)"},
		{ir.F8E4M3FNUZ, 1, 255, "block scale 1 is NaN, or 2^127 before it was doubled"},
	} {
		typ := ir.Scaled(tc.dt, 1, 2, ir.Int(2), ir.Int(2))
		codes, scales := []byte{0, 1, 2, tc.code}, []byte{127, tc.scale}
		switch err := cmp.Or(finite(typ, 0, 0, codes), finite(typ, 1, 0, scales)); {
		case tc.want == "" && err != nil:
			t.Errorf("%s code %#02x, scale %d: %v", tc.dt, tc.code, tc.scale, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("%s code %#02x, scale %d: error %v, want %q", tc.dt, tc.code, tc.scale, err, tc.want)
		}
	}
}

// NaN is found wherever it stands among other codes, the first of several.
func TestIndexNaN(t *testing.T) {
	for n := range 40 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*37) &^ 1 // no NaN ends in 0
		}
		if at := indexNaN(b); at != -1 {
			t.Errorf("%d codes without NaN: %d", n, at)
		}
		for i := range b {
			for _, c := range []byte{0x7F, 0xFF} {
				x := bytes.Clone(b)
				x[i], x[n-1] = c, c
				if at := indexNaN(x); at != i {
					t.Errorf("%d codes, NaN at %d: %d", n, i, at)
				}
			}
		}
	}
	for i := range 256 {
		if at := indexNaN(slices.Repeat([]byte{byte(i)}, 8)); (at == 0) != (i&0x7F == 0x7F) {
			t.Errorf("code %#02x: %d", i, at)
		}
	}
}
