package emu

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counted runs code as groups of so many waves, with the address of an array of 64 KiB
// as the only argument and the group's id in s2.
func counted(t *testing.T, c *Counters, groups, waves, workers int, code string) {
	t.Helper()
	var lines []string
	for l := range strings.Lines(code) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	k := snippet(t, "gfx942", lines...)
	k.Meta.Descriptor.Rsrc1 = 3 // 32 vector registers
	k.Meta.KernargBytes, k.Meta.Descriptor.Properties, k.Meta.Descriptor.Rsrc2 = 8, 8, 2<<1|1<<7
	b := make([]byte, 1<<16+lineBytes)
	base := Address(b) + lineBytes - Address(b)%lineBytes
	space := &Space{}
	if err := space.Map(b, "array"); err != nil {
		t.Fatal(err)
	}
	args := make([]byte, 8)
	le.PutUint64(args, base)
	_, err := k.Run(t.Context(), Launch{Grid: [3]int{groups, 1, 1}, Block: [3]int{waves * Lanes, 1, 1}, LDS: 1 << 14, Kernarg: args, Memory: space, Counters: c, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCounters(t *testing.T) {
	var c Counters
	const code = `
		s_load_dwordx2 s[4:5], s[0:1], 0x0
		s_waitcnt lgkmcnt(0)
		s_lshl_b32 s8, s2, 12
		v_lshl_add_u32 v1, v0, 2, s8
		global_load_dword v2, v1, s[4:5]
		s_waitcnt vmcnt(0)
		s_mov_b64 exec, 0xffff
		v_add_f32_e32 v2, v2, v2
		v_mfma_f32_16x16x16_bf16 v[4:7], v[8:9], v[10:11], 0
		ds_write_b32 v1, v2
		s_barrier
		s_branch 0
		global_store_dword v1, v2, s[4:5]
		global_atomic_add v1, v2, s[4:5]
		s_nop 0`
	counted(t, &c, 3, 2, 1, code)
	want := KernelCounters{
		Kernel: "snippet", Launches: 1, Groups: 3, Waves: 6, Instructions: 6 * 16, SALU: 12, VALU: 12, MFMA: 6, SMEM: 6, Loads: 6, Stores: 6, Atomics: 6, LDS: 6,
		Branches: 6, Barriers: 6, Waits: 12, Other: 12, ActiveLanes: 6 * (64 + 16),
		RequestedBytes: 6 * (256 + 64 + 64), Lines: 6 * (2 + 1 + 1), NewLines: 6 * 2, Rows: 6 * 3, LDSCycles: 6, Occupancy: 2,
	}
	if d := cmp.Diff([]KernelCounters{want}, c.Kernels()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	if got := want.Active(); got != (64+16)/128. {
		t.Errorf("active part %v", got)
	}
	counted(t, &c, 3, 2, 4, code)
	twice := want
	for i, p := range twice.sums() {
		*p += *want.sums()[i]
	}
	if d := cmp.Diff([]KernelCounters{twice}, c.Kernels()); d != "" {
		t.Errorf("two launches (-want +got):\n%s", d)
	}
	var table strings.Builder
	if err := c.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"snippet", "62.5%", "75.0%", "192"} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("the table has no %q:\n%s", part, table.String())
		}
	}
	text, err := json.Marshal(c.Kernels())
	if err != nil || !strings.Contains(string(text), `"vmem_lines":48`) {
		t.Errorf("json %s, %v", text, err)
	}
}

func TestCoalescing(t *testing.T) {
	for _, c := range []struct {
		name, address, access string
		bytes, lines, rows    int64
	}{
		{"next to each other", "v_lshlrev_b32_e32 v1, 2, v0", "global_load_dword v2, v1, s[4:5]", 256, 2, 1},
		{"the same for all", "v_mov_b32_e32 v1, 64", "global_load_dword v2, v1, s[4:5]", 256, 1, 1},
		{"not aligned to lines", "v_lshlrev_b32_e32 v1, 2, v0", "global_load_dword v2, v1, s[4:5] offset:4", 256, 3, 1},
		{"every other word", "v_lshlrev_b32_e32 v1, 3, v0", "global_load_dword v2, v1, s[4:5]", 256, 4, 64},
		{"a line each", "v_lshlrev_b32_e32 v1, 7, v0", "global_load_dword v2, v1, s[4:5]", 256, 64, 64},
		{"16 bytes", "v_lshlrev_b32_e32 v1, 4, v0", "global_load_dwordx4 v[4:7], v1, s[4:5]", 1024, 8, 1},
		{"16 bytes across lines", "v_lshlrev_b32_e32 v1, 8, v0", "global_load_dwordx4 v[4:7], v1, s[4:5] offset:120", 1024, 128, 64},
		{"rows of 16 lanes", "v_lshrrev_b32_e32 v1, 4, v0\nv_lshlrev_b32_e32 v1, 9, v1\nv_and_b32_e32 v2, 15, v0\nv_lshl_add_u32 v1, v2, 2, v1",
			"global_load_dword v2, v1, s[4:5]", 256, 4, 4},
		{"backwards", "v_lshlrev_b32_e32 v1, 2, v0\nv_sub_u32_e32 v1, 0x100, v1", "global_load_ushort v2, v1, s[4:5]", 128, 3, 64},
	} {
		var n Counters
		counted(t, &n, 1, 1, 1, "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"+c.address+"\n"+c.access)
		k := n.Kernels()[0]
		if k.RequestedBytes != c.bytes || k.Lines != c.lines || k.Rows != c.rows {
			t.Errorf("%s: %d bytes, %d lines, %d rows, want %d, %d, %d", c.name, k.RequestedBytes, k.Lines, k.Rows, c.bytes, c.lines, c.rows)
		}
		if got, want := k.Coalescing(), float64(c.bytes)/float64(128*c.lines); got != want {
			t.Errorf("%s: coalescing %v, want %v", c.name, got, want)
		}
	}
}

// A line is new that none of the wave's last accesses touched.
func TestNewLines(t *testing.T) {
	half := "v_lshlrev_b32_e32 v1, 7, v0\ns_mov_b64 exec, 0xff\n" // of 8 lanes, a line each
	load := func(offset string) string { return "global_load_dwordx4 v[4:7], v1, s[4:5]" + offset + "\n" }
	for _, c := range []struct {
		name, code      string
		lines, newLines int64
	}{
		{"parts of the same lines", half + load("") + load(" offset:16") + load(" offset:112"), 24, 8},
		{"one of the next", half + load("") + load(" offset:128"), 16, 9},
	} {
		var n Counters
		counted(t, &n, 1, 1, 1, "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"+c.code)
		k := n.Kernels()[0]
		if k.Lines != c.lines || k.NewLines != c.newLines || k.LineUse() != float64(k.RequestedBytes)/float64(128*c.newLines) {
			t.Errorf("%s: %d lines, %d new, used %v; want %d, %d", c.name, k.Lines, k.NewLines, k.LineUse(), c.lines, c.newLines)
		}
	}
	// The first lines again, after as many accesses as are looked back to, and after one more.
	for more, want := range []int64{8, 16} {
		var n Counters
		code := half + load("") + "v_mov_b32_e32 v3, 0x8000\n" + strings.Repeat("global_load_dword v2, v3, s[4:5]\n", recent-1+more) + load(" offset:32")
		counted(t, &n, 1, 1, 1, "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"+code)
		if k := n.Kernels()[0]; k.NewLines != want+1 {
			t.Errorf("%d accesses between: %d new lines, want %d", recent-1+more, k.NewLines, want+1)
		}
	}
}

// Cycles and repeats of LDS accesses, counted by hand.
func TestLDSBanks(t *testing.T) {
	for _, c := range []struct {
		name, address, access string
		cycles, conflicts     int64
	}{
		{"a word each", "v_lshlrev_b32_e32 v1, 2, v0", "ds_read_b32 v2, v1", 2, 0},
		{"the same word", "v_mov_b32_e32 v1, 4", "ds_read_b32 v2, v1", 2, 0},
		{"every other word", "v_lshlrev_b32_e32 v1, 3, v0", "ds_write_b32 v1, v0", 4, 2},
		{"a column", "v_lshlrev_b32_e32 v1, 7, v0", "ds_read_b32 v2, v1", 64, 62},
		{"a padded column", "v_mul_lo_u32 v1, v0, 0x84", "ds_read_b32 v2, v1", 2, 0},
		{"halfwords of a word", "v_lshlrev_b32_e32 v1, 1, v0", "ds_read_u16 v2, v1", 2, 0},
		{"8 bytes", "v_lshlrev_b32_e32 v1, 3, v0", "ds_read_b64 v[2:3], v1", 4, 0},
		{"16 bytes", "v_lshlrev_b32_e32 v1, 4, v0", "ds_read_b128 v[4:7], v1", 8, 0},
		{"16 bytes written", "v_lshlrev_b32_e32 v1, 4, v0", "ds_write_b128 v1, v[4:7]", 8, 0},
		// Lanes of 144 bytes lie 4 banks apart: 8 of them fill the banks, in a row.
		{"padded rows of 16 bytes", "v_mul_lo_u32 v1, v0, 0x90", "ds_write_b128 v1, v[4:7]", 8, 0},
		// Of a read 0..3 and 20..23 go together, which meet no less in banks 16 to 31.
		{"padded rows read", "v_mul_lo_u32 v1, v0, 0x90", "ds_read_b128 v[4:7], v1", 8, 0},
		// 4 lanes of 32 bytes fill the banks: a phase of 8 meets twice.
		{"16 of 32 bytes", "v_lshlrev_b32_e32 v1, 5, v0", "ds_read_b128 v[4:7], v1", 16, 8},
		{"two accesses", "v_lshlrev_b32_e32 v1, 2, v0", "ds_read2_b32 v[2:3], v1 offset1:64", 4, 0},
		{"16 lanes", "v_lshlrev_b32_e32 v1, 2, v0\ns_mov_b64 exec, 0xffff", "ds_read_b32 v2, v1", 1, 0},
	} {
		var n Counters
		counted(t, &n, 1, 1, 1, c.address+"\n"+c.access)
		k := n.Kernels()[0]
		if k.LDSCycles != c.cycles || k.LDSConflicts != c.conflicts {
			t.Errorf("%s: %d cycles, %d of them repeats, want %d, %d", c.name, k.LDSCycles, k.LDSConflicts, c.cycles, c.conflicts)
		}
	}
}

func TestTrace(t *testing.T) {
	k := snippet(t, "gfx942", "s_mov_b32 s4, 0x3f800000", "v_add_u32_e32 v1, 5, v0", "s_mov_b64 exec, 3", "v_mul_f32_e32 v2, s4, v3", "s_cmp_eq_u32 s4, 0", "s_branch 0")
	run := func(tr *Trace) error {
		_, err := k.Run(t.Context(), Launch{Grid: [3]int{2, 2, 1}, Block: [3]int{128, 1, 1}, Trace: tr})
		return err
	}
	tr := &Trace{Group: 2, Wave: 1, Limit: 5, Floats: false}
	if err := run(tr); err != nil {
		t.Fatal(err)
	}
	want := `kernel snippet, work-group [0 1 0], wave 1
+0x0: s_mov_b32 s4, 0x3f800000
  -> s4 = 0x3f800000
+0x4: v_add_u32_e32 v1, 5, v0
     v0 = [0] 0x40 [63] 0x7f
  -> v1 = [0] 0x45 [63] 0x84
+0x8: s_mov_b64 exec, 3
  -> exec = 0x3 0x0
+0xc: v_mul_f32_e32 v2, s4, v3
    exec 0x3
     s4 = 0x3f800000
     v3 = 0x0
  -> v2 = 0x0
+0x10: s_cmp_eq_u32 s4, 0
    exec 0x3
     s4 = 0x3f800000
  -> scc = 0
`
	if d := cmp.Diff(want, tr.String()); d != "" {
		t.Errorf("trace (-want +got):\n%s", d)
	}
	tr = &Trace{Limit: 1, Floats: true, Lanes: []int{3}}
	if err := run(tr); err != nil || !strings.Contains(tr.String(), "s4 = 0x3f800000 (1)") {
		t.Errorf("%v, trace:\n%s", err, tr)
	}
	for _, bad := range []*Trace{{Group: 4}, {Wave: 2}, {Lanes: []int{64}}} {
		if err := run(bad); err == nil || !strings.Contains(err.Error(), "trace: no") {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}
