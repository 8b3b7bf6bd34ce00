package emu

import (
	"math"
	"testing"
)

// BenchmarkVALU runs loops of one instruction each, on one core.
func BenchmarkVALU(b *testing.B) {
	for _, c := range []struct{ name, line string }{
		{"mov_b32", "v_mov_b32_e32 v2, v3"},
		{"add_f32", "v_add_f32_e32 v2, v3, v4"},
		{"add_f32/scalar", "v_add_f32_e32 v2, s3, v4"},
		{"add_f32/neg", "v_add_f32_e64 v2, -v3, |v4|"},
		{"mul_f32", "v_mul_f32_e32 v2, v3, v4"},
		{"fma_f32", "v_fma_f32 v2, v3, v4, v5"},
		{"fmac_f32", "v_fmac_f32_e32 v2, v3, v4"},
		{"max_f32", "v_max_f32_e32 v2, v3, v4"},
		{"pk_fma_f32", "v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7]"},
		{"lshl_add_u64", "v_lshl_add_u64 v[8:9], v[2:3], 2, v[4:5]"},
		{"add_u32", "v_add_u32_e32 v2, v3, v4"},
		{"lshlrev_b32", "v_lshlrev_b32_e32 v2, 16, v4"},
		{"bfe_u32", "v_bfe_u32 v2, v3, 16, 1"},
		{"perm_b32", "v_perm_b32 v2, v3, v4, s4"},
		{"cmp_lt_f32", "v_cmp_lt_f32_e32 vcc, v3, v4"},
		{"cmp_lt_u64", "v_cmp_lt_u64_e32 vcc, v[2:3], v[4:5]"},
		{"cndmask_b32", "v_cndmask_b32_e32 v2, v3, v4, vcc"},
		{"exp_f32", "v_exp_f32_e32 v2, v3"},
		{"rcp_f32", "v_rcp_f32_e32 v2, v3"},
		{"cvt_f16_f32", "v_cvt_f16_f32_e32 v2, v3"},
		{"cvt_f32_f16", "v_cvt_f32_f16_e32 v2, v3"},
		{"cvt_i32_f32", "v_cvt_i32_f32_e32 v2, v3"},
		{"cvt_f32_fp8", "v_cvt_f32_fp8_sdwa v2, v3 src0_sel:BYTE_1"},
		{"div_scale_f32", "v_div_scale_f32 v2, vcc, v3, v4, v3"},
		{"div_fmas_f32", "v_div_fmas_f32 v2, v3, v4, v5"},
		{"add_f32/dpp", "v_add_f32_dpp v2, v3, v4 row_shr:1 row_mask:0xf bank_mask:0xf"},
		{"add_f64", "v_add_f64 v[2:3], v[4:5], v[6:7]"},
		{"pk_add_f16", "v_pk_add_f16 v2, v3, v4"},
	} {
		for _, exec := range []struct {
			name string
			mask uint64
		}{{"full", ^uint64(0)}, {"partial", 0xffffffff0000fff0}} {
			b.Run(c.name+"/"+exec.name, func(b *testing.B) {
				const n = 1000
				lines := make([]string, n)
				for i := range lines {
					lines[i] = c.line
				}
				k := snippet(b, "gfx942", lines...)
				w := runWave(b, k, nil)
				for b.Loop() {
					w.pc, w.status = 0, running
					for i := range Lanes {
						for r := 2; r < 8; r++ {
							w.v[r][i] = math.Float32bits(float32(i+r) / 7)
						}
					}
					w.setExec(exec.mask)
					w.run(k.steps, n)
				}
				b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds()/1e6, "Minst/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
