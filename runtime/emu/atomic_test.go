package emu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// atomicCases are results worked out by hand. Names are those of memory; lds is that
// of the DS instruction if there is one.
var atomicCases = []struct {
	memory, lds string
	size        int
	old         uint64
	a, b        uint64 // b: what to compare with, or what mskor sets
	want        uint64
}{
	{"swap", "wrxchg_rtn_b32", 4, 7, 9, 0, 9},
	{"swap_x2", "wrxchg_rtn_b64", 8, 7, 0x900000001, 0, 0x900000001},
	{"cmpswap", "cmpst_b32", 4, 7, 9, 7, 9},
	{"cmpswap", "cmpst_b32", 4, 7, 9, 8, 7},
	{"cmpswap_x2", "cmpst_b64", 8, 7 << 32, 9 << 32, 7 << 32, 9 << 32},
	{"cmpswap_x2", "cmpst_b64", 8, 7 << 32, 9 << 32, 8 << 32, 7 << 32},
	{"add", "add_u32", 4, 0xffffffff, 2, 0, 1},
	{"add_x2", "add_u64", 8, 0xffffffff, 2, 0, 0x100000001},
	{"sub", "sub_u32", 4, 1, 2, 0, 0xffffffff},
	{"sub_x2", "sub_u64", 8, 1, 2, 0, math.MaxUint64},
	{"", "rsub_u32", 4, 1, 5, 0, 4},
	{"", "rsub_u64", 8, 5, 1, 0, math.MaxUint64 - 3},
	{"smin", "min_i32", 4, 5, 0xfffffffd, 0, 0xfffffffd},
	{"smax", "max_i32", 4, 5, 0xfffffffd, 0, 5},
	{"umin", "min_u32", 4, 5, 0xfffffffd, 0, 5},
	{"umax", "max_u32", 4, 5, 0xfffffffd, 0, 0xfffffffd},
	{"smin_x2", "min_i64", 8, 5, math.MaxUint64, 0, math.MaxUint64},
	{"smax_x2", "max_i64", 8, 5, math.MaxUint64, 0, 5},
	{"umin_x2", "min_u64", 8, 5, math.MaxUint64, 0, 5},
	{"umax_x2", "max_u64", 8, 5, math.MaxUint64, 0, math.MaxUint64},
	{"and", "and_b32", 4, 0b1100, 0b1010, 0, 0b1000},
	{"or", "or_b32", 4, 0b1100, 0b1010, 0, 0b1110},
	{"xor", "xor_b32", 4, 0b1100, 0b1010, 0, 0b0110},
	{"and_x2", "and_b64", 8, 0b1100 << 40, 0b1010 << 40, 0, 0b1000 << 40},
	{"or_x2", "or_b64", 8, 0b1100 << 40, 0b1010 << 40, 0, 0b1110 << 40},
	{"xor_x2", "xor_b64", 8, 0b1100 << 40, 0b1010 << 40, 0, 0b0110 << 40},
	{"", "mskor_b32", 4, 0b1100, 0b0110, 0b0011, 0b1011},
	{"", "mskor_b64", 8, 0b1100 << 40, 0b0110 << 40, 0b0011 << 40, 0b1011 << 40},
	{"inc", "inc_u32", 4, 4, 5, 0, 5},
	{"inc", "inc_u32", 4, 5, 5, 0, 0},
	{"dec", "dec_u32", 4, 0, 5, 0, 5},
	{"dec", "dec_u32", 4, 6, 5, 0, 5},
	{"dec", "dec_u32", 4, 5, 5, 0, 4},
	{"inc_x2", "inc_u64", 8, 1 << 33, 5, 0, 0},
	{"dec_x2", "dec_u64", 8, 1 << 33, 5, 0, 5},
	{"add_f32", "add_f32", 4, 0x3f800000, 0x33800000, 0, 0x3f800000}, // 1 + 2^-24: a tie, to even
	{"add_f32", "add_f32", 4, 0x3f800001, 0x33800000, 0, 0x3f800002},
	{"add_f32", "add_f32", 4, 0x00000001, 0x00000002, 0, 0x00000003}, // denormals stay
	{"", "min_f32", 4, 0x3f800000, 0xbf800000, 0, 0xbf800000},
	{"", "min_f32", 4, 0x3f800000, 0x7fc00000, 0, 0x3f800000}, // a NaN is not less
	{"", "max_f32", 4, 0x3f800000, 0x40000000, 0, 0x40000000},
	{"", "max_f32", 4, 0x80000000, 0x00000000, 0, 0x80000000}, // zeros are equal
	{"", "cmpst_f32", 4, 0x80000000, 0x3f800000, 0x00000000, 0x3f800000},
	{"", "cmpst_f32", 4, 0x7fc00000, 0x3f800000, 0x7fc00000, 0x7fc00000},
	{"add_f64", "add_f64", 8, 0x3ff0000000000000, 0x3ff8000000000000, 0, 0x4004000000000000},
	{"min_f64", "min_f64", 8, 0x3ff0000000000000, 0xbff0000000000000, 0, 0xbff0000000000000},
	{"max_f64", "max_f64", 8, 0x3ff0000000000000, 0xbff0000000000000, 0, 0x3ff0000000000000},
	{"", "cmpst_f64", 8, 1 << 63, 5, 0, 5},
	{"pk_add_f16", "pk_add_f16", 4, 0x3c000001, 0x40003c00, 0, 0x42003c00}, // 1+2 | 2^-24 + 1
	{"pk_add_f16", "pk_add_f16", 4, 0x7bff0003, 0x7bff0002, 0, 0x7c000005}, // overflow | denormals
	{"pk_add_bf16", "pk_add_bf16", 4, 0x3f803f80, 0x3f803b80, 0, 0x40003f80},
	{"pk_add_bf16", "pk_add_bf16", 4, 0x3f81ff80, 0x3b803f80, 0, 0x3f82ff80}, // a tie, to even | -Inf
}

func TestAtomics(t *testing.T) {
	for _, c := range atomicCases {
		words := c.size / 4
		// Registers: v2 address, v4 data, v8 second data, v12 result.
		type form struct{ line, place string }
		var forms []form
		d, s, both, second := registers("v", 12, words), registers("v", 4, words), registers("v", 4, 2*words), registers("v", 8, words)
		if c.memory != "" {
			data := s
			if strings.Contains(c.memory, "cmpswap") {
				data = both
			}
			forms = append(forms,
				form{"global_atomic_" + c.memory + " " + d + ", v2, " + data + ", s[0:1] sc0", "memory"},
				form{"global_atomic_" + c.memory + " v2, " + data + ", s[0:1] offset:0 sc1", "memory"},
				form{"flat_atomic_" + c.memory + " " + d + ", v[20:21], " + data + " sc0", "memory"},
				form{"flat_atomic_" + c.memory + " v[22:23], " + data, "lds"},
				form{"buffer_atomic_" + c.memory + " " + data + ", v2, s[4:7], 0 offen sc0", "memory"},
				form{"buffer_atomic_" + c.memory + " " + data + ", v2, s[4:7], 0 offen", "memory"})
		}
		data := s
		if strings.Contains(c.lds, "cmpst") { // what to compare with comes first
			data = second + ", " + s
		} else if strings.Contains(c.lds, "mskor") {
			data = s + ", " + second
		}
		if base, ok := strings.CutPrefix(c.lds, "wrxchg_rtn"); ok {
			forms = append(forms, form{"ds_wrxchg_rtn" + base + " " + d + ", v2, " + data, "lds"})
		} else {
			i := strings.LastIndex(c.lds, "_")
			forms = append(forms, form{"ds_" + c.lds + " v2, " + data, "lds"}, form{"ds_" + c.lds[:i] + "_rtn" + c.lds[i:] + " " + d + ", v2, " + data + " offset:0", "lds"})
		}
		for _, f := range forms {
			for _, exec := range []uint64{fullMask, 0x5555, 0} {
				checkAtomic(t, f.line, f.place == "lds", c.size, exec, c.old, c.a, c.b, c.want)
			}
		}
	}
}

func checkAtomic(t *testing.T, line string, lds bool, size int, exec, old, a, b, want uint64) {
	t.Helper()
	k := snippet(t, "gfx950", line)
	words := size / 4
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, Lanes)))), 8*Lanes)
	put := func(b []byte, x uint64) {
		if size == 4 {
			le.PutUint32(b, uint32(x))
		} else {
			le.PutUint64(b, x)
		}
	}
	w := runWave(t, k, func(w *wave) {
		base := mapped(t, w, mem, "data")
		w.setS64(0, base)
		w.s[4], w.s[5], w.s[6], w.s[7] = uint32(base), uint32(base>>32), uint32(len(mem)), 0
		for i := range Lanes {
			put(mem[i*size:], old)
			put(w.group.lds[i*size:], old)
			w.v[2][i] = uint32(i * size)
			for j := range words {
				w.v[4+j][i], w.v[8+j][i] = uint32(a>>(32*j)), uint32(b>>(32*j))
				if !strings.HasPrefix(line, "ds_") { // one operand after the other
					w.v[4+words+j][i] = uint32(b >> (32 * j))
				}
				w.v[12+j][i] = 0xdead
			}
		}
		setAddress(w, 20, func(i int) uint64 { return base + uint64(i*size) })
		setAddress(w, 22, func(i int) uint64 { return sharedBase + uint64(i*size) })
		w.setExec(exec)
	})
	if lds {
		mem = w.group.lds
	}
	result := 12
	if strings.HasPrefix(line, "buffer_") {
		result = 4
	}
	returns := strings.Contains(line, "sc0") || strings.Contains(line, "_rtn")
	for i := range Lanes {
		on := exec>>i&1 != 0
		got, x := uint64(le.Uint32(mem[i*size:])), old
		if size == 8 {
			got = le.Uint64(mem[i*size:])
		}
		if on {
			x = want
		}
		if got != x {
			t.Fatalf("%s: old %#x data %#x %#x, lane %d on %t: memory is %#x, want %#x", line, old, a, b, i, on, got, x)
		}
		for j := range words {
			want := uint32(0xdead)
			if result == 4 {
				want = uint32(a >> (32 * j))
			}
			if on && returns {
				want = uint32(old >> (32 * j))
			}
			if got := w.v[result+j][i]; got != want {
				t.Fatalf("%s: lane %d on %t: result %d is %#x, want %#x", line, i, on, j, got, want)
			}
		}
	}
}

// TestAtomicLanes has all lanes add to one word, in order.
func TestAtomicLanes(t *testing.T) {
	for _, line := range []string{"ds_add_rtn_u32 v2, v2, v3", "ds_append"} {
		if line == "ds_append" {
			if _, err := trySnippet("gfx942", line+" v1"); err == nil {
				t.Errorf("%s is not refused", line)
			}
			continue
		}
		w := runWave(t, snippet(t, "gfx942", line), func(w *wave) {
			for i := range Lanes {
				w.v[2][i], w.v[3][i] = 0, uint32(i)
			}
		})
		for i := range Lanes {
			if want := uint32(i * (i - 1) / 2); w.v[2][i] != want {
				t.Errorf("lane %d: %d, want %d", i, w.v[2][i], want)
			}
		}
	}
}

// TestAtomicGroups has many work-groups on several goroutines count in the same words,
// with operations and with a loop of compare and swap; the tickets are all different.
func TestAtomicGroups(t *testing.T) {
	k := snippet(t, "gfx942",
		// s[0:1] is the argument segment, s2 the work-group.
		"s_load_dwordx2 s[4:5], s[0:1], 0x0",
		"v_mov_b32_e32 v1, 0",
		"v_mov_b32_e32 v2, 1",
		"global_atomic_add v3, v1, v2, s[4:5] sc0",      // a ticket
		"v_mov_b32_e32 v4, 0x3f800000",                  // 1.0
		"global_atomic_add_f32 v1, v4, s[4:5] offset:4", // exact up to 2^24
		"global_load_dword v6, v1, s[4:5] offset:8 sc1", // 6: retry
		"v_add_u32_e32 v5, 1, v6",                       // new; v6 is what to compare with
		"global_atomic_cmpswap v8, v1, v[5:6], s[4:5] offset:8 sc0",
		"v_cmp_ne_u32_e32 vcc, v8, v6",
		"s_and_b64 exec, exec, vcc",
		"s_cbranch_execnz 65530", // 11 + 1 - 6 = 6
		"s_mov_b64 exec, -1",
		"v_lshlrev_b32_e32 v3, 2, v3",
		"global_store_dword v3, v2, s[4:5] offset:16",
	)
	k.Meta.KernargBytes = 8
	k.Meta.Descriptor.Properties = 1 << 3
	k.Meta.Descriptor.Rsrc2 = 2 << 1
	const groups = 64
	mem := make([]uint32, 4+groups*2*Lanes)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), 4*len(mem))
	space := &Space{}
	if err := space.Map(b, "data"); err != nil {
		t.Fatal(err)
	}
	args := le.AppendUint64(nil, Address(b))
	if _, err := k.Run(t.Context(), Launch{Grid: [3]int{groups, 1, 1}, Block: [3]int{2 * Lanes, 1, 1}, Kernarg: args, Memory: space, Workers: 8}); err != nil {
		t.Fatal(err)
	}
	want := slices.Repeat([]uint32{1}, len(mem))
	n := uint32(groups * 2 * Lanes)
	want[0], want[1], want[2], want[3] = n, math.Float32bits(float32(n)), n, 0
	if d := cmp.Diff(want, mem); d != "" {
		t.Error(d)
	}
}

// TestMessageBetweenGroups has the first work-group wait for the last one: for a flag
// that is set after data was written.
func TestMessageBetweenGroups(t *testing.T) {
	k := snippet(t, "gfx942",
		"s_load_dwordx2 s[4:5], s[0:1], 0x0",
		"v_mov_b32_e32 v1, 0",
		"s_cmp_eq_u32 s2, 0",
		"s_cbranch_scc1 7", // to 11
		"s_cmp_lg_u32 s2, 31",
		"s_cbranch_scc1 12", // to 18
		"v_mov_b32_e32 v2, 7",
		"global_store_dword v1, v2, s[4:5] offset:64",
		"buffer_wbl2 sc1",
		"global_store_dword v1, v2, s[4:5] sc1",
		"s_branch 7", // to 18
		"global_load_dword v2, v1, s[4:5] sc1",
		"v_readfirstlane_b32 s6, v2",
		"s_cmp_lg_u32 s6, 7",
		"s_cbranch_scc1 65532", // to 11
		"buffer_inv sc1",
		"global_load_dword v2, v1, s[4:5] offset:64",
		"global_store_dword v1, v2, s[4:5] offset:128",
	)
	k.Meta.KernargBytes = 8
	k.Meta.Descriptor.Properties = 1 << 3
	k.Meta.Descriptor.Rsrc2 = 2<<1 | 1<<7
	for workers := range 3 {
		mem := make([]uint32, 64)
		b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), 4*len(mem))
		space := &Space{}
		if err := space.Map(b, "data"); err != nil {
			t.Fatal(err)
		}
		_, err := k.Run(t.Context(), Launch{Grid: [3]int{32, 1, 1}, Block: [3]int{Lanes, 1, 1}, Kernarg: le.AppendUint64(nil, Address(b)), Memory: space, Workers: 1 + workers})
		if err != nil {
			t.Fatal(err)
		}
		if mem[32] != 7 {
			t.Errorf("%d workers: the message is %d, want 7", 1+workers, mem[32])
		}
	}
}

func TestBadAtomics(t *testing.T) {
	for _, c := range []struct {
		line string
		at   uint64
		want string
	}{
		{"global_atomic_add v2, v4, s[0:1]", 2, "lane 0 accesses data+2, which is not aligned to 4 bytes"},
		{"global_atomic_add v2, v4, s[0:1]", 256, "lane 0 accesses 4 bytes"},
		{"ds_add_u64 v2, v[4:5]", 4, "which is not aligned to 8 bytes"},
		{"ds_add_u32 v2, v4", 65536, "at offset 65536 of LDS"},
		{"flat_atomic_add v[8:9], v4", 0, "on scratch memory"},
	} {
		mem := make([]uint64, 1<<16)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&mem[1<<15])), 256)
		_, err := tryWave(snippet(t, "gfx942", c.line), func(w *wave) {
			w.setS64(0, mapped(t, w, b, "data"))
			broadcast(&w.v[2], uint32(c.at))
			setAddress(w, 8, func(int) uint64 { return privateBase })
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
	for _, c := range []struct{ chip, line, want string }{
		{"gfx942", "buffer_atomic_pk_add_bf16 v4, v2, s[4:7], 0 offen", "has no instruction"},
		{"gfx942", "global_atomic_cmpswap v2, v4, s[0:1]", "1 registers, not 2"},
		{"gfx942", "global_atomic_csub v2, v4, s[0:1]", "unknown instruction"},
		{"gfx942", "ds_wrxchg_b32 v2, v4", "unknown instruction"},
	} {
		if _, err := trySnippet(c.chip, c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
}

func BenchmarkAtomicAdd(b *testing.B) {
	for _, line := range []string{"global_atomic_add v1, v2, s[0:1]", "ds_add_u32 v1, v2"} {
		b.Run(fmt.Sprint(line[:6]), func(b *testing.B) {
			mem := make([]uint32, Lanes)
			benchmarkStep(b, line, func(w *wave) {
				w.setS64(0, mapped(b, w, unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 4*Lanes), "data"))
				for i := range Lanes {
					w.v[1][i] = uint32(4 * i)
				}
			})
		})
	}
}
