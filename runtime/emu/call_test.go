package emu

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

// linked is a snippet's kernel with a function at an offset from it.
func linked(t *testing.T, start uint64, kernel, function []string) *Kernel {
	t.Helper()
	k := snippet(t, "gfx942")
	k.insts, k.steps, k.uses = nil, nil, nil
	lines := func(text []string) (list []object.Line) {
		for i, l := range text {
			list = append(list, object.Line{Offset: uint64(4 * i), Text: l, Words: []uint32{0}})
		}
		return list
	}
	if err := k.compile(listing{lines: lines(kernel)}, listing{name: "f", start: start, lines: lines(function)}); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCall(t *testing.T) {
	k := linked(t, 0x1000,
		[]string{"s_movk_i32 s0, 0x1000", "s_mov_b32 s1, 0", "s_swappc_b64 s[30:31], s[0:1]", "s_mov_b32 s5, s4", "s_endpgm"},
		[]string{"s_mov_b32 s4, 7", "s_setpc_b64 s[30:31]"})
	if w := runWave(t, k, nil); w.s[5] != 7 {
		t.Errorf("s5 is %d, want 7", w.s[5])
	}
}

func TestBadCalls(t *testing.T) {
	call := []string{"s_movk_i32 s0, 0x1004", "s_mov_b32 s1, 0", "s_swappc_b64 s[30:31], s[0:1]", "s_endpgm"}
	for _, c := range []struct {
		name     string
		function []string
		want     string
	}{
		{"unknown instruction", []string{"s_nop 0", "v_frobnicate_b32 v0, v1"}, "f+0x4: v_frobnicate_b32 v0, v1: unknown instruction v_frobnicate_b32"},
		{"not an instruction", []string{"s_nop 0", ".long 0x12345678"}, "f+0x4: .long 0x12345678: unknown instruction"},
		{"no function", []string{"s_nop 0"}, "no instruction of the code object at 0x1004"},
		{"end of the function", []string{"s_nop 0", "s_nop 0"}, "f+0x8: end of the code: execution ran past the last instruction"},
	} {
		_, err := tryWave(linked(t, 0x1000, call, c.function), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}
