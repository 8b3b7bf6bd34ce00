package emu

import "testing"

func TestUninitSanitizer(t *testing.T) {
	const load = "global_load_dword v2, v3, s[6:7] offset:576\n" // of slack, at v3
	runSanitizerCases(t, []sanitizerCase{
		{"computed and stored", CheckUninit, 1, 1, `
			v_add_f32_e32 v9, v8, v7
			global_store_dword v1, v9, s[6:7]`, ""},
		{"address from a register", CheckUninit, 1, 1, `
			s_mov_b64 exec, 0x10
			v_and_b32_e32 v9, 0, v9
			v_add_u32_e32 v9, v9, v8
			v_lshrrev_b32_e32 v9, 31, v9
			ds_read_b32 v3, v9`, "undefined address +0x1c: the address follows from v9, which is undefined"},
		{"address from the defined word of a pair that was moved", CheckUninit, 1, 1, `
			s_mov_b32 s12, 0
			v_mov_b64_e32 v[10:11], s[12:13]
			ds_read_b32 v3, v10`, ""},
		{"address from the undefined word of a pair that was moved", CheckUninit, 1, 1, `
			s_mov_b32 s12, 0
			v_mov_b64_e32 v[10:11], s[12:13]
			ds_read_b32 v3, v11`, "undefined address +0x14"},
		{"address from what is masked out", CheckUninit, 1, 1, `
			v_and_b32_e32 v9, 0, v8
			ds_read_b32 v3, v9`, ""},
		{"address from a shift that leaves the defined half", CheckUninit, 1, 1, `
			v_and_b32_e32 v8, 0xffff0000, v8
			v_or_b32_e32 v8, v8, v0
			v_lshlrev_b32_e32 v9, 16, v8
			v_lshrrev_b32_e32 v9, 16, v9
			ds_read_u8 v3, v9`, ""},
		{"address from a shift that leaves the undefined half", CheckUninit, 1, 1, `
			v_and_b32_e32 v8, 0xffff0000, v8
			v_or_b32_e32 v8, v8, v0
			v_lshrrev_b32_e32 v9, 31, v8
			ds_read_u8 v3, v9`, "undefined address +0x18"},
		{"lanes that are off", CheckUninit, 1, 1, `
			s_mov_b64 exec, 1
			v_mov_b32_e32 v9, 4
			ds_read_b32 v3, v9`, ""},
		{"lanes that come back", CheckUninit, 1, 1, `
			s_mov_b64 exec, 1
			v_mov_b32_e32 v9, 4
			s_mov_b64 exec, 3
			ds_read_b32 v3, v9`, "undefined address +0x18"},
		{"a select of the defined one", CheckUninit, 1, 1, `
			v_cmp_gt_u32_e32 vcc, 64, v0
			v_cndmask_b32_e32 v9, v8, v1, vcc
			ds_read_b32 v3, v9`, ""},
		{"a select of the undefined one", CheckUninit, 1, 1, `
			v_cmp_gt_u32_e32 vcc, 63, v0
			v_cndmask_b32_e32 v9, v8, v1, vcc
			ds_read_b32 v3, v9`, "undefined address +0x14"},
		{"a select by what is undefined", CheckUninit, 1, 1, `
			v_cmp_gt_f32_e32 vcc, 1.0, v8
			v_cndmask_b32_e64 v9, 0, 4, vcc
			ds_read_b32 v3, v9`, "undefined address +0x14"},
		{"the defined word of a pair of scalars", CheckUninit, 1, 1, `
			s_mov_b32 s10, 4
			v_mov_b64_e32 v[8:9], s[10:11]
			ds_read_b32 v3, v8`, ""},
		{"the undefined word of a pair of scalars", CheckUninit, 1, 1, `
			s_mov_b32 s10, 4
			v_mov_b64_e32 v[8:9], s[10:11]
			ds_read_b32 v3, v9`, "undefined address +0x14: the address follows from v9"},
		{"a shift of scalars that leaves the defined half", CheckUninit, 1, 1, `
			s_and_b32 s10, s10, 0xffff0000
			v_mov_b32_e32 v8, 16
			v_lshlrev_b32_e32 v8, v8, s10
			ds_read_b32 v3, v8`, ""},
		{"branch on scc", CheckUninit, 1, 1, `
			s_cmp_eq_u32 s9, 0
			s_cbranch_scc1 0`, "undefined branch +0x10: the branch follows from scc, which is undefined"},
		{"branch on scc of a defined bit", CheckUninit, 1, 1, `
			s_and_b32 s9, s9, 0
			s_cbranch_scc1 0
			s_cmp_eq_u32 s2, 0
			s_cbranch_scc1 0`, ""},
		{"branch on vcc", CheckUninit, 1, 1, `
			v_cmp_lt_i32_e32 vcc, v0, v8
			s_cbranch_vccnz 0`, "undefined branch +0x10: the branch follows from vcc"},
		{"branch on vcc of lanes that are off", CheckUninit, 1, 1, `
			s_mov_b64 exec, 1
			v_mov_b32_e32 v8, v0
			v_cmp_lt_i32_e32 vcc, v0, v8
			s_cbranch_vccnz 0`, ""},
		{"exec", CheckUninit, 1, 1, `
			v_cmp_lt_i32_e32 vcc, v0, v8
			s_and_saveexec_b64 s[8:9], vcc
			s_cbranch_execz 0`, "undefined exec +0x10: whether the lane is on follows from what is undefined"},
		{"exec of a defined comparison", CheckUninit, 1, 1, `
			v_cmp_gt_u32_e32 vcc, 3, v0
			s_and_saveexec_b64 s[8:9], vcc
			s_cbranch_execz 0
			s_or_b64 exec, exec, s[8:9]`, ""},
		{"a buffer that holds nothing", CheckUninit, 1, 1, `
			v_and_b32_e32 v3, 15, v0
			v_lshlrev_b32_e32 v3, 2, v3
			` + load + `
			v_cmp_gt_u32_e32 vcc, 3, v2
			s_cbranch_vccnz 0`, "undefined branch +0x1c"},
		{"a buffer that has been written", CheckUninit, 1, 1, `
			v_and_b32_e32 v3, 15, v0
			v_lshlrev_b32_e32 v3, 2, v3
			global_store_dword v3, v0, s[6:7] offset:576
			` + load + `
			v_cmp_gt_u32_e32 vcc, 3, v2
			s_cbranch_vccnz 0`, ""},
		{"a byte that has been written", CheckUninit, 1, 1, `
			v_mov_b32_e32 v3, 0
			global_store_byte v3, v0, s[6:7] offset:577
			global_load_ubyte v2, v3, s[6:7] offset:577
			v_cmp_gt_u32_e32 vcc, 3, v2
			s_cbranch_vccnz 0
			global_load_ushort v2, v3, s[6:7] offset:576
			v_lshlrev_b32_e32 v2, 24, v2
			v_cmp_gt_u32_e32 vcc, 3, v2
			s_cbranch_vccnz 0`, "undefined branch +0x2c"},
		{"a scalar load", CheckUninit, 1, 1, `
			s_load_dwordx2 s[8:9], s[6:7], 0x240
			s_load_dword s10, s[4:5], 0x0
			s_cmp_eq_u32 s10, 0
			s_cbranch_scc1 0
			s_cmp_eq_u32 s9, 0
			s_cbranch_scc1 0`, "undefined branch +0x20"},
		{"an input", CheckUninit, 1, 1, `
			global_load_dword v2, v1, s[4:5]
			ds_write_b32 v1, v2
			ds_read_b32 v3, v1
			ds_read_b32 v4, v3`, ""},
		{"an atomic on what is undefined", CheckUninit, 1, 1, `
			v_and_b32_e32 v3, 15, v0
			v_lshlrev_b32_e32 v3, 2, v3
			s_mov_b64 exec, 0xffff
			global_atomic_add v2, v3, v0, s[6:7] offset:576 sc0
			v_lshrrev_b32_e32 v2, 31, v2
			ds_read_b32 v4, v2`, "undefined address +0x20"},
		{"an atomic on what is defined", CheckUninit, 1, 1, `
			s_mov_b64 exec, 0xffff
			global_store_dword v1, v0, s[6:7] offset:576
			global_atomic_add v2, v1, v0, s[6:7] offset:576 sc0
			ds_read_b32 v4, v2`, ""},
		{"loads into LDS", CheckUninit, 1, 1, `
			s_mov_b32 m0, 0
			global_load_lds_dword v1, s[4:5]
			s_mov_b32 m0, 0x100
			v_and_b32_e32 v3, 60, v1
			global_load_lds_dword v3, s[6:7] offset:576
			s_nop 0
			ds_read_b32 v4, v1
			ds_read_b32 v5, v4
			ds_read_b32 v4, v1 offset:832
			v_lshrrev_b32_e32 v4, 31, v4
			ds_read_b32 v5, v4`, "undefined address +0x34"},
		{"scratch that has not been written", CheckUninit, 1, 1, `
			scratch_store_dword off, v1, off offset:4
			scratch_load_dwordx2 v[4:5], off, off
			ds_read_b32 v3, v5
			v_lshrrev_b32_e32 v4, 31, v4
			ds_read_b32 v3, v4`, "undefined address +0x1c"},
		{"LDS that has not been written", CheckUninit, 1, 1, `
			ds_write_b32 v1, v0
			ds_read2_b32 v[4:5], v1 offset1:64
			ds_read_b32 v3, v4
			ds_read_b32 v3, v5`, "undefined address +0x18"},
		{"half of a pair of scalars, moved to lanes", CheckUninit, 1, 1, `
			s_mov_b32 s8, 64
			v_mov_b64_e32 v[2:3], s[8:9]
			v_pk_fma_f32 v[4:5], v[2:3], v[2:3], v[2:3] op_sel_hi:[0,0,0]
			v_and_b32_e32 v4, 60, v4
			v_and_b32_e32 v5, 60, v5
			ds_read_b32 v6, v2
			ds_read_b32 v6, v4
			ds_read_b32 v6, v5
			v_and_b32_e32 v3, 60, v3
			ds_read_b32 v6, v3`, "undefined address +0x30"},
		{"moved by lanes", CheckUninit, 1, 1, `
			s_mov_b64 exec, 1
			v_mov_b32_e32 v8, v1
			s_mov_b64 exec, -1
			v_readfirstlane_b32 s9, v8
			v_readlane_b32 s10, v8, 1
			s_cmp_eq_u32 s9, 0
			s_cbranch_scc1 0
			s_cmp_eq_u32 s10, 0
			s_cbranch_scc1 0`, "undefined branch +0x2c"},
		{"permuted", CheckUninit, 1, 1, `
			s_mov_b64 exec, 1
			v_mov_b32_e32 v8, v1
			s_mov_b64 exec, -1
			v_mov_b32_e32 v9, 0
			ds_bpermute_b32 v7, v9, v8
			ds_read_b32 v3, v7
			v_mov_b32_e32 v9, 4
			ds_bpermute_b32 v7, v9, v8
			ds_read_b32 v3, v7`, "undefined address +0x2c"},
		{"moved by DPP", CheckUninit, 1, 1, `
			s_mov_b64 exec, 0xffff
			v_mov_b32_e32 v8, v1
			s_mov_b64 exec, -1
			v_mov_b32_e32 v7, 0
			v_add_u32_dpp v7, v8, v7 row_shr:1 row_mask:0x1 bank_mask:0xf
			ds_read_b32 v3, v7
			v_add_u32_dpp v7, v8, v7 row_shr:1 row_mask:0x3 bank_mask:0xf
			ds_read_b32 v3, v7`, "undefined address +0x28"},
		{"halves by SDWA", CheckUninit, 1, 1, `
			v_mov_b32_sdwa v8, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD
			v_lshrrev_b32_e32 v9, 16, v8
			ds_read_u8 v3, v9
			v_mov_b32_sdwa v8, v0 dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD
			v_lshrrev_b32_e32 v8, 20, v8
			ds_read_u8 v3, v8`, ""},
		{"the half that SDWA reads", CheckUninit, 1, 1, `
			v_mov_b32_sdwa v8, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD
			v_add_u32_sdwa v9, v0, v8 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1
			ds_read_u8 v3, v9
			v_add_u32_sdwa v9, v0, v8 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1
			v_lshrrev_b32_e32 v9, 31, v9
			ds_read_u8 v3, v9`, "undefined address +0x20"},
		{"two halves of fp8", CheckUninit, 1, 1, `
			v_mov_b32_e32 v7, 0
			v_cvt_pk_fp8_f32 v8, v7, v7
			v_cvt_pk_fp8_f32 v8, v7, v7 op_sel:[0,0,1]
			ds_read_b32 v3, v8`, ""},
		{"one half of fp8", CheckUninit, 1, 1, `
			v_mov_b32_e32 v7, 0
			v_cvt_pk_fp8_f32 v8, v7, v7
			v_lshrrev_b32_e32 v8, 31, v8
			ds_read_b32 v3, v8`, "undefined address +0x18"},
		{"packed f32", CheckUninit, 1, 1, `
			v_mov_b32_e32 v8, 0
			v_pk_add_f32 v[6:7], v[8:9], v[8:9]
			ds_read_b32 v3, v6
			v_pk_add_f32 v[6:7], v[8:9], v[8:9] op_sel:[0,1]
			v_lshrrev_b32_e32 v6, 31, v6
			ds_read_b32 v3, v6`, "undefined address +0x20"},
		{"rows of a matrix", CheckUninit, 1, 1, `
			v_mov_b32_e32 v10, 0
			v_mov_b32_e32 v11, 0
			v_mov_b32_e32 v12, 0
			v_mov_b32_e32 v13, 0
			v_cmp_eq_u32_e32 vcc, 5, v0
			v_cndmask_b32_e32 v10, v10, v30, vcc
			v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], 0
			v_mov_b32_e32 v24, 0
			ds_read_b32 v3, v20
			s_mov_b64 exec, 0xffff
			ds_read_b32 v3, v21
			s_mov_b64 exec, 0xf0000
			v_lshrrev_b32_e32 v21, 31, v21
			ds_read_b32 v3, v21`, "undefined address +0x40"},
		{"columns of a matrix", CheckUninit, 1, 1, `
			v_mov_b32_e32 v10, 0
			v_mov_b32_e32 v11, 0
			v_mov_b32_e32 v12, 0
			v_mov_b32_e32 v13, 0
			v_cmp_eq_u32_e32 vcc, 21, v0
			v_cndmask_b32_e32 v12, v12, v30, vcc
			v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[12:13], 0
			s_mov_b64 exec, 0xf
			ds_read_b32 v3, v23
			s_mov_b64 exec, 0x20
			v_lshrrev_b32_e32 v23, 31, v23
			ds_read_b32 v3, v23`, "undefined address +0x38"},
		{"the accumulator of a matrix", CheckUninit, 1, 1, `
			v_mov_b32_e32 v10, 0
			v_mov_b32_e32 v11, 0
			v_mov_b32_e32 v20, 0
			v_mfma_f32_16x16x16_bf16 v[20:23], v[10:11], v[10:11], v[20:23]
			ds_read_b32 v3, v20
			v_lshrrev_b32_e32 v21, 31, v21
			ds_read_b32 v3, v21`, "undefined address +0x24"},
	})
}

// What a kernel stores without having set it is undefined for the host.
func TestUninitOfTheHost(t *testing.T) {
	c := sanitizerCase{checks: CheckUninit, code: `
		global_store_dword v1, v0, s[6:7]
		s_mov_b64 exec, 0x100
		global_store_dword v1, v9, s[6:7]`}
	reports, arena, shadow := c.run(t, 1, 0)
	if reports != nil {
		t.Fatalf("storing is reported: %v", reports)
	}
	base := Address(arena)
	if at, found := shadow.Undefined(base+caseOut, 256); !found || at != base+caseOut+4*8 {
		t.Errorf("undefined: %v at %d, want lane 8's word", found, int64(at-base-caseOut))
	}
	if _, found := shadow.Undefined(base+caseIn, caseOut-caseIn+4*8); found {
		t.Error("what was defined is not")
	}
	shadow.Define(base+caseOut, 512)
	if at, found := shadow.Undefined(base, caseSlack); found {
		t.Errorf("undefined at %d after Define", at-base)
	}
	if at, found := shadow.Undefined(base, caseArena); !found || at != base+caseSlack {
		t.Error("the buffer that the caller says holds nothing is defined")
	}
}
