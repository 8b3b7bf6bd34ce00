package emu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every kind of mutation, on lines of code: what stands instead, in order.
func TestMutations(t *testing.T) {
	for _, c := range []struct {
		chip, kind, code string // the last line is mutated
		want             []string
	}{
		{"gfx942", "barrier", "s_barrier", []string{"s_nop 0"}},
		{"gfx942", "vmcnt dropped", "s_waitcnt vmcnt(2) lgkmcnt(0)", []string{"s_waitcnt lgkmcnt(0)"}},
		{"gfx942", "vmcnt weakened", "s_waitcnt vmcnt(2) lgkmcnt(0)", []string{"s_waitcnt vmcnt(3) lgkmcnt(0)"}},
		{"gfx942", "lgkmcnt dropped", "s_waitcnt lgkmcnt(0)", []string{"s_nop 0"}},
		{"gfx942", "lgkmcnt weakened", "s_waitcnt vmcnt(2) lgkmcnt(0)", []string{"s_waitcnt vmcnt(2) lgkmcnt(1)"}},
		{"gfx942", "vmcnt dropped", "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)", nil},
		{"gfx942", "fence wait", "buffer_wbl2 sc1\ns_waitcnt vmcnt(0)", []string{"s_nop 0", "s_waitcnt vmcnt(1)"}},
		{"gfx942", "fence wait", "s_waitcnt vmcnt(0) lgkmcnt(0)\nbuffer_inv sc1", nil},
		{"gfx942", "bound", "v_cmp_gt_u32_e32 vcc, 16, v0", []string{"v_cmp_ge_u32_e32 vcc, 16, v0", "v_cmp_gt_u32_e32 vcc, 17, v0", "v_cmp_gt_u32_e32 vcc, 15, v0"}},
		{"gfx942", "bound", "v_cmp_nlt_f32_e64 s[2:3], |v1|, v0", []string{"v_cmp_nle_f32_e64 s[2:3], |v1|, v0"}},
		{"gfx942", "bound", "s_cmpk_gt_u32 s15, 0x7f", []string{"s_cmpk_ge_u32 s15, 0x7f", "s_cmpk_gt_u32 s15, 0x80", "s_cmpk_gt_u32 s15, 0x7e"}},
		{"gfx942", "mfma swap", "v_mfma_f32_16x16x16_bf16 v[2:5], v[8:9], v[6:7], 0", []string{"v_mfma_f32_16x16x16_bf16 v[2:5], v[6:7], v[8:9], 0"}},
		{"gfx942", "mfma register", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v7, 0", []string{
			"v_mfma_f32_16x16x4_f32 a[0:3], v1, v7, 0", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v8, 0", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v6, 0",
		}},
		{"gfx942", "fp8 flavour", "v_cvt_f32_fp8_e32 v1, v2", []string{"v_cvt_f32_fp8_e32 v1, v2 of gfx950"}},
		{"gfx942", "address", "global_load_dwordx2 v[2:3], v1, s[4:5] offset:4", []string{
			"global_load_dwordx2 v[2:3], v1, s[4:5] offset:8", "global_load_dwordx2 v[2:3], v1, s[4:5] offset:12",
			"global_load_dwordx2 v[2:3], v1, s[4:5]", "global_load_dwordx2 v[2:3], v1, s[4:5] offset:-4",
		}},
		{"gfx942", "address", "ds_write_b32 v1, v2", []string{"ds_write_b32 v1, v2 offset:4"}},
		{"gfx942", "address", "ds_read2_b32 v[2:3], v1 offset1:1", []string{
			"ds_read2_b32 v[2:3], v1 offset1:1 offset0:1", "ds_read2_b32 v[2:3], v1 offset1:2", "ds_read2_b32 v[2:3], v1",
		}},
		{"gfx942", "address", "s_load_dword s8, s[4:5], 0x4", []string{"s_load_dword s8, s[4:5], 0x8", "s_load_dword s8, s[4:5], 0x0"}},
		{"gfx942", "exec", "s_and_saveexec_b64 s[4:5], vcc", []string{"s_or_saveexec_b64 s[4:5], 0"}},
		{"gfx942", "exec", "s_andn2_b64 exec, exec, s[2:3]", []string{"s_nop 0"}},
		{"gfx942", "select", "v_cndmask_b32_e64 v1, 0, v2, s[2:3]", []string{"v_cndmask_b32_e64 v1, v2, 0, s[2:3]"}},
		{"gfx942", "lane", "ds_bpermute_b32 v1, v2, v3", []string{"ds_bpermute_b32 v1, v2, v3 offset:4"}},
		{"gfx942", "lane", "v_add_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", []string{
			"v_add_f32_dpp v1, v2, v3 quad_perm:[0,3,2,1] row_mask:0xf bank_mask:0xf",
			"v_add_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0x7 bank_mask:0xf",
			"v_add_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0x7",
		}},
		{"gfx942", "bf16 rounding", "v_bfe_u32 v3, v2, 16, 1\nv_add3_u32 v3, v3, v2, s4", []string{"v_mov_b32_e32 v3, v2"}},
		{"gfx942", "bf16 rounding", "v_add3_u32 v3, v3, v2, s4", nil},
		{"gfx950", "bf16 rounding", "v_cvt_pk_bf16_f32 v4, v5, v6", []string{"v_perm_b32 v4, v6, v5, 0x7060302"}},
		{"gfx942", "half", "global_store_short_d16_hi v1, v2, s[4:5]", []string{"global_store_short v1, v2, s[4:5]"}},
		{"gfx942", "half", "v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[1,0]", []string{
			"v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[0,0]", "v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[1,1]",
		}},
		{"gfx950", "mx scale", "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[1,0,0] op_sel_hi:[0,1,0]", []string{
			"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[0,0,0] op_sel_hi:[0,1,0]",
			"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[1,1,0] op_sel_hi:[0,1,0]",
			"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
			"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23], v30, v31 op_sel:[1,0,0] op_sel_hi:[0,0,0]",
		}},
		{"gfx942", "store", "ds_write_b128 v1, v[4:7]", []string{"s_nop 0"}},
		{"gfx942", "zeroing", "v_mfma_f32_16x16x4_f32 v[2:5], v0, v7, 0", []string{"v_mfma_f32_16x16x4_f32 v[2:5], v0, v7, v[2:5]"}},
		{"gfx942", "zeroing", "v_mfma_f32_16x16x4_f32 a[0:3], v0, v7, a[0:3]\nv_accvgpr_write_b32 a3, 0", []string{"s_nop 0"}},
		{"gfx942", "sign", "v_fma_f32 v1, -v2, v3, 1.0", []string{"v_fma_f32 v1, v2, v3, 1.0", "v_fma_f32 v1, -v2, -v3, 1.0"}},
	} {
		k, err := trySnippet(c.chip, strings.Split(c.code, "\n")...)
		if err != nil {
			t.Errorf("%s: %v", c.code, err)
			continue
		}
		var got []string
		for _, m := range mutantsOf(k) {
			if m.at != len(k.insts)-3 || m.kind.name != c.kind { // s_endpgm and the end follow
				continue
			}
			if _, _, _, err := m.compile(k); err != nil {
				t.Errorf("%s: %v", c.code, err)
			}
			text := m.text
			if m.chip != "" {
				text += " of " + m.chip
			}
			got = append(got, text)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s: -want +got:\n%s", c.kind, c.code, d)
		}
	}
}
