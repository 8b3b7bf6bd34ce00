package cuda

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckTarget(t *testing.T) {
	for _, tc := range []struct {
		ptx, device string
		want        string // part of the error; "" if it runs
	}{
		{".version 7.8\n.target sm_80\n.address_size 64\n", "sm_90", ""},
		{".version 7.8\n\t.target sm_90, debug\n", "sm_90", ""},
		{".target sm_90a\n", "sm_90", ""},
		{".target sm_100f\n", "sm_103", ""},
		{".target sm_90\n", "sm_80", "the PTX is for sm_90, the device is sm_80; compile with --target sm_80"},
		{".target sm_90a\n", "sm_100", "the PTX is for sm_90a, the device is sm_100"},
		{".target sm_100f\n", "sm_120", "the PTX is for sm_100f, the device is sm_120"},
		{"// .target sm_80\n", "sm_90", "no PTX text"},
		{".target sm_90x\n", "sm_90", "no PTX text"},
		{"\x7fELF", "sm_90", "no PTX text"},
		{".target sm_99999999999999999999\n", "sm_90", "value out of range"},
		{".target sm_80\n", "gfx942", `target "gfx942" is not of the form sm_NN`},
	} {
		err := checkTarget([]byte(tc.ptx), tc.device)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q on %s: error %v, want %q", tc.ptx, tc.device, err, tc.want)
		}
		if err != nil && tc.device != "gfx942" && !errors.Is(err, ErrWrongImage) {
			t.Errorf("%q on %s: error %v", tc.ptx, tc.device, err)
		}
	}
}

func TestOpenWithoutLibrary(t *testing.T) {
	_, err := Open(Options{Library: "/absent/libcuda.so.1"})
	var none *NotFoundError
	want := "no CUDA library could be loaded; tried /absent/libcuda.so.1 ("
	if !errors.As(err, &none) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "--cuda-lib") {
		t.Errorf("error %v, want %s", err, want)
	}
}
