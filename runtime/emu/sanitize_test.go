package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/object"
)

// A defect is written as kernels are, and so is what is like it and none. Each case
// begins with
//
//	+0x0: s_load_dwordx4 s[4:7], s[0:1], 0x0  // in and out
//	+0x4: s_waitcnt lgkmcnt(0)
//	+0x8: v_lshlrev_b32_e32 v1, 2, v0         // 4 bytes for each work-item
//
// and has s2, the work-group's id. in are 64 words to be read, out 128 to be written,
// slack 16 to be read and written, which the caller has not set; they lie in this
// order in an arena, 64 bytes from each other.
type sanitizerCase struct {
	name   string
	checks Checks
	waves  int // of a work-group; 0 is 1
	groups int // 0 is 1
	code   string
	want   string // "KIND +OFFSET [DETAIL]" of the reports
}

const (
	caseIn    = 64
	caseOut   = caseIn + 4*64 + 64
	caseSlack = caseOut + 4*128 + 64
	caseArena = caseSlack + 4*16 + 64
)

func (c sanitizerCase) run(t *testing.T, workers int, shuffle uint64) ([]Report, []byte, *Shadow) {
	t.Helper()
	lines := []string{"s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "v_lshlrev_b32_e32 v1, 2, v0"}
	for l := range strings.Lines(c.code) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	k := snippet(t, "gfx950", lines...)
	d := k.Meta.Descriptor
	d.ScratchBytes = 16
	d.Properties, d.Rsrc2 = uint16(object.KernargSegmentPtr), 2<<1|1<<7
	k.Meta.KernargBytes, k.Meta.Name = 16, "k"
	arena := make([]byte, caseArena)
	for i := range 64 {
		le.PutUint32(arena[caseIn+4*i:], uint32(4*i))
	}
	base := Address(arena)
	args := make([]byte, 16)
	le.PutUint64(args, base+caseIn)
	le.PutUint64(args[8:], base+caseOut)
	space := &Space{}
	if err := space.Map(arena, "arena"); err != nil {
		t.Fatal(err)
	}
	shadow := &Shadow{}
	_, err := k.Run(t.Context(), Launch{
		Grid: [3]int{max(1, c.groups), 1, 1}, Block: [3]int{Lanes * max(1, c.waves), 1, 1}, LDS: 4096, Kernarg: args, Memory: space,
		Workers: workers, Shuffle: shuffle,
		Sanitize: &Sanitize{Checks: c.checks, Op: "op", Layer: "3", Shadow: shadow, Buffers: []Buffer{
			{base + caseIn, 4 * 64, ModeRead, "in", false}, {base + caseOut, 4 * 128, ModeWrite, "out", false},
			{base + caseSlack, 4 * 16, ModeRead | ModeWrite, "slack", true},
		}},
	})
	var found *SanitizerError
	if err != nil && !errors.As(err, &found) {
		t.Fatalf("%s: %v", c.name, err)
	}
	if found == nil {
		return nil, arena, shadow
	}
	for i := range found.Reports {
		r := &found.Reports[i]
		if r.Address > 1<<32 { // changes from run to run
			r.Address -= base
		}
	}
	return found.Reports, arena, shadow
}

// runSanitizerCases runs cases, with groups in several orders and on two goroutines.
// The groups of those that are racing store to the same memory: one goroutine runs
// them, as Go's race detector is right about them too.
func runSanitizerCases(t *testing.T, cases []sanitizerCase, racing ...string) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			first, _, _ := c.run(t, 1, 0)
			var got []string
			for _, r := range first {
				if r.Op != "op" || r.Layer != "3" || r.Kernel != "k" || r.Count < 1 || r.Text == "" {
					t.Errorf("report %+v does not say where it is from", r)
				}
				got = append(got, fmt.Sprintf("%s +0x%x: %s", r.Kind, r.Offset, r.Detail))
			}
			want := strings.Split(c.want, "\n")
			if c.want == "" {
				want = nil
			}
			ok := len(got) == len(want)
			for i := range want {
				ok = ok && strings.HasPrefix(got[i], want[i])
			}
			if !ok {
				t.Errorf("reports (-want +got, want may be a beginning):\n%s", cmp.Diff(want, got))
			}
			workers := 2
			if slices.Contains(racing, c.name) {
				workers = 1
			}
			for seed := range uint64(4) {
				again, _, _ := c.run(t, workers, seed)
				if d := cmp.Diff(first, again); d != "" {
					t.Fatalf("another order of groups, seed %d, gives other reports (-first +again):\n%s", seed, d)
				}
			}
		})
	}
}

func TestMemorySanitizer(t *testing.T) {
	runSanitizerCases(t, []sanitizerCase{
		{"in bounds", CheckMemory, 1, 2, `
			global_load_dword v2, v1, s[4:5]
			global_store_dword v1, v2, s[6:7]
			global_store_dword v1, v2, s[6:7] offset:256`, ""},
		{"one past the end", CheckMemory, 1, 1, `
			global_load_dword v2, v1, s[4:5] offset:4`, "out of bounds +0xc: reads 4 bytes 0 bytes after the end of in (256 bytes), at arena+320"},
		{"before the beginning", CheckMemory, 1, 1, `
			global_load_dword v2, v1, s[4:5] offset:-4`, "out of bounds +0xc: reads 4 bytes 4 bytes before in"},
		{"across the end", CheckMemory, 1, 1, `
			global_load_dwordx2 v[2:3], v1, s[4:5]`, "out of bounds +0xc: reads 8 bytes at in+252, across its end (256 bytes)"},
		{"lanes that are off go anywhere", CheckMemory, 1, 1, `
			s_mov_b64 exec, 1
			global_load_dword v2, v1, s[4:5] offset:252
			s_mov_b64 exec, 0
			global_load_dword v2, v1, s[4:5] offset:4095`, ""},
		{"write of an input", CheckMemory, 1, 1, `
			global_store_dword v1, v1, s[4:5]`, "write of an input +0xc: writes 4 bytes at in+0, which is only to be read"},
		{"read of an output", CheckMemory, 1, 1, `
			global_load_dword v2, v1, s[6:7] offset:8`, "read of an output +0xc: reads 4 bytes at out+8, which is only to be written, before it has been"},
		{"read of an output that has been written", CheckMemory, 1, 1, `
			global_store_dword v1, v1, s[6:7]
			global_load_dword v2, v1, s[6:7]
			s_mov_b64 exec, 1
			global_load_dwordx2 v[2:3], v1, s[6:7] offset:248
			global_load_dwordx2 v[2:3], v1, s[6:7] offset:252`, "read of an output +0x1c: reads 8 bytes at out+252"},
		{"scalar out of bounds", CheckMemory, 1, 1, `
			s_load_dwordx2 s[8:9], s[4:5], 0xfc`, "out of bounds +0xc: reads 8 bytes at in+252, across its end (256 bytes)"},
		{"scalar in bounds", CheckMemory, 1, 1, `
			s_load_dwordx2 s[8:9], s[4:5], 0xf8`, ""},
		{"misaligned", CheckMemory, 1, 1, `
			s_mov_b64 exec, 1
			global_load_dwordx2 v[2:3], v1, s[4:5] offset:1
			global_store_dword v1, v2, s[6:7] offset:2
			global_atomic_add v1, v2, s[6:7] offset:4
			global_atomic_add v1, v2, s[6:7] offset:6`, "misaligned +0x1c: 4 bytes at out+6, whose address is no multiple of 4"},
		{"nowhere, and on", CheckMemory, 1, 1, `
			s_mov_b64 s[8:9], 64
			global_load_dword v2, v1, s[8:9]
			global_store_dword v1, v2, s[8:9]`, "out of bounds +0x10: reads 4 bytes at 0x40, outside of all buffers\nout of bounds +0x14: writes 4 bytes"},
		{"arguments and code", CheckMemory, 1, 1, `
			s_load_dword s8, s[0:1], 0xc`, ""},
	})
}
