package emu

import (
	"context"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

// snippet compiles lines of assembly as the disassembler prints them, without an
// assembler: for tests of single instructions. Each is taken to have 4 bytes, which
// counts for branches only. The kernel ends after the last line.
func snippet(t testing.TB, chip string, lines ...string) *Kernel {
	t.Helper()
	k, err := trySnippet(chip, lines...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func trySnippet(chip string, lines ...string) (*Kernel, error) {
	k := &Kernel{chip: chip, at: map[uint64]int{}, Meta: &object.Kernel{
		Name: "snippet", MaxWorkgroup: 1024, Wavefront: Lanes, Descriptor: &object.Descriptor{Rsrc1: 63, Rsrc3: 63},
	}}
	var list []object.Line
	for i, l := range append(lines, "s_endpgm") {
		list = append(list, object.Line{Offset: uint64(4 * i), Text: l, Words: []uint32{0}})
	}
	return k, k.compile(listing{lines: list})
}

// runWave runs a snippet as one wave of 64 lanes, set up by init, and returns the
// wave's state at the end.
func runWave(t testing.TB, k *Kernel, init func(w *wave)) *wave {
	t.Helper()
	w, err := tryWave(k, init)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func tryWave(k *Kernel, init func(w *wave)) (*wave, error) {
	l := &Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{Lanes, 1, 1}, LDS: 1 << 16, Memory: &Space{}}
	if err := k.prepare(l); err != nil {
		return nil, err
	}
	g := newGroup(k, l, nil, 0, k.steps)
	g.start([3]int{})
	w := g.waves[0]
	if init != nil {
		init(w)
	}
	for {
		done, err := g.run(quantum)
		if done || err != nil {
			return w, err
		}
		if w.count > 1<<24 {
			return w, context.DeadlineExceeded
		}
	}
}

// memory maps a block of memory into the group's address space.
func mapped(t testing.TB, w *wave, b []byte, label string) uint64 {
	t.Helper()
	rs, err := w.group.regions.with(regionOf(b, label))
	if err != nil {
		t.Fatal(err)
	}
	w.group.regions = rs
	return Address(b)
}

func TestUnknownIsRefused(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"v_frobnicate_b32_e32 v0, v1", "unknown instruction v_frobnicate_b32"},
		{"v_and_b32_e64 v0, v1, v2 clamp", "modifier clamp is not supported here"},
		{"v_add_u32_e32 v0, -v1, v2", "takes no modifiers"},
		{"s_add_u32 s0, s1", "operand 3 is missing"},
		{"s_add_u32 s0, s1, s2, s3", "4 operands, 3 are understood"},
		{"s_add_u32 s0, s1, s[2:3]", "2 registers, not 1"},
		{"s_waitcnt vmcnt(0) foocnt(0)", "no counter"},
		{"s_branch 9", "no instruction at"},
		{"v_mov_b32_e32 v0, v999", "no registers"},
		{".long 0x12345678", "no instruction of the chip"},
	} {
		_, err := trySnippet("gfx942", c.line)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "+0x0") {
			t.Errorf("%s: error %v, want one that names the place and has %q", c.line, err, c.want)
		}
	}
}

func TestScalarLoop(t *testing.T) {
	// s0 = 10 * 7 by adding, in a loop that counts down.
	k := snippet(t, "gfx942",
		"s_mov_b32 s0, 0",
		"s_movk_i32 s1, 10",
		"s_add_u32 s0, s0, 7",
		"s_sub_u32 s1, s1, 1",
		"s_cmp_lg_u32 s1, 0",
		"s_cbranch_scc1 65532", // -4
		"v_mov_b32_e32 v1, s0",
	)
	w := runWave(t, k, nil)
	if w.v[1][0] != 70 || w.v[1][63] != 70 {
		t.Errorf("v1 = %d, %d, want 70", w.v[1][0], w.v[1][63])
	}
}

func TestSpinIsReported(t *testing.T) {
	k := snippet(t, "gfx942", "s_branch 65535")
	_, err := k.Run(t.Context(), Launch{Grid: [3]int{2, 1, 1}, Block: [3]int{64, 1, 1}, Workers: 1})
	if err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("error %v, want one that says that the kernel does not end", err)
	}
}
