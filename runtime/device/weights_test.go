package device

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
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
		w, err := eval.New(ir.Scaled(tc.dt, 1, 2, ir.Int(2), ir.Int(2)))
		if err != nil {
			t.Fatal(err)
		}
		w.Codes[3], w.Scales[1] = tc.code, tc.scale
		switch err := finiteCodes(w); {
		case tc.want == "" && err != nil:
			t.Errorf("%s code %#02x, scale %d: %v", tc.dt, tc.code, tc.scale, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("%s code %#02x, scale %d: error %v, want %q", tc.dt, tc.code, tc.scale, err, tc.want)
		}
	}
}
