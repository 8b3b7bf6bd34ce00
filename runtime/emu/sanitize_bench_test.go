package emu

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/codegen/object"
)

// What sanitizers and counters cost, on a loop of what matrix kernels do.
func BenchmarkSanitizers(b *testing.B) {
	k := snippet(b, "gfx942",
		"s_load_dwordx2 s[4:5], s[0:1], 0x0",
		"s_movk_i32 s8, 0x100",
		"v_lshlrev_b32_e32 v1, 4, v0",
		"v_mov_b32_e32 v20, 0", "v_mov_b32_e32 v21, 0", "v_mov_b32_e32 v22, 0", "v_mov_b32_e32 v23, 0",
		"s_waitcnt lgkmcnt(0)",
		"global_load_dwordx4 v[4:7], v1, s[4:5]", // the loop
		"s_waitcnt vmcnt(0)",
		"ds_write_b128 v1, v[4:7]",
		"s_waitcnt lgkmcnt(0)",
		"s_barrier",
		"ds_read_b128 v[8:11], v1",
		"v_add_u32_e32 v2, 1, v1",
		"v_mul_f32_e32 v3, v4, v5",
		"v_fma_f32 v3, v4, v5, v3",
		"v_cmp_lt_u32_e32 vcc, v2, v1",
		"v_cndmask_b32_e32 v12, v3, v2, vcc",
		"s_waitcnt lgkmcnt(0)",
		"v_mfma_f32_16x16x16_bf16 v[20:23], v[8:9], v[10:11], v[20:23]",
		"s_barrier",
		"s_sub_u32 s8, s8, 1",
		"s_cmp_lg_u32 s8, 0",
		"s_cbranch_scc1 65519",
		"global_store_dwordx4 v1, v[20:23], s[4:5]",
	)
	k.Meta.KernargBytes, k.Meta.Descriptor.Properties, k.Meta.Descriptor.Rsrc2 = 8, uint16(object.KernargSegmentPtr), 2<<1
	memory := make([]byte, 4096)
	space := &Space{}
	if err := space.Map(memory, "memory"); err != nil {
		b.Fatal(err)
	}
	args := make([]byte, 8)
	le.PutUint64(args, Address(memory))
	buffers := []Buffer{{Address: Address(memory), Bytes: 4096, Mode: ModeRead | ModeWrite, Label: "memory"}}
	for _, c := range []struct {
		name string
		l    Launch
	}{
		{"none", Launch{}}, {"counters", Launch{Counters: &Counters{}}},
		{"memory", Launch{Sanitize: &Sanitize{Checks: CheckMemory, Buffers: buffers}}},
		{"race", Launch{Sanitize: &Sanitize{Checks: CheckRace, Buffers: buffers}}},
		{"uninit", Launch{Sanitize: &Sanitize{Checks: CheckUninit, Buffers: buffers}}},
		{"waitcnt", Launch{Sanitize: &Sanitize{Checks: CheckWaitcnt, Buffers: buffers}}},
		{"all", Launch{Sanitize: &Sanitize{Checks: CheckAll, Buffers: buffers}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := c.l
			l.Grid, l.Block, l.LDS, l.Kernarg, l.Memory, l.Workers = [3]int{1, 1, 1}, [3]int{256, 1, 1}, 4096, args, space, 1
			total := uint64(0)
			for b.Loop() {
				s, err := k.Run(b.Context(), l)
				if err != nil {
					b.Fatal(fmt.Errorf("%s: %w", c.name, err))
				}
				total += s.Instructions
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e6, "Minst/s")
		})
	}
}
