package emu

import "testing"

// A literal of a 64-bit scalar instruction is zero extended, an inline constant sign
// extended.
func TestWideLiterals(t *testing.T) {
	for line, want := range map[string]uint64{
		"s_mov_b64 s[2:3], 0xffffffff":             0xffffffff,
		"s_mov_b64 s[2:3], 0x80000000":             0x80000000,
		"s_mov_b64 s[2:3], -1":                     0xffffffffffffffff,
		"s_mov_b64 s[2:3], -16":                    0xfffffffffffffff0,
		"s_and_b64 s[2:3], s[4:5], 0xfffffff0":     0x89abcde0,
		"s_or_b64 s[2:3], s[4:5], 0xf0000000":      0x01234567f9abcdef,
		"s_andn2_b64 s[2:3], s[4:5], 0x89abcdef":   0x0123456700000000,
		"s_ashr_i64 s[2:3], 0x7fffffff, 4":         0x7ffffff,
		"s_cselect_b64 s[2:3], 0xdeadbeef, s[4:5]": 0x0123456789abcdef,
		"s_lshl_b64 s[2:3], 0xc0000000, 4":         0xc00000000,
	} {
		k := snippet(t, "gfx942", line)
		w := runWave(t, k, func(w *wave) { w.s[4], w.s[5] = 0x89abcdef, 0x01234567 })
		if got := w.s64(2); got != want {
			t.Errorf("%s: %#x, want %#x", line, got, want)
		}
	}
}
