package emu

import (
	"fmt"
	"testing"
)

// benchmarkStep times one instruction, of a wave with all lanes on.
func benchmarkStep(b *testing.B, line string, init func(w *wave)) {
	b.Helper()
	k := snippet(b, "gfx950", line)
	w := runWave(b, k, init)
	w.status = running
	b.ReportAllocs()
	for b.Loop() {
		k.steps[0](w)
	}
	if w.fault != nil {
		b.Fatal(w.fault)
	}
}

func BenchmarkMemory(b *testing.B) {
	mem := make([]byte, 1<<16)
	for _, c := range []struct {
		line   string
		stride int
	}{
		{"global_load_dword v4, v2, s[0:1]", 4},
		{"global_load_dword v4, v2, s[0:1]", 68},
		{"global_load_dword v4, v[8:9], off", 4},
		{"global_load_dwordx4 v[4:7], v2, s[0:1]", 16},
		{"global_load_dwordx4 v[4:7], v2, s[0:1]", 80},
		{"global_load_ushort v4, v2, s[0:1]", 2},
		{"global_store_dword v2, v4, s[0:1]", 4},
		{"global_store_short_d16_hi v2, v4, s[0:1]", 2},
		{"flat_load_dword v4, v[8:9]", 68},
		{"buffer_load_dword v4, v2, s[4:7], 0 offen", 4},
		{"ds_read_b128 v[4:7], v2", 16},
		{"ds_read_b128 v[4:7], v2", 80},
		{"ds_write_b32 v2, v4", 4},
		{"ds_read2_b32 v[4:5], v2 offset1:1", 4},
		{"ds_bpermute_b32 v4, v2, v4", 4},
		{"ds_read_b64_tr_b16 v[4:5], v2", 8},
	} {
		b.Run(fmt.Sprintf("%s stride %d", c.line, c.stride), func(b *testing.B) {
			benchmarkStep(b, c.line, func(w *wave) {
				base := mapped(b, w, mem, "data")
				w.setS64(0, base)
				w.s[4], w.s[5], w.s[6] = uint32(base), uint32(base>>32), uint32(len(mem))
				for i := range Lanes {
					w.v[2][i] = uint32(c.stride * i)
				}
				setAddress(w, 8, func(i int) uint64 { return base + uint64(c.stride*i) })
			})
		})
	}
}
